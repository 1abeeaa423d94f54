"""Commands that run nothing: plug-ins, settings, citations, documentation, scenarios, a learner to begin with."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from vnetsim.cli.options import settings_of
from vnetsim.errors import InputError, RunError, unknown_name
from vnetsim.plugins import Kind
from vnetsim.setting_texts import SettingText, as_toml, description, meanings, setting_texts, tables_of
from vnetsim.standard_streams import plain, tell

Set = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="A setting that it needs, as source.file=counts.csv. Repeatable."),
]


def kinds() -> tuple[Kind, ...]:
    """Return all kinds of plug-ins, traffic sources last."""
    from vnetsim.api.settings import KINDS  # noqa: PLC0415 - keeps --help quick
    from vnetsim.scenario.kinds import TRAFFIC_SOURCES  # noqa: PLC0415

    return *KINDS, TRAFFIC_SOURCES


def word(kind: Kind) -> str:
    """Return the word that users type for a kind, the last part of its entry-point group, such as ``"selections"``."""
    return kind.group.rpartition(".")[2]


def _find_installed(kind: Kind, faults: list[str]) -> dict[str, type[Any]]:
    """Return the installed plug-ins of a kind by name; append a line to ``faults`` for each that cannot be loaded."""
    found = {}
    for name in kind.names():
        try:
            found[name] = kind.find(name)
        except RunError as error:
            faults.append(str(error))
    return found


def _print_faults(faults: Sequence[str]) -> int:
    """Print the faults of plug-ins to standard error; return the exit status: 1, or 0 if there are none."""
    for fault in faults:
        tell(fault)
    return RunError.exit_code if faults else 0


def learners(name: str | None = None, /) -> int:
    """List the installed learners; with NAME also task, payload, equations, paper, settings and defaults of one.

    Args:
        name: Explain this learner, installed or of a file as path/to/file.py:CLASS.
    """
    return plugins("learners", name)


def plugins(kind: str | None = None, name: str | None = None, /) -> int:
    """List the installed plug-ins, one line each; with KIND and NAME also equations, source and settings of one.

    Args:
        kind: Only this kind: learners, selections, paces, aggregations, radio_models, data_sets, encoders or
            traffic_sources.
        name: Explain this plug-in, installed or of a file as path/to/file.py:CLASS.
    """
    from vnetsim.cli.terminal import print_plugin, print_plugins  # noqa: PLC0415 - keeps --help quick

    wanted = [one for one in kinds() if kind in (None, word(one))]
    if not wanted:
        assert kind is not None
        raise unknown_name("kind of plug-in", kind, [word(one) for one in kinds()])
    if name is not None:
        print_plugin(wanted[0], wanted[0].find(name))
        return 0
    faults: list[str] = []
    for one in wanted:
        print_plugins(one, word(one), _find_installed(one, faults))
    return _print_faults(faults)


def check(plugin: str, /, *, set_: Set = ()) -> int:  # noqa: D417 - the type of set_ has its text
    """Check a plug-in of any kind against its protocol and laws, in a small run; one line for each.

    Types, shapes, bounds, finite values, weights that sum to 1, the same answer for the same seed, state that resumes,
    and arguments that stay as they are. Exit status 2 if it breaks a law.

    Args:
        plugin: path/to/file.py:CLASS, or the name of an installed plug-in.
    """
    from vnetsim.testing import conformance  # noqa: PLC0415 - keeps --help quick

    found = conformance(plugin, settings_of(set_))
    print(plain(f"{found.kind} {found.name}"))
    for law in found.kept:
        print(f"  ok  {law}")
    for fault in found.faults:
        tell(fault)
    return InputError.exit_code if found.faults else 0


Section = tuple[str, str, list[SettingText]]  # heading, description and settings of a table


def settings(key: str | None = None, /) -> int:
    """Explain every setting of an experiment: meaning, unit, default, bounds; with KEY one, or those of one table.

    Args:
        key: A setting, such as round.quorum, or a table of them, such as round; of a table that belongs to plug-ins,
            such as selection or learning, those of all that are installed.
    """
    from vnetsim.cli.terminal import print_settings  # noqa: PLC0415 - keeps --help quick
    from vnetsim.experiment import PLUGIN_TABLES  # noqa: PLC0415

    faults: list[str] = []
    table = (key or "").partition(".")[0]
    of_plugins = table in (*PLUGIN_TABLES, "learning")
    sections = _make_plugin_sections(table, faults) if of_plugins else _make_sections()
    known = {text.key: text for _, _, texts in sections for text in texts}
    if (of_plugins and key != table) or key in known:
        only = [(head, about, [text for text in texts if text.key == key]) for head, about, texts in sections]
        sections = [section for section in only if section[2]]
    elif key is not None and not of_plugins:
        sections = [section for section in sections if section[0] == f"[{key}]"]
    if not sections and not faults:
        raise _unknown_setting(str(key), known)
    print_settings(sections)
    return _print_faults(faults)


def _make_sections() -> list[Section]:
    """Return all settings by table; of plug-ins, only default ones that need no torch; of learners, none."""
    # plug-ins that need torch are left out, which takes seconds to import
    from vnetsim.experiment import Experiment  # noqa: PLC0415 - keeps --help quick

    named = {kind.table: _describe_name(kind) for kind in kinds() if kind.default}
    outermost = [text for text in setting_texts(Experiment) if "." not in text.key and text.key not in named]
    found: list[Section] = [("", "", outermost)]
    for table, general in tables_of(Experiment).items():
        found.append((f"[{table}]", description(general).split("\n\n")[0], list(setting_texts(general, table))))
    for kind in (kind for kind in kinds() if kind.default):
        quick = kind.built_in[kind.default].startswith("vnetsim.")
        own = list(setting_texts(kind.find(kind.default), kind.table)) if quick else []
        found.append((f"[{kind.table}]", "", [named[kind.table], *own]))
    return found


def _describe_name(kind: Kind) -> SettingText:
    """Return the setting that names a plug-in of a kind, such as ``selection.name``; the kind must have a default."""
    from vnetsim.experiment import Experiment  # noqa: PLC0415 - keeps --help quick

    meaning = meanings(Experiment)[kind.table]
    return SettingText(key=kind.key, meaning=meaning, values="text", default=as_toml(kind.default), within=None)


def _make_plugin_sections(table: str, faults: list[str]) -> list[Section]:
    """Return the setting that names the plug-in, then each plug-in's settings; append load errors to ``faults``."""
    from vnetsim.experiment import Experiment  # noqa: PLC0415 - keeps --help quick

    kind = next(kind for kind in kinds() if kind.table == table)
    texts = {
        name: (plugin, list(setting_texts(kind.settings_of(plugin), table, getattr(plugin, "defaults", {}))))
        for name, plugin in _find_installed(kind, faults).items()
    }
    without = ", ".join(name for name, (_, own) in texts.items() if not own)
    meaning = "settings of each, beside its name" if kind.default else meanings(Experiment)[table]
    about = f"{meaning[0].upper()}{meaning[1:]}" + (f" Without settings in this table: {without}." if without else "")
    about += f"\n\nThose of one in a file: vnetsim plugins {word(kind)} path/to/file.py:CLASS"
    found: list[Section] = [(f"[{table}]", about, [_describe_name(kind)] if kind.default else [])]
    for name, (plugin, own) in texts.items():
        if own:
            found.append((f"[{table}] of {name}", description(kind.settings_of(plugin)).split("\n\n")[0], own))
    return found


def _unknown_setting(key: str, known: Collection[str]) -> InputError:
    """Return the error for an unknown key, which names the keys of its table, or similar ones and all tables."""
    table, _, name = key.rpartition(".")
    if alike := [one for one in known if table and one.startswith(f"{table}.")]:
        return unknown_name("setting", key, alike)
    like = difflib.get_close_matches(name, {one.rpartition(".")[2] for one in known}, n=1)
    meant = [one for one in known if one.rpartition(".")[2] in like]
    hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
    tables = sorted({one.partition(".")[0] for one in known if "." in one})
    return InputError(f"unknown setting '{key}'.{hint} Tables: {', '.join(tables)}; vnetsim settings lists everything.")


def cite(*names: str) -> int:
    """Print what to cite as BibTeX: vnetsim, SUMO, and the papers of the learners that were used.

    Args:
        names: Folders of runs or comparisons; or learners, as for --learner. Default: all that are installed.
    """
    from vnetsim.api.export import references  # noqa: PLC0415 - keeps --help quick
    from vnetsim.learning.kinds import LEARNERS  # noqa: PLC0415

    folders = [name for name in names if Path(name).is_dir()]
    learners = [name for name in names if name not in folders] if names else LEARNERS.names()
    print("\n\n".join(references([LEARNERS.find(name) for name in learners], folders)))
    return 0


def docs() -> int:
    """Open the documentation in a browser: tutorial, how-to pages, explanations, glossary."""
    import webbrowser  # noqa: PLC0415 - keeps --help quick

    package = Path(__file__).parents[1]
    found = [path for path in (package / "documentation.html", package.parent / "site/index.html") if path.is_file()]
    if not found:
        raise InputError(f"no documentation is built here: `make docs` in {package.parent} builds it into site/.")
    print(found[0])
    webbrowser.open(found[0].as_uri())
    return 0


def init(folder: Path, /) -> int:
    """Copy the shipped scenarios into a folder, to run and to change.

    Args:
        folder: Folder to fill; made when missing, must be empty.
    """
    from vnetsim.scenario.shipped import FIRST, copy_scenarios  # noqa: PLC0415 - keeps --help quick

    for path in copy_scenarios(folder):
        print(plain(str(path)))
    tell(f"next: vnetsim run {shlex.quote(str(folder / FIRST))}")
    return 0


def new(kind: Literal["learner"], name: str, /) -> int:
    """Write NAME.py into this folder: a working learner, class NAME, with state in silos and server, to change.

    Args:
        kind: What to write: learner.
        name: Name of the class and, with .py, of the file.
    """
    from vnetsim.scenario.shipped import copy_learner  # noqa: PLC0415 - keeps --help quick

    assert kind == "learner"
    file = copy_learner(name)
    print(file)
    tell(f"next: vnetsim run gaussian --learner {file}:{name}")
    return 0
