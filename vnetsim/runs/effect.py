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
"""Settings that a pace or a data set may leave unused; its class attribute ``needs`` lists those that it uses."""


def with_given(assembly: Assembly, scenario: str | None, overrides: Sequence[Override]) -> Assembly:
    """Return the assembly, its ``given`` set to the keys of ``overrides``; InputError for a setting without effect.

    ``overrides`` are the settings of the call; those of ``scenario`` are checked too, if it is an experiment file. A
    setting of the file may also have its effect without those of the call. None: the file's were checked before.
    """
    given = {".".join(path) for path, value in overrides if value is not None and value != {}}
    refuse_idle(find_idle(assembly, given, {}))
    if scenario is not None:
        refuse_idle(idle_in_file(assembly, scenario, given), f"{scenario}: ")
    return replace(assembly, given=given)


def idle_in_file(assembly: Assembly, scenario: str, given: Collection[str]) -> dict[str, str]:
    """Return, by key, why settings of the file ``scenario`` have no effect, with the call's settings and without.

    ``given`` has the dotted keys of the call's settings. {} if the file is no complete experiment without them.
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
    """Return the keys without effect in every run that sets them, with the last run's reason.

    Each case is a run: the keys that it sets, and the reasons by key for those without effect in it.
    """
    seen = list(cases)
    acting = {key for keys, lacking in seen for key in keys if key not in lacking}
    return {key: why for _, lacking in seen for key, why in lacking.items() if key not in acting}


def facts_of(
    experiment: Experiment, *, timing_only: bool, rsus: int | None = None, exchanges: bool | None = None
) -> dict[str, bool]:
    """Return what ``find_idle`` must know besides the settings, by ``Acts.key``; unknown facts are left out.

    ``rsus`` is the number of RSUs; ``exchanges`` says whether vehicles exchange with each other; None if unknown.
    """
    facts = {TRAINS.key: not timing_only}
    if rsus is not None:
        facts |= {SEVERAL_RSUS.key: rsus > 1, HANDOVERS.key: rsus > 1 or experiment.handover.longest_gap_s > 0}
    if exchanges is not None:  # under the star, learners that average at the RSU exchange nothing
        facts[EXCHANGES.key] = exchanges or experiment.exchange.topology == "star"
    return facts


def find_idle(assembly: Assembly, keys: Collection[str], facts: Mapping[str, bool]) -> dict[str, str]:
    """Return the dotted ``keys`` that have no effect, sorted, each with the reason; unknown ``facts`` count as true."""
    known = {**_find_facts(assembly), **facts}
    values, acts = leaves(to_plain(assembly.experiment)), dict(_list_conditions(Experiment))
    for table, plugin in assembly.plugin_by_table.items():
        values |= leaves(plugin.plain_settings, (table,))
        acts |= _list_conditions(type(plugin.settings), table)
    lacking: dict[str, str] = {}
    for key in sorted(keys):
        for one in (*acts.get(key, ()), *acts.get(key.partition(".")[0], ())):
            value = known.get(one.key, True) if one.is_fact else values.get(tuple(one.key.split(".")))
            if not one.holds(value):
                here = "here" if one.is_fact else f"with {one.key} = {value!r}"
                lacking.setdefault(key, f"means nothing {here}; it acts with {one}. Leave it out, or change that.")
    return lacking


def refuse_idle(lacking: Mapping[str, str], where: str = "") -> None:
    """Raise InputError for the first key of ``lacking`` (reason by key), if any; ``where`` begins the message."""
    for key, why in lacking.items():
        raise InputError(f"{where}{key}: {why}")


def _find_facts(assembly: Assembly) -> dict[str, bool]:
    """Return by ``Acts.key`` if traffic source and backhaul are used, and which settings pace and data set use."""
    given = assembly.experiment
    sends_on = given.handover.policy not in ("drop", "multi")
    found = {A_SOURCE.key: names_source(given.scenario), WIRED.key: given.topology.kind != "per-rsu" or sends_on}
    for by, table, keys in (("pace", "pace", OF_PACE), ("data set", "data", OF_DATA_SET)):
        plugin = assembly.plugin_by_table.get(table)
        # only the class's own declaration counts: a subclass may need more than its base
        needs = vars(plugin.found).get("needs", keys) if plugin else keys
        found |= {needed(by, key).key: key in needs for key in keys}
    return found


def _list_conditions(kind: type, table: str = "") -> Iterator[tuple[str, tuple[Acts, ...]]]:
    """Yield (dotted key, conditions) of a class's conditional settings, also nested; ``table`` is the class's key."""
    dot = f"{table}." if table else ""
    for name, acts in acts_of(kind).items():
        yield f"{dot}{name}", acts
    for name, below in tables_of(kind).items():
        yield from _list_conditions(below, f"{dot}{name}")
