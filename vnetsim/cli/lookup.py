"""Commands that look something up and run nothing: learners, settings, sources to cite, shipped scenarios."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vnetsim.cli.options import Debug
from vnetsim.errors import InputError, RunError, unknown_name
from vnetsim.setting_texts import MOST_WANTED, SettingText, description, meanings, setting_texts, tables_of
from vnetsim.standard_streams import plain, tell


def learners(
    name: Annotated[
        str | None, Parameter(help="Explain this learner, installed or of a file as path/to/file.py:CLASS.")
    ] = None,
    /,
    *,
    debug: Debug = False,  # noqa: ARG001 - read by main
) -> int:
    """List the learners there are: name, task, payload, paper; with NAME also equations, settings and defaults."""
    from vnetsim.cli.terminal import print_learner, print_learners  # noqa: PLC0415 - keeps --help quick
    from vnetsim.learning.registry import find_learner, learner_names  # noqa: PLC0415

    if name is not None:
        print_learner(find_learner(name))
        return 0
    found, faults = {}, []
    for known in learner_names():
        try:
            found[known] = find_learner(known)
        except RunError as error:  # one package at fault must not hide the others
            faults.append(str(error))
    print_learners(found)
    for fault in faults:
        tell(fault)
    return RunError.exit_code if faults else 0


def settings(
    key: Annotated[
        str | None,
        Parameter(
            help="A setting, such as round.quorum, or a table of them, such as round; of a table that belongs to "
            "plug-ins, such as selection, those of all that are installed."
        ),
    ] = None,
    /,
    *,
    learner: Annotated[
        str | None,
        Parameter(
            help="Tell the settings of this learner as well, and the defaults that it brings; path/to/file.py:CLASS "
            "for one of a file. Without it the table learning is the default learner's."
        ),
    ] = None,
    basic: Annotated[bool, Parameter(negative="", help="Only the settings that most studies begin with.")] = False,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Explain every setting of an experiment: meaning, unit, default, bounds; with KEY one, or those of one table."""
    from vnetsim.cli.terminal import print_settings  # noqa: PLC0415 - keeps --help quick
    from vnetsim.experiment import PLUGIN_TABLES, Experiment  # noqa: PLC0415

    plugin_table = (key or "").partition(".")[0]
    if plugin_table in PLUGIN_TABLES:
        return _settings_of_plugins(plugin_table, key or "")
    tables: dict[str, type] = {"": Experiment, **tables_of(Experiment)}
    brought: Mapping[str, Any] = {}
    if learner is not None or basic or (key or "").partition(".")[0] == "learning":
        from vnetsim.learning.registry import about, find_learner  # noqa: PLC0415

        found = find_learner(learner or Experiment.learner)
        tables["learning"] = found.Settings
        brought = about(found).defaults if learner else {}
    texts = {
        table: [text for text in setting_texts(kind, table, brought) if table or "." not in text.key]
        for table, kind in tables.items()
    }
    known = {text.key: text for of_table in texts.values() for text in of_table}
    if "learning" in tables:
        del known["learning"]
        texts[""] = [text for text in texts[""] if text.key != "learning"]
    if key is None and basic:
        print_settings([("", "", [known[wanted] for wanted in MOST_WANTED if wanted in known])])
    elif key is None:
        print_settings([(_head(table), description(tables[table]).split("\n\n")[0], texts[table]) for table in tables])
    elif key in tables:
        print_settings([(_head(key), description(tables[key]), texts[key])])
    elif key in known:
        print_settings([("", "", [known[key]])])
    else:
        if learner is None and key.startswith("learning."):
            return _settings_of_plugins("learning", key)
        raise _unknown_setting(key, known, {*tables, *PLUGIN_TABLES, "learning"} - {""})
    return 0


def _settings_of_plugins(table: str, key: str) -> int:
    """Print a table that holds settings of plug-ins, or one of its keys, of every installed plug-in that has it."""
    from vnetsim.cli.plugins import kinds, word  # noqa: PLC0415 - keeps --help quick
    from vnetsim.cli.terminal import print_settings  # noqa: PLC0415
    from vnetsim.experiment import Experiment  # noqa: PLC0415
    from vnetsim.own_packages import claim  # noqa: PLC0415

    claim("learners")
    kind = next(kind for kind in kinds() if kind.table == table)
    texts, words, faults = {}, {}, []
    for name in kind.names():
        try:
            found = kind.find(name)
        except RunError as error:  # one package at fault must not hide the others
            faults.append(str(error))
            continue
        texts[name] = list(setting_texts(found.Settings, table, getattr(found, "defaults", {})))
        words[name] = description(found.Settings).split("\n\n")[0]
    known = {text.key for own in texts.values() for text in own}
    one_of_a_file = f"vnetsim plugins {word(kind)} path/to/file.py:CLASS"
    if key != table and key not in known and not faults:
        if known:
            raise unknown_name("setting", key, known)
        raise InputError(f"unknown setting '{key}': no installed {kind.name} has any; of a file: {one_of_a_file}.")
    told: list[tuple[str, str, list[SettingText]]] = []
    if key == table:
        meaning = meanings(Experiment)[table]
        without = ", ".join(name for name, own in texts.items() if not own)
        without = f" Without settings in this table: {without}." if without else ""
        about = f"{meaning[0].upper()}{meaning[1:]}{without}\n\nThose of one in a file: {one_of_a_file}"
        told.append((_head(table), about, []))
    for name, own in texts.items():
        if wanted := [text for text in own if key in (table, text.key)]:
            told.append((f"{_head(table)} of {name}", words[name], wanted))
    print_settings(told)
    for fault in faults:
        tell(fault)
    return RunError.exit_code if faults else 0


def _head(table: str) -> str:
    """Return the heading of a table, as in a TOML file; nothing for the outermost."""
    return f"[{table}]" if table else ""


def _unknown_setting(key: str, known: Collection[str], tables: Collection[str]) -> InputError:
    """Return the error for a key that no setting has: with those of its table, or those of a name like it."""
    table, _, name = key.rpartition(".")
    if table in tables:
        return unknown_name("setting", key, [known_key for known_key in known if known_key.startswith(f"{table}.")])
    like = difflib.get_close_matches(name, {known_key.rpartition(".")[2] for known_key in known}, n=1)
    meant = [known_key for known_key in known if known_key.rpartition(".")[2] in like]
    hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return InputError(
        f"unknown setting '{key}'.{hint} Tables: {', '.join(sorted(tables))}; vnetsim settings lists everything."
    )


def cite(
    *names: Annotated[str, Parameter(help="Learners, as for --learner. Default: all that are installed.")],
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Print what to cite as BibTeX: vnetsim, SUMO, and the papers of the learners that were used."""
    from vnetsim.cli.references import references  # noqa: PLC0415 - keeps --help quick
    from vnetsim.learning.registry import find_learner, learner_names  # noqa: PLC0415

    print("\n\n".join(references([find_learner(name) for name in names or learner_names()])))
    return 0


def init(
    folder: Annotated[Path, Parameter(help="Folder to fill; made when missing, must be empty.")],
    /,
    *,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Copy the shipped scenarios into a folder, to run and to change."""
    from vnetsim.scenario.shipped import FIRST, copy_scenarios  # noqa: PLC0415 - keeps --help quick

    for path in copy_scenarios(folder):
        print(plain(str(path)))
    tell(f"next: vnetsim run {shlex.quote(str(folder / FIRST))}")
    return 0
