"""What a caller in Python gives, as the paths and values that the command line gives; and experiments made of them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment as Settings
from vnetsim.learning import Learner
from vnetsim.learning.aggregation import AGGREGATIONS
from vnetsim.learning.kinds import DATA_SETS, ENCODERS, LEARNERS
from vnetsim.plugins import is_given, short_name
from vnetsim.radio import RADIO_MODELS
from vnetsim.runs.assembly import assemble
from vnetsim.runs.effect import with_given
from vnetsim.scenario.settings_file import (
    LAPTOP,
    leaves,
    load_experiment,
    read_experiment,
    to_plain,
    with_overrides,
)
from vnetsim.simulation.pace import PACES
from vnetsim.simulation.selection import SELECTIONS

Override = tuple[tuple[str, ...], Any]

KINDS = (LEARNERS, SELECTIONS, PACES, AGGREGATIONS, RADIO_MODELS, DATA_SETS, ENCODERS)
_KEYS = ", ".join(kind.key for kind in KINDS)
_TOP = {field.name for field in dataclasses.fields(Settings)}
_DEFAULT = Settings(scenario="gaussian")
_OF_LEARNERS = ("lr", "batch", "steps", "momentum", "encoder", "clip_norm", "weight_decay")
"""Settings that most learners have."""
_OTHER_WORDS = {
    "batch_size": ("learning__batch",),
    "data_download": ("data__download",),
    "data_root": ("data__root",),
    "epochs": ("learning__steps", "rounds"),
    "learning_rate": ("learning__lr",),
}
"""Settings by what PyTorch's users and the options of the command line call them; units are added below."""

SettingTree = Mapping[str, Any]
"""Settings by dotted key, ``{"round.quorum": 10}``, or as tables, ``{"round": {"quorum": 10}}``."""


def path_of(scenario: object, what: str = "scenario") -> str:
    """Return a scenario, or another path, as text.

    Raises:
        InputError: it is neither text nor a path.
    """
    if isinstance(scenario, str | os.PathLike):
        text = os.fspath(scenario)
        if isinstance(text, str):
            return text_of(text, what)
    raise InputError(f"{what}: expected a path or a name, got {scenario!r}.")


def text_of(value: object, what: str) -> str:
    """Return a text that can be a name: one that can be written, without the character NUL.

    Raises:
        InputError: it is none.
    """
    if not isinstance(value, str):
        raise InputError(f"{what}: expected a text, got {value!r}.")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{what}: {value!r} has characters that no name can have.")
    return value


def folder_of(out: object) -> Path | None:
    """Return the folder that was asked for, None for none.

    Raises:
        InputError: it is no path.
    """
    return None if out is None else Path(path_of(out, "out"))


def learners_of(learners: str | Iterable[str | type] | None) -> str | None:
    """Return learners, by name or as classes, as the option ``--learners`` names them."""
    if learners is None or isinstance(learners, str):
        return learners
    if not isinstance(learners, Iterable):
        raise InputError(f"learners: expected names such as ['flsimco', 'fedavg'], got {learners!r}.")
    names = [LEARNERS.name_of(one) if isinstance(one, type) else text_of(one, "learners") for one in learners]
    return ",".join(names)


def seeds_of(seeds: str | int | Iterable[int] | None) -> str | None:
    """Return seeds as the option ``--seeds`` names them."""
    if seeds is None or isinstance(seeds, str):
        return seeds
    if isinstance(seeds, int):
        return str(seeds)
    if isinstance(seeds, Iterable):
        return ",".join(str(seed) for seed in seeds)
    raise InputError(f"seeds: expected numbers such as range(8), got {seeds!r}.")


def overrides_of(settings: SettingTree | None, **given: object) -> list[Override]:
    """Return settings as paths and values: those of ``settings``, then keywords; keywords that are None are left out.

    A keyword joins table and key by a dot or by two underscores.

    Raises:
        InputError: ``settings`` is no mapping, or a key no text.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"settings: expected a mapping such as {{'round.quorum': 10}}, got {settings!r}.")
    named = {key.replace("__", "."): value for key, value in given.items() if value is not None}
    of_tree = [_placed(path, value, ".") for path, value in leaves(_plain(settings or {})).items()]
    return of_tree + [_placed(path, value, "__") for path, value in leaves(_plain(named)).items()]


def chosen_by_name(overrides: Sequence[Override], keys: Mapping[str, object]) -> list[Override]:
    """Return the overrides but those of tables that a keyword gives as an object, which names all of its settings."""
    whole = {key for key, value in keys.items() if dataclasses.is_dataclass(value)}
    return [(path, value) for path, value in overrides if path[0] not in whole]


def _placed(path: tuple[str, ...], value: Any, joint: str) -> Override:
    """Return a setting at its place: ``selection="oort"`` names what ``selection.name`` does, and so does a class.

    ``data="cifar10"`` and ``radio="constant"`` name what ``data.name`` and ``radio.name`` do.
    """
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


def _plain(value: Any) -> Any:
    """Return a value, or a tree of them, as TOML would give it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = to_plain(value)
    if isinstance(value, Mapping):
        return {text_of(key, "settings"): _plain(below) for key, below in value.items()}
    if isinstance(value, str):
        return text_of(value, "settings")
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence):
        return [_plain(one) for one in value]
    return value


class Experiment(Settings):
    """Everything that decides a run's result, resolved and checked: what the command line would make of the same.

    General defaults come first, then the learner's own, then the file that ``scenario`` may be, then what is given.
    Its attributes are those of an ``experiment.toml``: ``rounds``, ``learner``, ``round.quorum``, ``learning["lr"]``.
    It cannot be changed; ``dataclasses.replace`` makes another one, in which everything counts as given.

    Args:
        scenario: a ``.sumocfg``, an FCD recording, ``"gaussian"``, an experiment ``.toml`` or a run directory.
        settings: by dotted key or as tables, see ``vnetsim.run``.
        trust: whether a run directory may name code that is run.
        keys: further settings, ``learner="fedefm"`` or ``round__quorum=10``.

    Raises:
        InputError: an unknown key, a value of the wrong type or out of its bounds, an unknown learner.

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
        assembly = assemble(made, learner)  # refuses what any of its plug-ins does not take
        if not keys.keys() | {"scenario"} >= _TOP:  # dataclasses.replace gives all of them, chosen or not
            with_given(assembly, path_of(scenario), chosen_by_name(overrides, keys))
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
    """Return the experiment for what a caller gave, and the class of its learner where it was looked at.

    Args:
        scenario: see ``Experiment``; or an experiment, which is taken as it is, with ``overrides`` on top.
        overrides: paths and values.
        learns: whether a learner is looked at.
        trust: see ``Experiment``.
        scale: see ``vnetsim.run``.

    Raises:
        InputError: see ``Experiment``; or another learner, or a scale, for an experiment.
    """
    if not isinstance(scenario, Settings):
        text = path_of(scenario)
        return (
            read_experiment(text, overrides, trust=trust, scale=scale)
            if learns
            else (load_experiment(text, overrides), None)
        )
    if scale != LAPTOP:
        raise InputError(f"scale: an Experiment has all of its settings already; give its file or name with '{scale}'.")
    for path, value in overrides:
        if path == ("learner",) and value != scenario.learner:
            raise InputError(f"learner: the experiment has {scenario.learner}; make another Experiment for {value}.")
    return with_overrides(scenario, overrides), None


def refuse_given_classes(experiments: Iterable[Settings]) -> None:
    """Refuse plug-ins that are classes of this process, which its workers do not have."""
    for experiment in experiments:
        for key, name in experiment.plugins().items():
            if is_given(name):
                raise InputError(
                    f"{key}: {short_name(name)} is a class of this process, which its workers do not have; put it in a "
                    "file and name it as path/to/file.py:CLASS, or leave workers at 1."
                )
