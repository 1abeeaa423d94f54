"""The models of every aggregator by version: the newest, and older ones that vehicles started from."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from learners.data.moving import to_device
from learners.engines.programs import State
from vnetsim.learning import AGGREGATOR, ModelKey


class Models:
    """The models theta^0, theta^1, ... of each aggregator; old ones are dropped.

    ``initial``, not copied, is theta^0 of all ``aggregators``. Kept are models at most ``max_staleness`` versions older
    than the newest, and those that are ``needed``, which the simulator sets. Tensors whose names begin with one of
    ``not_of_model`` belong to a version but not to its model.
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
        """Return a model, not to be changed in place; KeyError if it was dropped or does not exist yet."""
        return self._kept[key.aggregator][key.version]

    def versions(self, aggregator: str = AGGREGATOR) -> list[int]:
        """Return the versions of an aggregator's model that are still kept, in ascending order."""
        return sorted(self._kept[aggregator])

    def newest(self, aggregator: str = AGGREGATOR) -> State:
        """Return an aggregator's newest model; not to be changed in place."""
        return self[ModelKey(aggregator, self.versions(aggregator)[-1])]

    def add(self, state: State, aggregator: str = AGGREGATOR) -> None:
        """Store ``state``, not copied, as the next version of an aggregator's model; see ``put``."""
        self.put(state, ModelKey(aggregator, self.versions(aggregator)[-1] + 1))

    def put(self, state: State, key: ModelKey) -> None:
        """Store ``state``, not copied, as ``key``, the aggregator's newest or next model; drop models now too old."""
        aggregator, version = key
        models = {**self._kept[aggregator], version: state}
        oldest = version - self._max_staleness
        self._kept[aggregator] = {
            v: s for v, s in models.items() if v >= oldest or ModelKey(aggregator, v) in self.needed
        }
        self._saved.pop(aggregator, None)

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``model.*``, ``snapshot.V.*`` for older versions V, and ``round``, as copies on the CPU.

        Tensors of the newest version that are not of the model, such as ``scaffold.c``, have no prefix ``model.``. With
        several aggregators all names begin with ``aggregator/``. Do not change the copies: an unchanged aggregator
        returns the same ones again.
        """
        for aggregator in self._kept.keys() - self._saved.keys():
            self._saved[aggregator] = self._copy_tensors(aggregator)
        return {name: tensor for aggregator in self._kept for name, tensor in self._saved[aggregator].items()}

    def _copy_tensors(self, aggregator: str) -> dict[str, Tensor]:
        """Return CPU copies of an aggregator's kept models and the newest ``round``, named as in ``state_dict``."""
        kept, newest = self._kept[aggregator], max(self._kept[aggregator])
        tensors = {add_aggregator("round", aggregator): torch.tensor(newest)}
        for version, state in kept.items():
            prefix = "model." if version == newest else f"snapshot.{version}."
            for name, tensor in to_device(state, torch.device("cpu")).items():
                beside = version == newest and name.startswith(self._not_of_model)
                tensors[add_aggregator(name if beside else f"{prefix}{name}", aggregator)] = tensor.clone()
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore what ``state_dict`` returned, split by aggregator, on the models' device.

        KeyError without ``round``, ValueError for other tensors than those of ``initial``.
        """
        self._kept = {aggregator: self._restore(own) for aggregator, own in tensors.items()}
        self._saved = {}

    def _restore(self, tensors: Mapping[str, Tensor]) -> dict[int, State]:
        """Return one aggregator's models by version; KeyError without ``round``, ValueError for other tensors."""
        newest, device = int(tensors["round"]), next(iter(self.initial.values())).device
        models: dict[int, dict[str, Tensor]] = {newest: {}}
        for key in tensors.keys() - {"round"}:
            version, name = newest, key
            if not key.startswith(self._not_of_model):
                kind, _, name = key.partition(".")
                if kind == "snapshot":
                    digits, _, name = name.partition(".")
                    version = int(digits)
            models.setdefault(version, {})[name] = tensors[key].to(device, copy=True)
        wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in self.initial.items()}
        for version, state in models.items():
            if {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()} != wanted:
                raise ValueError(f"its model of version {version} has other tensors than this learner's")
        # in the order of the model's names
        return {version: {name: state[name] for name in wanted} for version, state in sorted(models.items())}


def add_aggregator(name: str, aggregator: str) -> str:
    """Return ``aggregator/name``, a tensor's name in a learner's state; plain for the single aggregator of all RSUs."""
    return name if aggregator == AGGREGATOR else f"{aggregator}/{name}"


def split_by_aggregator(tensors: Mapping[str, Tensor], aggregators: Collection[str]) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of each of ``aggregators`` with plain names; ValueError for a tensor of another one."""
    found: dict[str, dict[str, Tensor]] = {name: {} for name in aggregators}
    for key, tensor in tensors.items():
        # one aggregator's name may be a prefix of another's
        beginnings = [begin for name in aggregators if key.startswith(begin := add_aggregator("", name))]
        if not beginnings:
            raise ValueError(f"'{key}' is of no aggregator")
        owner = max(beginnings, key=len).removesuffix("/") or AGGREGATOR
        found[owner][key.removeprefix(max(beginnings, key=len))] = tensor
    return found
