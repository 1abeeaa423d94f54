"""The models of every aggregator by version: the newest, and older ones that vehicles still in flight started from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from learners.data.moving import moved
from learners.engines.programs import State
from vnetsim.errors import InputError, RunError
from vnetsim.learning import AGGREGATOR, ModelKey


class Models:
    """The sequence theta^0, theta^1, ... of each aggregator: as much of it as staleness needs.

    An aggregator begins with theta^0 when it is first named.

    Args:
        initial: theta^0; kept, not copied.
        max_staleness: how many versions older than the newest one a base model may be.
        not_of_model: beginnings of the names of tensors that belong to a version and not to its model.
    """

    def __init__(self, initial: State, *, max_staleness: int, not_of_model: tuple[str, ...] = ()) -> None:
        self.initial = initial
        self._max_staleness = max_staleness
        self._not_of_model = not_of_model
        self._kept: dict[str, dict[int, State]] = {AGGREGATOR: {0: initial}}

    @property
    def aggregators(self) -> list[str]:
        """The aggregators there are models of."""
        return list(self._kept)

    def __getitem__(self, key: ModelKey) -> State:
        """Return a model; not to be changed in place.

        Raises:
            RunError: when it is too old or not there yet.
        """
        kept = self._kept.setdefault(key.aggregator, {0: self.initial})
        if key.version not in kept:
            raise RunError(
                f"no model of version {key.version} of aggregator '{key.aggregator}': those of versions {min(kept)} to "
                f"{max(kept)} are kept."
            )
        return kept[key.version]

    def versions(self, aggregator: str = AGGREGATOR) -> list[int]:
        """Return the versions that are kept, in ascending order."""
        return sorted(self._kept.setdefault(aggregator, {0: self.initial}))

    def newest(self, aggregator: str = AGGREGATOR) -> State:
        """Return the model of the round now open; not to be changed in place."""
        return self[ModelKey(aggregator, self.versions(aggregator)[-1])]

    def add(self, state: State, aggregator: str = AGGREGATOR) -> None:
        """End an aggregator's round: ``state`` is its next version. It is kept, not copied."""
        version = self.versions(aggregator)[-1] + 1
        models = {**self._kept[aggregator], version: state}
        self._kept[aggregator] = {v: s for v, s in models.items() if v >= version - self._max_staleness}

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``model.*``, ``snapshot.V.*`` for older versions V, and ``round``, as independent tensors on the CPU.

        What is not the model's has no ``model.`` before its name; see ``named`` for other aggregators.
        """
        tensors = {}
        for aggregator, kept in self._kept.items():
            newest = max(kept)
            tensors[named("round", aggregator)] = torch.tensor(newest)
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
        self._kept = {aggregator: self._restored(own) for aggregator, own in by_aggregator(tensors).items()}

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


def by_aggregator(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return tensors by aggregator, under their plain names: the inverse of ``named``."""
    found: dict[str, dict[str, Tensor]] = {AGGREGATOR: {}}
    for key, tensor in tensors.items():
        aggregator, _, name = key.rpartition("/")
        found.setdefault(aggregator or AGGREGATOR, {})[name] = tensor
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
