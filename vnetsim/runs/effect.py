"""Finds settings of the user that have no effect in a run, from the conditions that settings declare (``Acts``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vnetsim.errors import InputError
from vnetsim.errors.bounds import A_SOURCE, EXCHANGES, HANDOVERS, SEVERAL_RSUS, TRAINS, WIRED, Acts, acts_of, needed
from vnetsim.experiment import Experiment
from vnetsim.runs.assembly import Assembly, assemble
from vnetsim.scenario.kinds import names_source
from vnetsim.scenario.settings_file import Override, keys_in_file, leaves, read_experiment, to_plain
from vnetsim.setting_texts import tables_of

OF_PACE = ("round.quorum", "round.invited", "selection")
OF_DATA_SET = ("data.root", "data.download", "data.image_px")


def with_given(assembly: Assembly, scenario: str | None, overrides: Sequence[Override]) -> Assembly:
    """Return the assembly with the settings of the call in ``given``; refuse settings without effect (InputError).

    ``scenario`` is the experiment file or other scenario; None for an experiment that was checked before. A setting of
    the file is allowed if it has an effect without the call's settings.
    """
    given = {".".join(path) for path, value in overrides if value is not None and value != {}}
    refuse_idle(find_idle(assembly, given, {}))
    if scenario is not None:
        refuse_idle(idle_in_file(assembly, scenario, given), f"{scenario}: ")
    return replace(assembly, given=given)


def idle_in_file(assembly: Assembly, scenario: str, given: Collection[str]) -> dict[str, str]:
    """Return the settings of a file, with why, that have no effect with a call's settings (``given``) nor without.

    {} for a file that is no complete experiment without the call's settings.
    """
    lacking = find_idle(assembly, keys_in_file(scenario).difference(given), {})
    if not lacking or not given:
        return lacking
    try:
        alone = assemble(*read_experiment(scenario))
    except InputError:  # a file that needs the call's settings
        return {}
    return find_idle(alone, lacking, {})


def idle_everywhere(cases: Iterable[tuple[Collection[str], Mapping[str, str]]]) -> dict[str, str]:
    """Return settings without effect in all runs that set them, and why (the last run's reason).

    Each case is a run: the keys that it sets, and those of them without effect, with the reasons.
    """
    seen = list(cases)
    acting = {key for keys, lacking in seen for key in keys if key not in lacking}
    return {key: why for _, lacking in seen for key, why in lacking.items() if key not in acting}


def facts_of(
    experiment: Experiment, *, timing_only: bool, rsus: int | None = None, exchanges: bool | None = None
) -> dict[str, bool]:
    """Return the facts of a run that do not follow from its settings alone, by ``Acts.key``; unknown ones are left out.

    ``rsus``, their number, and ``exchanges``, whether vehicles exchange with each other, are None while unknown.
    """
    facts = {TRAINS.key: not timing_only}
    if rsus is not None:
        facts |= {SEVERAL_RSUS.key: rsus > 1, HANDOVERS.key: rsus > 1 or experiment.handover.longest_gap_s > 0}
    if exchanges is not None:  # under the star, learners that average at the RSU exchange nothing
        facts[EXCHANGES.key] = exchanges or experiment.exchange.topology == "star"
    return facts


def find_idle(assembly: Assembly, keys: Collection[str], facts: Mapping[str, bool]) -> dict[str, str]:
    """Return the settings among dotted ``keys`` that have no effect, and why; unknown ``facts`` count as true."""
    known = {**_facts(assembly), **facts}
    values = leaves(to_plain(assembly.experiment))
    for table, plugin in assembly.chosen.items():
        values |= leaves(plugin.spelt_out, (table,))
    acts = dict(_conditions(Experiment))
    for table, plugin in assembly.chosen.items():
        acts |= _conditions(type(plugin.settings), table)
    lacking: dict[str, str] = {}
    for key in sorted(keys):
        for one in (*acts.get(key, ()), *acts.get(key.partition(".")[0], ())):
            value = known.get(one.key, True) if one.is_fact else values.get(tuple(one.key.split(".")))
            if not one.holds(value):
                here = "here" if one.is_fact else f"with {one.key} = {value!r}"
                lacking.setdefault(key, f"means nothing {here}; it acts with {one}. Leave it out, or change that.")
    return lacking


def refuse_idle(lacking: Mapping[str, str], where: str = "") -> None:
    """Refuse (InputError) the first setting that has no effect; ``where`` precedes its key in the message."""
    for key, why in lacking.items():
        raise InputError(f"{where}{key}: {why}")


def _facts(assembly: Assembly) -> dict[str, bool]:
    """Return by ``Acts.key`` whether a source is named, the backhaul is used, and which keys pace and data set read."""
    given = assembly.experiment
    sends_on = given.handover.policy not in ("drop", "multi")
    found = {A_SOURCE.key: names_source(given.scenario), WIRED.key: given.topology.kind != "per-rsu" or sends_on}
    for by, table, keys in (("pace", "pace", OF_PACE), ("data set", "data", OF_DATA_SET)):
        plugin = assembly.chosen.get(table)
        # only the class's own declaration counts: a subclass may need more than its base
        needs = vars(plugin.found).get("needs", keys) if plugin else keys
        found |= {needed(by, key).key: key in needs for key in keys}
    return found


def _conditions(kind: type, table: str = "") -> Iterator[tuple[str, tuple[Acts, ...]]]:
    """Yield the conditions of a class's settings and of its nested tables, by dotted key."""
    dot = f"{table}." if table else ""
    for name, acts in acts_of(kind).items():
        yield f"{dot}{name}", acts
    for name, below in tables_of(kind).items():
        yield from _conditions(below, f"{dot}{name}")
