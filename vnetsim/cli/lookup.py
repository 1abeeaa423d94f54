"""Commands that look something up and run nothing: plug-ins, settings, sources to cite, shipped scenarios."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vnetsim.cli.options import Debug
from vnetsim.errors import InputError, RunError, unknown_name
from vnetsim.setting_texts import MOST_WANTED, SettingText, as_toml, description, meanings, setting_texts, tables_of
from vnetsim.standard_streams import plain, tell

if TYPE_CHECKING:
    from vnetsim.plugins import Kind


def kinds() -> tuple[Kind, ...]:
    """Return every kind of plug-in."""
    from vnetsim.learning.aggregation import AGGREGATIONS  # noqa: PLC0415 - keeps --help quick
    from vnetsim.learning.kinds import DATA_SETS, ENCODERS  # noqa: PLC0415
    from vnetsim.learning.registry import LEARNERS  # noqa: PLC0415
    from vnetsim.radio import RADIO_MODELS  # noqa: PLC0415
    from vnetsim.scenario.kinds import TRAFFIC_SOURCES  # noqa: PLC0415
    from vnetsim.simulation.pace import PACES  # noqa: PLC0415
    from vnetsim.simulation.selection import SELECTIONS  # noqa: PLC0415

    return LEARNERS, SELECTIONS, PACES, AGGREGATIONS, RADIO_MODELS, TRAFFIC_SOURCES, DATA_SETS, ENCODERS


def word(kind: Kind) -> str:
    """Return the word by which a kind is asked for: that of its entry-point group, ``"selections"``."""
    return kind.group.rpartition(".")[2]


def _words(kind: Kind) -> tuple[str, ...]:
    """Return all words by which a kind is known, one and many, ``_`` between their parts."""
    return word(kind), word(kind).removesuffix("s"), kind.name.replace(" ", "_")


def _installed(kind: Kind, faults: list[str]) -> dict[str, type[Any]]:
    """Return the installed plug-ins of a kind by name; one package at fault must not hide the others."""
    found = {}
    for name in kind.names():
        try:
            found[name] = kind.find(name)
        except RunError as error:
            faults.append(str(error))
    return found


def _status(faults: Sequence[str]) -> int:
    """Tell the faults of plug-ins, and return the exit status that they make."""
    for fault in faults:
        tell(fault)
    return RunError.exit_code if faults else 0


def learners(
    name: Annotated[
        str | None, Parameter(help="Explain this learner, installed or of a file as path/to/file.py:CLASS.")
    ] = None,
    /,
    *,
    debug: Debug = False,  # noqa: ARG001 - read by main
) -> int:
    """List the learners there are: name, task, payload, paper; with NAME also equations, settings and defaults."""
    from vnetsim.cli.terminal import print_learners, print_plugin  # noqa: PLC0415 - keeps --help quick
    from vnetsim.learning.registry import LEARNERS  # noqa: PLC0415

    if name is not None:
        print_plugin(LEARNERS, LEARNERS.find(name))
        return 0
    faults: list[str] = []
    print_learners(_installed(LEARNERS, faults))
    return _status(faults)


def plugins(
    kind: Annotated[
        str | None,
        Parameter(
            help="Only this kind: learners, selections, paces, aggregations, radio_models, traffic_sources, data_sets "
            "or encoders."
        ),
    ] = None,
    name: Annotated[
        str | None, Parameter(help="Explain this one, installed or of a file as path/to/file.py:CLASS.")
    ] = None,
    /,
    *,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """List what can be swapped, one line each; with KIND and NAME also equations, source and settings."""
    from vnetsim.cli.terminal import print_plugin, print_plugins  # noqa: PLC0415 - keeps --help quick

    asked = kind and re.sub("[- ]", "_", kind)
    wanted = [one for one in kinds() if asked is None or asked in _words(one)]
    if not wanted:
        assert kind is not None
        raise unknown_name("kind of plug-in", kind, [word(one) for one in kinds()])
    if name is not None:
        print_plugin(wanted[0], wanted[0].find(name))
        return 0
    faults: list[str] = []
    for one in wanted:
        print_plugins(one, word(one), _installed(one, faults))
    return _status(faults)


def name_text(kind: Kind) -> SettingText | None:
    """Return the setting that names one of a kind, where it stands in the kind's own table."""
    from vnetsim.experiment import Experiment  # noqa: PLC0415 - keeps --help quick

    if not kind.default or kind.key != f"{kind.table}.name":
        return None
    meaning = meanings(Experiment)[kind.table]
    return SettingText(key=kind.key, meaning=meaning, values="text", default=as_toml(kind.default), within=None)


def named_tables() -> dict[str, list[SettingText]]:
    """Return the tables of plug-ins that name them, with the settings of the default one unless that needs torch."""
    found = {}
    for kind in kinds():
        if (name := name_text(kind)) is not None:
            quick = kind.built_in[kind.default].startswith("vnetsim.")
            found[kind.table] = [name, *(setting_texts(kind.find(kind.default), kind.table) if quick else ())]
    return found


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
        from vnetsim.learning.registry import LEARNERS, about  # noqa: PLC0415

        found = LEARNERS.find(learner or Experiment.learner)
        tables["learning"] = found.Settings
        brought = about(found).defaults if learner else {}
    texts = {
        table: [text for text in setting_texts(kind, table, brought) if table or "." not in text.key]
        for table, kind in tables.items()
    }
    shown = {**texts, **named_tables()}
    shown[""] = [text for text in texts[""] if text.key not in shown]
    known = {text.key: text for of_table in shown.values() for text in of_table}
    if key is None and basic:
        print_settings([("", "", [known[wanted] for wanted in MOST_WANTED if wanted in known])])
    elif key is None:
        words = {table: description(kind).split("\n\n")[0] for table, kind in tables.items()}
        print_settings([(_head(table), words.get(table, ""), own) for table, own in shown.items()])
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
    from vnetsim.cli.terminal import print_settings  # noqa: PLC0415 - keeps --help quick
    from vnetsim.experiment import Experiment  # noqa: PLC0415

    kind = next(kind for kind in kinds() if kind.table == table)
    named = name_text(kind)
    if named is not None and key == named.key:
        print_settings([("", "", [named])])
        return 0
    faults: list[str] = []
    found = _installed(kind, faults)
    texts = {
        name: list(setting_texts(kind.settings_of(one), table, getattr(one, "defaults", {})))
        for name, one in found.items()
    }
    known = {text.key for own in texts.values() for text in own}
    one_of_a_file = f"vnetsim plugins {word(kind)} path/to/file.py:CLASS"
    if key != table and key not in known and not faults:
        if known:
            raise unknown_name("setting", key, known)
        raise InputError(f"unknown setting '{key}': no installed {kind.name} has any; of a file: {one_of_a_file}.")
    told: list[tuple[str, str, list[SettingText]]] = []
    if key == table:
        meaning = "settings of each, beside its name" if named else meanings(Experiment)[table]
        without = ", ".join(name for name, own in texts.items() if not own)
        without = f" Without settings in this table: {without}." if without else ""
        about = f"{meaning[0].upper()}{meaning[1:]}{without}\n\nThose of one in a file: {one_of_a_file}"
        told.append((_head(table), about, [named] if named else []))
    for name, own in texts.items():
        if wanted := [text for text in own if key in (table, text.key)]:
            told.append(
                (f"{_head(table)} of {name}", description(kind.settings_of(found[name])).split("\n\n")[0], wanted)
            )
    print_settings(told)
    return _status(faults)


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
    *names: Annotated[
        str,
        Parameter(
            help="Folders of runs or comparisons; or learners, as for --learner. Default: all that are installed."
        ),
    ],
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Print what to cite as BibTeX: vnetsim, SUMO, and the papers of the learners that were used."""
    from vnetsim.api.export import references  # noqa: PLC0415 - keeps --help quick
    from vnetsim.learning.registry import LEARNERS  # noqa: PLC0415

    folders = [name for name in names if Path(name).is_dir()]
    learners = [name for name in names if name not in folders] if names else LEARNERS.names()
    print("\n\n".join(references([LEARNERS.find(name) for name in learners], folders)))
    return 0


def docs(*, debug: Debug = False) -> int:  # noqa: ARG001
    """Open the documentation in a browser: tutorial, how-to pages, explanations, glossary."""
    import webbrowser  # noqa: PLC0415 - keeps --help quick

    package = Path(__file__).parents[1]
    found = [path for path in (package / "documentation.html", package.parent / "site/index.html") if path.is_file()]
    if not found:
        raise InputError(f"no documentation is built here: `make docs` in {package.parent} builds it into site/.")
    print(found[0])
    webbrowser.open(found[0].as_uri())
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
