"""Reads experiment settings from TOML files and ``--set`` overrides, and writes them as TOML."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from vnetsim.errors import InputError, RunError, unknown_name
from vnetsim.errors.paths import from_folder
from vnetsim.experiment import (
    ALL_ROUNDS,
    DEFAULT_NAMES,
    PLUGIN_KEYS,
    PLUGIN_TABLES,
    WHOLE_TABLES,
    DataSettings,
    Experiment,
)
from vnetsim.learning import Learner
from vnetsim.learning.kinds import DATA_DEFAULTS, DATA_SETS, LEARNERS
from vnetsim.plugins import at_folder, code_file, short_name
from vnetsim.scenario.kinds import scenario_at
from vnetsim.scenario.trust import refuse_code
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import parse_toml, read_toml, structure


def _field_names(kind: Any) -> set[str]:
    """Return the names of a settings class's fields, without a field that collects all other keys (``BESIDE``)."""
    return {field.name for field in dataclasses.fields(kind) if not field.metadata}


_OF_ALL_SETS = _field_names(DataSettings)
"""Settings in the table ``data`` that all data sets share; the others belong to one data set."""

Key = tuple[str, ...]
"""The path of a setting: its dotted key, split."""
Settings = dict[Key, Any]
"""Settings by path, as ``leaves`` returns them."""
Override = tuple[Key, Any]
"""A setting: its path and its value."""

LAPTOP = "laptop"
"""The scale of all defaults."""
SCALED = ("learning", "encoder", "data")
"""Tables that a scale may set: what is trained, never what is timed."""

_SCENARIO, _ROUNDS = ("scenario",), ("rounds",)
_PLUGINS: Mapping[str, Key] = {key: tuple(key.split(".")) for key in PLUGIN_KEYS}


def parse_override(text: str) -> Override:
    """Return ``("table", "key")`` and value of ``table.key=value``, text if not TOML; InputError without = or a key."""
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise InputError(f"--set {text}: write it as table.key=value, for example --set round.quorum=10.")
    try:
        return path, parse_toml(f"value = {value}")["value"]
    except ValueError:
        return path, value.strip()


def _with_value(values: Settings, path: Key, value: Any) -> Settings:
    """Return settings with ``value`` for all at or below ``path``; ``{}`` replaces none outside ``WHOLE_TABLES``."""
    others = {key: old for key, old in values.items() if key[: len(path)] != path}
    new = leaves({path[-1]: value}, path[:-1])
    if len(others) == len(values) or (path in values and path in new):
        return {**values, **new}
    return values if value == {} and path not in WHOLE_TABLES else others | new


def to_tables(values: Settings, where: str = "") -> dict[str, Any]:
    """Return settings as nested tables; InputError, beginning with ``where``, if a value has settings below it."""
    result: dict[str, Any] = {}
    for path, value in sorted(values.items(), key=lambda setting: len(setting[0])):  # values before what is below them
        table = result
        for key in path[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                problem = f"{'.'.join(path)}: '{key}' is a value, not a table."
                raise InputError(f"{where}: {problem}" if where else problem)
        table[path[-1]] = dict(value) if isinstance(value, Mapping) else value
    return result


def leaves(table: Mapping[str, Any], above: Key = ()) -> Settings:
    """Return the settings of nested tables by path, which starts with ``above``; quoted dotted keys count as unquoted.

    An empty table, and a table that is one value (``WHOLE_TABLES``), is returned as a value.
    """
    found: Settings = {}
    for key, value in table.items():
        path = (*above, *key.split("."))
        nested = isinstance(value, Mapping) and len(value) > 0 and path not in WHOLE_TABLES
        found |= leaves(value, path) if nested else {path: value}
    return found


def keys_in_file(scenario: str) -> set[str]:
    """Return the dotted keys that an experiment file (.toml) sets; InputError if it cannot be read.

    Empty for other scenarios, and for a file with more than half of all settings: vnetsim wrote that, not the user.
    """
    found = leaves(read_toml(Path(scenario))) if Path(scenario).suffix == ".toml" else {}
    return set() if names_most(found) else {".".join(path) for path in found}


def names_most(settings: Iterable[Key]) -> bool:
    """Return whether these are more than half of all settings, as in a run's record or a frozen benchmark."""
    every = _general_defaults()
    return 2 * len(every.keys() & set(settings)) > len(every)


@functools.cache
def _general_defaults() -> Settings:
    """Return the defaults of all settings by path, except those that are None; do not change the result."""
    return leaves(to_plain(Experiment(scenario="")))


def to_plain(settings: Any) -> dict[str, Any]:
    """Return a settings object as nested dictionaries of TOML values, without None and empty tables of plug-ins.

    A data set's own settings are returned in the table ``data`` itself, not in ``own``.
    """

    def plain(value: Any) -> Any:
        """Return tuples as lists, and tables without keys that are None, at any depth; other values as they are."""
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items() if item is not None}
        return list(value) if isinstance(value, tuple) else value

    result: dict[str, Any] = plain(dataclasses.asdict(settings))
    data = result.get("data", {}) if isinstance(settings, Experiment) else result
    data |= data.pop("own", {}) if isinstance(settings, Experiment | DataSettings) else {}
    if isinstance(settings, Experiment):
        return {key: value for key, value in result.items() if value or key not in PLUGIN_TABLES}
    return result


def to_toml(experiment: Experiment) -> str:
    """Return all settings of an experiment as TOML; ``load_experiment`` reads back an equal experiment."""
    return tomli_w.dumps(to_plain(experiment))


def learner_defaults(learner: type[Learner]) -> dict[str, Any]:
    """Return a learner's own defaults by dotted key; RunError for a table, or keys of scenario, learner or learning."""
    given: Mapping[str, Any] = getattr(learner, "defaults", {})
    wrong = f"learner '{learner.name}': its own defaults are wrong"
    for key, value in given.items():
        if key.partition(".")[0] in ("scenario", "learner", "learning"):
            raise RunError(f"{wrong}: {key} is not among what they may set.")
        if isinstance(value, Mapping):
            raise RunError(f"{wrong}: {key}: expected dotted keys, got the table {value!r}.")
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


def learner_scale(learner: type[Learner], scale: str) -> dict[str, Any]:
    """Return the settings of one of a learner's scales, by dotted key; ``laptop`` has none by default. See ``Learner``.

    InputError if the learner has no such scale, RunError for a key outside the tables learning, encoder and data.
    """
    scales: Mapping[str, Mapping[str, Any]] = {LAPTOP: {}, **getattr(learner, "scales", {})}
    if scale not in scales:
        raise InputError(f"--scale {scale}: the learner {learner.name} has no such scale, but {', '.join(scales)}.")
    for key in scales[scale]:
        if key.partition(".")[0] not in SCALED:
            wrong = f"learner '{learner.name}': its scale '{scale}' is wrong"
            raise RunError(f"{wrong}: {key} is not among what it may set.")
    return dict(scales[scale])


def _with_defaults(values: Settings, defaults: Settings) -> Settings:
    """Return ``values`` with all ``defaults`` for which there is no value at, above or below their path."""
    for path, default in defaults.items():
        table = next((path[:end] for end in range(1, len(path)) if values.get(path[:end], {}) != {}), None)
        if table is None and not any(key[: len(path)] == path for key in values):
            values = {**values, path: default}
    return values


def _with_other_defaults(values: Settings, old: Settings, new: Settings, general: Settings) -> Settings:
    """Return ``values``, those at their ``old`` default set to the ``new`` one; ``general`` has what either lacks."""
    changed = {path for path in {*old, *new} if values.get(path) == old.get(path, general.get(path))}
    return values | {path: new.get(path, general.get(path)) for path in sorted(changed)}


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of the run in a folder; empty if it is missing, unreadable or not a table."""
    try:
        found = RunDirectory(folder).read_json("manifest.json")
    except InputError:  # reading the tables later reports it
        return {}
    return found if isinstance(found, dict) else {}


def _read_settings(scenario: str) -> tuple[Settings, Path | None]:
    """Return settings and file of a TOML file or run, else ``scenario`` and None; InputError if they are faulty."""
    path = Path(scenario)
    if path.suffix == ".toml":
        tables = read_toml(path)
        if "arms" in tables:
            raise InputError(f"{path}: a study, not an experiment; run it with vnetsim compare.")
        named = tables.get("scenario")
        if not isinstance(named, str):
            raise InputError(f'{path}: it must name its traffic: scenario = "..." (or "gaussian").')
        return _with_paths_at({**leaves(tables), _SCENARIO: scenario_at(named, path.parent)}, path.parent), path
    run = RunDirectory(path)
    try:
        is_folder = path.is_dir()
    except OSError as error:  # for example a name that is too long
        raise InputError(f"{scenario}: {error.strerror}.") from None
    if is_folder and run.holds("experiment.toml"):
        return {**_with_paths_at(leaves(run.settings()), path), _SCENARIO: scenario}, path / "experiment.toml"
    return {_SCENARIO: scenario}, None


def _with_paths_at(values: Settings, folder: Path) -> Settings:
    """Return settings from a file in ``folder``, their relative paths joined to it, except that of ``scenario``."""
    values = {path: from_folder(path, value, folder) for path, value in values.items()}
    for key, path in _PLUGINS.items():
        if isinstance(name := values.get(path), str):
            values[path] = at_folder(_with_recorded_path(key, name, folder), folder)
    return values


def _with_recorded_path(key: str, name: str, folder: Path) -> str:
    """Return a plug-in ``file.py:Class`` with the full path that the manifest in ``folder`` has at ``key``, if any."""
    file = code_file(name)
    if file is None or str(file) != file.name:
        return name
    files = _read_manifest(folder).get("plugin_files")
    path = files.get(key) if isinstance(files, dict) else None
    return f"{path}:{short_name(name)}" if isinstance(path, str) and Path(path).name == file.name else name


def _without_code(values: Settings, overrides: Sequence[Override], file: Path) -> Settings:
    """Return a run's settings, downloads off; InputError for a plug-in in a file that ``overrides`` do not replace."""
    given = {path for path, _ in overrides}
    for key, path in _PLUGINS.items():
        if path not in given:
            option = "--learner" if key == "learner" else f"--set {key}"
            refuse_code(file, key, values.get(path), hint=f"--trust, or name another with {option}")
    return {**values, ("data", "download"): False}


def _fit_recording(values: Settings, folder: Path, learner: type[Learner], own: Settings, *, new: bool) -> Settings:
    """Return a run's settings for a learner; if ``new``, old defaults become its ``own``, unknown keys are dropped."""
    record = _read_manifest(folder)
    old = leaves(found) if isinstance(found := record.get("learner_defaults"), dict) else None
    if record.get("kind") == "timing" and values.get(_ROUNDS) == ALL_ROUNDS:
        run = RunDirectory(folder)  # its rounds lasted until the traffic ended
        played = run.read("rounds").height if run.has("rounds") else 0
        rest = {path: value for path, value in values.items() if path != _ROUNDS}
        values = {**rest, _ROUNDS: played} if played else rest
    if new or old is None:
        values = _with_other_defaults(values, old or {}, own, _general_defaults())
    return _without_table(values, "learning", _field_names(learner.Settings)) if new else values


def _without_table(values: Settings, table: str, keep: Collection[str] = ()) -> Settings:
    """Return the settings of all other tables, and those of ``table`` whose names are in ``keep``."""
    return {path: value for path, value in values.items() if path[0] != table or (len(path) > 1 and path[1] in keep)}


def load_experiment(scenario: str, overrides: Sequence[Override] = ()) -> Experiment:
    """Read an experiment without loading its learner, whose settings stay unchecked; for traffic, or a run to resume.

    ``scenario`` is a ``.sumocfg``, an FCD file, ``gaussian``, an experiment ``.toml`` or a run directory. ``overrides``
    replace values of the file, in order. InputError if the file, a key or a value is wrong.
    """
    values, file = _read_settings(scenario)
    return _build(values, overrides, file)


def read_experiment(
    scenario: str, overrides: Sequence[Override] = (), *, trust: bool = False, scale: str = LAPTOP
) -> tuple[Experiment, type[Learner]]:
    """Read an experiment as ``load_experiment`` does, with the defaults of its learner; return it and that class.

    General defaults come first, then the learner's own, then those of the data set, then those of the learner's scale,
    then the file, then ``overrides``.

    A run directory gives its traffic and its settings. With another learner than the recorded one, settings in
    ``learning`` that both learners have are kept, so that the runs compare. A recorded value that is the old learner's
    own default becomes the new learner's default, or the general one; any other value was set by the user and is kept.

    In a recorded run ``scale`` changes the settings that are still at their defaults. Its values of ``data`` apply to
    the learner's own data set only. Without ``trust``, a run directory's ``data.download`` is ignored, and code that it
    names and ``overrides`` do not replace is refused: InputError. InputError also if the file, a key, a value or the
    scale is wrong; RunError if the learner's own defaults, or its scale, have a key that a learner may not set.
    """
    values, file = _read_settings(scenario)
    recorded = file is not None and file.parent == Path(scenario)
    if file is not None and recorded and not trust:
        values = _without_code(values, overrides, file)
    given = dict(overrides)
    before = values.get(("learner",), Experiment.learner)
    name = given.get(("learner",), before)
    if not isinstance(name, str):
        raise InputError(f"learner: expected a string, got {name!r:.60}.")
    learner = LEARNERS.find(name)
    own = leaves(learner_defaults(learner))
    if file is not None and recorded:
        values = _fit_recording(values, file.parent, learner, own, new=name != before)
    scaled = leaves(learner_scale(learner, scale))
    own_data = own.get(("data", "name"), DataSettings.name)
    data = given.get(("data", "name"), values.get(("data", "name")) or own_data)
    if data != own_data:
        scaled = _without_table(scaled, "data")
    if not recorded or data != values.get(("data", "name")):  # a recorded set's settings are the run's
        for path, default in leaves(DATA_DEFAULTS.get(str(values.get(("data", "name"))), {})).items():
            if recorded and values.get(path) == default:  # the other set's, not the user's
                del values[path]
                scaled = {path: own[path], **scaled} if path in own else scaled
        scaled = {**leaves(DATA_DEFAULTS.get(str(data), {})), **scaled}
    if scaled and recorded:
        general = _general_defaults() | leaves({LEARNERS.table: to_plain(learner.Settings())})
        values = _with_other_defaults(values, own, {**own, **scaled}, general)
    values = _with_defaults(values, scaled if recorded else {**own, **scaled})
    try:
        return _build(values, overrides, file), learner
    except InputError as error:
        concerned = [key for path in own if (key := ".".join(path)) in str(error) and path not in given]
        hint = f" The learner has defaults of its own: {', '.join(concerned)}." if concerned else ""
        raise InputError(f"{error}{hint}") from None


def _build(values: Settings, overrides: Sequence[Override], file: Path | None) -> Experiment:
    """Return the experiment of ``values`` with ``overrides``; InputError names ``file`` if ``values`` alone fail."""
    result = _without_replaced_plugins(values, overrides)
    try:
        for path, value in overrides:
            result = _with_value(result, path, value)
        return _build_experiment(result, "")
    except InputError:
        if file is not None:
            _build_experiment(values, str(file))  # if the file itself is wrong, name it and not an option
        raise


def _build_experiment(values: Settings, where: str) -> Experiment:
    """Return the experiment of ``values``; InputError, beginning with ``where``, for an unknown key or wrong value."""
    experiment = structure(to_tables(values, where), Experiment, where)
    data = experiment.data
    if data.own and data.name in DATA_SETS.built_in:
        own = _field_names(DATA_SETS.find(data.name))
        if unknown := sorted(data.own.keys() - own):
            place = f"{where}: {DATA_SETS.table}" if where else DATA_SETS.table
            raise unknown_name("key", unknown[0], own.union(_OF_ALL_SETS), where=place)
    return experiment


def with_overrides(experiment: Experiment, overrides: Sequence[Override]) -> Experiment:
    """Return an experiment with ``overrides``; a replaced plug-in loses its settings. InputError if one is wrong."""
    return _build(leaves(to_plain(experiment)), overrides, None)


def _without_replaced_plugins(values: Settings, overrides: Sequence[Override]) -> Settings:
    """Return ``values`` without the settings of each plug-in that ``overrides`` replace by another one."""
    tables = {(table, "name"): table for table in DEFAULT_NAMES}
    tables |= {("data", "name"): "data", ("learning", "encoder"): "encoder"}
    result = values
    for path, name in overrides:
        former = values.get(path) or DEFAULT_NAMES.get(path[0])
        # the same class of a file may be named by a path relative to another folder
        if path in tables and former and isinstance(name, str) and at_folder(name, Path.cwd()) != former:
            result = _without_table(result, tables[path], _OF_ALL_SETS if path[0] == "data" else ())
    return result
