"""The models of every aggregator by version: the newest, and older ones that vehicles still in flight started from."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from learners.data.moving import moved
from learners.engines.programs import State
from vnetsim.errors import InputError, RunError
from vnetsim.learning import AGGREGATOR, ModelKey


class Models:
    """The sequence theta^0, theta^1, ... of each aggregator: as much of it as staleness and the simulator need.

    Args:
        initial: theta^0 of all aggregators; kept, not copied.
        max_staleness: how many versions older than the newest one a base model may be.
        not_of_model: beginnings of the names of tensors that belong to a version and not to its model.
        aggregators: their names.

    Attributes:
        needed: models that are kept however old they are.
    """

    def __init__(
        self,
        initial: State,
        *,
        max_staleness: int,
        not_of_model: tuple[str, ...] = (),
        aggregators: Collection[str] = (AGGREGATOR,),
    ) -> None:
        self.initial = initial
        self.needed: Collection[ModelKey] = ()
        self._max_staleness = max_staleness
        self._not_of_model = not_of_model
        self._kept: dict[str, dict[int, State]] = {name: {0: initial} for name in aggregators}
        self._saved: dict[str, tuple[dict[int, State], dict[str, Tensor]]] = {}

    @property
    def aggregators(self) -> list[str]:
        """The names of the aggregators."""
        return list(self._kept)

    def __getitem__(self, key: ModelKey) -> State:
        """Return a model; not to be changed in place.

        Raises:
            RunError: there is no such aggregator, or the model is too old or not there yet.
        """
        kept = self.versions(key.aggregator)
        if key.version not in kept:
            raise RunError(
                f"no model of version {key.version} of aggregator '{key.aggregator}': those of versions {kept[0]} to "
                f"{kept[-1]} are kept."
            )
        return self._kept[key.aggregator][key.version]

    def versions(self, aggregator: str = AGGREGATOR) -> list[int]:
        """Return the versions that are kept, in ascending order.

        Raises:
            RunError: there is no such aggregator.
        """
        if aggregator not in self._kept:
            raise RunError(f"no aggregator '{aggregator}'; there are {', '.join(self._kept)}.")
        return sorted(self._kept[aggregator])

    def newest(self, aggregator: str = AGGREGATOR) -> State:
        """Return the model of the round now open; not to be changed in place."""
        return self[ModelKey(aggregator, self.versions(aggregator)[-1])]

    def add(self, state: State, aggregator: str = AGGREGATOR) -> None:
        """End an aggregator's round: ``state`` is its next version. It is kept, not copied."""
        self.put(state, ModelKey(aggregator, self.versions(aggregator)[-1] + 1))

    def put(self, state: State, key: ModelKey) -> None:
        """Put ``state`` in the place of an aggregator's newest model, or after it. It is kept, not copied.

        Raises:
            RunError: the version is neither.
        """
        aggregator, version = key
        newest = self.versions(aggregator)[-1]
        if version not in (newest, newest + 1):
            raise RunError(
                f"no model of aggregator '{aggregator}' can become version {version}: {newest} is its newest."
            )
        models = {**self._kept[aggregator], version: state}
        oldest = version - self._max_staleness
        self._kept[aggregator] = {
            v: s for v, s in models.items() if v >= oldest or ModelKey(aggregator, v) in self.needed
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``model.*``, ``snapshot.V.*`` for older versions V, and ``round``, as independent tensors on the CPU.

        What is not the model's has no ``model.`` before its name; see ``named`` for other aggregators. Those without
        news return the same objects again.
        """
        for aggregator, kept in self._kept.items():
            of, _ = self._saved.get(aggregator, ({}, {}))
            if of.keys() != kept.keys() or any(of[version] is not state for version, state in kept.items()):
                self._saved[aggregator] = dict(kept), self._tensors(aggregator)
        return {name: tensor for _, tensors in self._saved.values() for name, tensor in tensors.items()}

    def _tensors(self, aggregator: str) -> dict[str, Tensor]:
        kept, newest = self._kept[aggregator], max(self._kept[aggregator])
        tensors = {named("round", aggregator): torch.tensor(newest)}
        for version, state in kept.items():
            prefix = "model." if version == newest else f"snapshot.{version}."
            for name, tensor in moved(state, torch.device("cpu")).items():
                beside = version == newest and name.startswith(self._not_of_model)
                tensors[named(name if beside else f"{prefix}{name}", aggregator)] = tensor.clone()
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned, on the device of the present models.

        Raises:
            InputError: when the tensors are not those of these models.
        """
        parts = by_aggregator(tensors, self._kept)
        self._kept = {aggregator: self._restored(own) for aggregator, own in parts.items()}

    def _restored(self, tensors: Mapping[str, Tensor]) -> dict[int, State]:
        template = self.initial
        models: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            owner, name = ("model", key) if key.startswith(self._not_of_model) else _split(key)
            known = owner == "model" or owner.isdecimal()
            if known and name in template and alike(tensor, template[name]):
                models.setdefault(owner, {})[name] = tensor.to(template[name].device, copy=True)
            elif key != "round":
                raise misfit(key)
        if "round" not in tensors or "model" not in models:
            raise misfit("model")
        for state in models.values():
            if state.keys() != template.keys():
                raise misfit(min(template.keys() - state.keys()))
        newest = int(tensors["round"])
        return {newest if owner == "model" else int(owner): state for owner, state in models.items()}


def named(name: str, aggregator: str) -> str:
    """Return a tensor's name in a learner's state, where the aggregator over all RSUs has the plain names."""
    return name if aggregator == AGGREGATOR else f"{aggregator}/{name}"


def by_aggregator(tensors: Mapping[str, Tensor], aggregators: Collection[str]) -> dict[str, dict[str, Tensor]]:
    """Return each aggregator's tensors under their plain names: the inverse of ``named``.

    Raises:
        InputError: one is of none of them.
    """
    found: dict[str, dict[str, Tensor]] = {name: {} for name in aggregators}
    for key, tensor in tensors.items():
        owners = [name for name in aggregators if key.startswith(named("", name))]
        if not owners:
            raise misfit(key)
        owner = max(owners, key=lambda name: len(named("", name)))
        found[owner][key.removeprefix(named("", owner))] = tensor
    return found


def _split(key: str) -> tuple[str, str]:
    """Return whose tensor a key names, ``"model"`` or the version of a snapshot, and its name in the model."""
    kind, _, name = key.partition(".")
    if kind == "snapshot":
        kind, _, name = name.partition(".")
    return kind, name


def alike(tensor: Tensor, template: Tensor) -> bool:
    """Return whether a tensor has the shape and the type of another."""
    return tensor.shape == template.shape and tensor.dtype == template.dtype


def misfit(key: str) -> InputError:
    """Return the error for saved tensors that are not of this learner, ``key`` the first of them."""
    return InputError(
        f"the saved model does not fit this learner's settings (at '{key}'): use the settings it was saved with."
    )
