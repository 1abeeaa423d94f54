"""The models of every aggregator by version: the newest, and older ones that vehicles started from."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from learners.data.moving import to_device
from learners.engines.programs import State
from vnetsim.learning import AGGREGATOR, ModelKey


class Models:
    """The sequence theta^0, theta^1, ... of each aggregator, as far as staleness and the simulator need it.

    Args:
        initial: theta^0 of all aggregators; not copied.
        max_staleness: how many versions older than the newest one a base model may be.
        not_of_model: prefixes of the tensors that belong to a version but not to its model.
        aggregators: their names.

    Attributes:
        needed: models that are kept however old, until the simulator names others.
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
        self._saved: dict[str, dict[str, Tensor]] = {}

    @property
    def aggregators(self) -> list[str]:
        """The names of the aggregators."""
        return list(self._kept)

    def __getitem__(self, key: ModelKey) -> State:
        """Return a model, not to be changed in place; KeyError if it is too old or does not exist yet."""
        return self._kept[key.aggregator][key.version]

    def versions(self, aggregator: str = AGGREGATOR) -> list[int]:
        """Return the versions of an aggregator's model that are still kept, in ascending order."""
        return sorted(self._kept[aggregator])

    def newest(self, aggregator: str = AGGREGATOR) -> State:
        """Return an aggregator's newest model; not to be changed in place."""
        return self[ModelKey(aggregator, self.versions(aggregator)[-1])]

    def add(self, state: State, aggregator: str = AGGREGATOR) -> None:
        """End an aggregator's round: ``state`` becomes its next version; see ``put``."""
        self.put(state, ModelKey(aggregator, self.versions(aggregator)[-1] + 1))

    def put(self, state: State, key: ModelKey) -> None:
        """Store ``state`` as the model ``key``, which replaces or follows the aggregator's newest. It is not copied.

        Models that are older than ``max_staleness`` allows and not ``needed`` are dropped.
        """
        aggregator, version = key
        models = {**self._kept[aggregator], version: state}
        oldest = version - self._max_staleness
        self._kept[aggregator] = {
            v: s for v, s in models.items() if v >= oldest or ModelKey(aggregator, v) in self.needed
        }
        self._saved.pop(aggregator, None)

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``model.*``, ``snapshot.V.*`` for older versions V, and ``round``, as independent tensors on the CPU.

        Tensors not of the model have no ``model.`` in their name; see ``named`` for other aggregators. Unchanged
        aggregators return the same tensor objects again.
        """
        for aggregator in self._kept.keys() - self._saved.keys():
            self._saved[aggregator] = self._tensors(aggregator)
        return {name: tensor for aggregator in self._kept for name, tensor in self._saved[aggregator].items()}

    def _tensors(self, aggregator: str) -> dict[str, Tensor]:
        """Return CPU copies of an aggregator's kept models and the newest ``round``, named as in ``state_dict``."""
        kept, newest = self._kept[aggregator], max(self._kept[aggregator])
        tensors = {named("round", aggregator): torch.tensor(newest)}
        for version, state in kept.items():
            prefix = "model." if version == newest else f"snapshot.{version}."
            for name, tensor in to_device(state, torch.device("cpu")).items():
                beside = version == newest and name.startswith(self._not_of_model)
                tensors[named(name if beside else f"{prefix}{name}", aggregator)] = tensor.clone()
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore what ``state_dict`` returned, given by aggregator with plain names, on the models' device.

        KeyError if a model lacks its version, ValueError if it has other tensors than the present ones.
        """
        self._kept = {aggregator: self._restore(own) for aggregator, own in tensors.items()}
        self._saved = {}

    def _restore(self, tensors: Mapping[str, Tensor]) -> dict[int, State]:
        """Return one aggregator's models by version; KeyError without ``round``, ValueError for other names, shapes."""
        newest, device = int(tensors["round"]), next(iter(self.initial.values())).device
        models: dict[int, dict[str, Tensor]] = {newest: {}}
        for key in tensors.keys() - {"round"}:
            version, name = newest, key
            if not key.startswith(self._not_of_model):
                kind, _, name = key.partition(".")
                if kind == "snapshot":
                    of, _, name = name.partition(".")
                    version = int(of)
            models.setdefault(version, {})[name] = tensors[key].to(device, copy=True)
        wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in self.initial.items()}
        for version, state in models.items():
            if {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()} != wanted:
                raise ValueError(f"its model of version {version} has other tensors than this learner's")
        # in the order of the model's names
        return {version: {name: state[name] for name in wanted} for version, state in sorted(models.items())}


def named(name: str, aggregator: str) -> str:
    """Return a tensor's name in a learner's state; for the single aggregator over all RSUs it has no prefix."""
    return name if aggregator == AGGREGATOR else f"{aggregator}/{name}"


def by_aggregator(tensors: Mapping[str, Tensor], aggregators: Collection[str]) -> dict[str, dict[str, Tensor]]:
    """Return each aggregator's tensors with plain names, the inverse of ``named``; ValueError for a tensor of none."""
    found: dict[str, dict[str, Tensor]] = {name: {} for name in aggregators}
    for key, tensor in tensors.items():
        # one aggregator's name may be a prefix of another's
        beginnings = [named("", name) for name in aggregators if key.startswith(named("", name))]
        if not beginnings:
            raise ValueError(f"'{key}' is of no aggregator")
        owner = max(beginnings, key=len).removesuffix("/") or AGGREGATOR
        found[owner][key.removeprefix(max(beginnings, key=len))] = tensor
    return found
