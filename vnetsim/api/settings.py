"""Convert arguments of the Python API to the settings of the command line, and make experiments from them."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment as Settings
from vnetsim.learning import Learner
from vnetsim.learning.aggregation import AGGREGATIONS
from vnetsim.learning.codecs import CODECS
from vnetsim.learning.conduct import CONDUCTS
from vnetsim.learning.kinds import DATA_SETS, ENCODERS, LEARNERS
from vnetsim.radio import RADIO_MODELS
from vnetsim.runs.assembly import assemble
from vnetsim.runs.effect import with_given
from vnetsim.scenario.settings_file import (
    LAPTOP,
    Override,
    leaves,
    load_experiment,
    read_experiment,
    to_plain,
    with_overrides,
)
from vnetsim.simulation.pace import PACES
from vnetsim.simulation.selection import SELECTIONS

KINDS = (LEARNERS, SELECTIONS, PACES, AGGREGATIONS, RADIO_MODELS, DATA_SETS, ENCODERS, CODECS, CONDUCTS)
_KEYS = ", ".join(kind.key for kind in KINDS)
_TOP = {field.name for field in dataclasses.fields(Settings)}
_DEFAULT = Settings(scenario="gaussian")
_OF_LEARNERS = ("lr", "batch", "steps", "momentum", "encoder", "clip_norm", "weight_decay")  # of most learners
_OTHER_WORDS = {
    "batch_size": ("learning__batch",),
    "data_download": ("data__download",),
    "data_root": ("data__root",),
    "epochs": ("learning__steps", "rounds"),
    "learning_rate": ("learning__lr",),
}
"""For hints: settings by their names in PyTorch and on the command line, except names that only lack a unit."""

Scenario = str | os.PathLike[str] | Settings
Rsus = str | Sequence[str] | None
SettingTree = Mapping[str, Any]
"""Settings by dotted key, ``{"round.quorum": 10}``, or as tables, ``{"round": {"quorum": 10}}``."""


def path_of(value: object, argument: str = "scenario") -> str:
    """Return a path or a scenario's name as text; InputError, naming ``argument``, if it is neither text nor a path."""
    if isinstance(value, str | os.PathLike) and isinstance(text := os.fspath(value), str):
        return text_of(text, argument)
    raise InputError(f"{argument}: expected a path or a name, got {value!r}.")


def text_of(value: object, argument: str) -> str:
    """Return ``value`` if it is text without NUL and lone surrogates; InputError, naming ``argument``, for others."""
    if not isinstance(value, str):
        raise InputError(f"{argument}: expected a text, got {value!r}.")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{argument}: {value!r} has characters that no name can have.")
    return value


def folder_of(out: object) -> Path | None:
    """Return the folder ``out``, None for None; InputError if it is no path."""
    return None if out is None else Path(path_of(out, "out"))


def join_values(values: Any, convert: Callable[[Any], str], argument: str, example: str) -> str | None:
    """Return one value or several, each converted, joined by commas; None and a text are returned unchanged.

    InputError, naming ``argument`` and an ``example``, for other types than text, int, class and iterable.
    """
    if values is None or isinstance(values, str):
        return values
    if not isinstance(values, Integral | type | Iterable):
        raise InputError(f"{argument}: expected one, or several such as {example}, got {values!r}.")
    return ",".join(map(convert, values if isinstance(values, Iterable) else [values]))


def learner_name(learner: object) -> str:
    """Return the name of a learner that is given by name or as a class; InputError for other types."""
    return LEARNERS.name_of(learner) if isinstance(learner, type) else text_of(learner, "learners")


def overrides_of(settings: SettingTree | None, *, rsu: Rsus = None, **given: object) -> list[Override]:
    """Return (split key, value) of each setting: first those in ``settings``, then the keywords that are not None.

    ``rsu`` is ``traffic.rsu``; a keyword has a dot or two underscores between table and key. InputError: ``settings``
    is no mapping, a key is not text or lacks its table, or a class is given for a setting that takes none.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"settings: expected a mapping such as {{'round.quorum': 10}}, got {settings!r}.")
    if rsu is not None:
        given["traffic.rsu"] = [rsu] if isinstance(rsu, str) else rsu
    named = {key.replace("__", "."): value for key, value in given.items() if value is not None}
    of_tree = [_with_full_path(path, value, ".") for path, value in leaves(_to_toml(settings or {})).items()]
    return of_tree + [_with_full_path(path, value, "__") for path, value in leaves(_to_toml(named)).items()]


def drop_objects(overrides: Sequence[Override], keys: Mapping[str, object]) -> list[Override]:
    """Return the overrides without tables that ``keys`` gives as dataclasses, whose defaults nobody chose."""
    whole = {key for key, value in keys.items() if dataclasses.is_dataclass(value)}
    return [(path, value) for path, value in overrides if path[0] not in whole]


def _with_full_path(path: tuple[str, ...], value: Any, joint: str) -> Override:
    """Return a setting, ``selection=CLASS`` as ``selection.name=NAME``; InputError, hint with ``joint``: no table."""
    key = ".".join(path)
    kind = next((kind for kind in KINDS if key in (kind.key, kind.table)), None)
    if kind is not None and isinstance(value, str | type):
        return tuple(kind.key.split(".")), kind.name_of(value) if isinstance(value, type) else value
    if isinstance(value, type):
        raise InputError(f"{key}: expected a value, got the class {value.__name__}; classes may be given for {_KEYS}.")
    if len(path) == 1 and key not in _TOP:
        tables = {table: getattr(_DEFAULT, table) for table in sorted(_TOP)}
        meant = [
            f"{table}__{name}"
            for table, value in tables.items()
            for name in (key, f"{key}_s", f"{key}_m")
            if dataclasses.is_dataclass(value) and hasattr(value, name)
        ]
        meant += [f"learning__{key}"] if key in _OF_LEARNERS else _OTHER_WORDS.get(key, ())
        if meant:
            meant = [name.replace("__", joint) for name in meant]
            raise InputError(f"unknown setting '{key}'. Did you mean {' or '.join(meant)}?")
    return path, value


def _to_toml(value: Any) -> Any:
    """Return a value or tree of values with TOML's types where possible; InputError: a key or text is malformed."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = to_plain(value)
    if isinstance(value, Mapping):
        return {text_of(key, "settings"): _to_toml(below) for key, below in value.items()}
    if isinstance(value, str):
        return text_of(value, "settings")
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence):
        return [_to_toml(one) for one in value]
    return value


class Experiment(Settings):
    """Everything that decides a run's result, complete and checked, as the command line would make it.

    Settings come, in increasing priority, from general defaults, the learner's defaults, the file if ``scenario`` is a
    TOML file, and the arguments. Its attributes are the keys of an ``experiment.toml``: ``rounds``, ``round.quorum``,
    ``learning["lr"]``. It cannot be changed; ``dataclasses.replace`` makes a new one, in which all settings count as
    set explicitly.

    Args:
        scenario: a ``.sumocfg``, an FCD recording, ``"gaussian"``, an experiment ``.toml`` or a run directory.
        settings: by dotted key or as tables, see ``vnetsim.run``.
        trust: whether a run directory may name code that is run.
        keys: further settings, such as ``learner="fedefm"`` or ``round__quorum=10``.

    Raises:
        InputError: a key or the learner is unknown, or a value has the wrong type or is out of bounds.

    Examples:
        >>> import vnetsim
        >>> experiment = vnetsim.Experiment("gaussian", learner="fedefm", round__quorum=2)
        >>> experiment.round.quorum, experiment.silos.count, experiment.data.partition
        (2, 20, 'label-skew')
        >>> vnetsim.Experiment(rounds="many")
        Traceback (most recent call last):
        vnetsim.errors.InputError: rounds: expected a whole number, got 'many'.
    """

    def __init__(
        self,
        scenario: str | os.PathLike[str] = "gaussian",
        *,
        settings: SettingTree | None = None,
        trust: bool = False,
        **keys: Any,
    ) -> None:
        overrides = overrides_of(settings, **keys)
        made, learner = read_experiment(path_of(scenario), overrides, trust=trust)
        assembly = assemble(made, learner)  # its plug-ins check their settings
        if not keys.keys() | {"scenario"} >= _TOP:  # dataclasses.replace passes all keys, also defaults
            with_given(assembly, path_of(scenario), drop_objects(overrides, keys))
        for field in dataclasses.fields(made):
            object.__setattr__(self, field.name, getattr(made, field.name))


def experiment_of(
    scenario: str | os.PathLike[str] | Settings,
    overrides: Sequence[Override],
    *,
    learns: bool = True,
    trust: bool = False,
    scale: str = LAPTOP,
) -> tuple[Settings, type[Learner] | None]:
    """Return the experiment for a caller's arguments, and the class of its learner.

    Without ``learns``, neither learner nor its defaults are loaded; the class is then None, as for a ``scenario`` that
    is an experiment. InputError as for ``Experiment``, or if an experiment is given with a scale or another learner.
    """
    if not isinstance(scenario, Settings):
        if not learns:
            return load_experiment(path_of(scenario), overrides), None
        return read_experiment(path_of(scenario), overrides, trust=trust, scale=scale)
    if scale != LAPTOP:
        raise InputError(f"scale: an Experiment has all of its settings already; give its file or name with '{scale}'.")
    for path, value in overrides:
        if path == ("learner",) and value != scenario.learner:
            raise InputError(f"learner: the experiment has {scenario.learner}; make another Experiment for {value}.")
    return with_overrides(scenario, overrides), None


def deadline_of(time_limit_s: float | None) -> float:
    """Return ``time.monotonic()`` at the end of a time limit (s), infinity for None; InputError: no number above 0."""
    if time_limit_s is None:
        return math.inf
    number = isinstance(time_limit_s, int | float) and not isinstance(time_limit_s, bool)
    if not (number and time_limit_s > 0):
        raise InputError(f"--time-limit: expected a number of seconds above 0, got {time_limit_s!r}.")
    return time.monotonic() + time_limit_s


def call_of(name: str, scenario: Scenario, out: object, named: Sequence[tuple[tuple[str, ...], Any]]) -> list[str]:
    """Return the text of a call of ``vnetsim.NAME`` as a list of one, as the manifest records commands."""
    what = scenario.scenario if isinstance(scenario, Settings) else str(scenario)
    settings: Mapping[str, Any] = {".".join(path): value for path, value in named}
    where = "" if out is None else f", out={str(out)!r}"
    return [f"vnetsim.{name}({what!r}{where}, settings={dict(settings)!r})"]
