"""The global model by round: the current one, and older ones that vehicles still in flight started from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from learners.data.moving import moved
from vnetsim.errors import InputError, RunError

State = Mapping[str, Tensor]


class GlobalModel:
    """The sequence theta^0, theta^1, ...: as much of it as staleness needs.

    Args:
        initial: theta^0; kept, not copied.
        max_staleness: how many rounds older than the current one a base model may be.
        not_of_model: beginnings of the names of tensors that belong to a round and not to its model.
    """

    def __init__(self, initial: State, *, max_staleness: int, not_of_model: tuple[str, ...] = ()) -> None:
        self._models = {0: initial}
        self._max_staleness = max_staleness
        self._not_of_model = not_of_model
        self.round = 0

    @property
    def current(self) -> State:
        """The model of the round now open; not to be changed in place."""
        return self._models[self.round]

    @property
    def rounds(self) -> list[int]:
        """The rounds whose models are kept, in ascending order."""
        return sorted(self._models)

    def at(self, base_round: int) -> State:
        """Return the model that round ``base_round`` started with.

        Raises:
            RunError: when it is too old or not there yet.
        """
        if base_round not in self._models:
            known = f"{min(self._models)} to {self.round}"
            raise RunError(f"no global model of round {base_round}: those of rounds {known} are kept.")
        return self._models[base_round]

    def advance(self, state: State) -> None:
        """End the round: ``state`` is the next round's model. It is kept, not copied."""
        self.round += 1
        self._models[self.round] = state
        self._models = {r: s for r, s in self._models.items() if r >= self.round - self._max_staleness}

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``model.*``, ``snapshot.R.*`` for older rounds R, and ``round``, as independent tensors on the CPU.

        What is not the model's has no ``model.`` before its name.
        """
        tensors = {"round": torch.tensor(self.round)}
        for r, state in self._models.items():
            prefix = "model." if r == self.round else f"snapshot.{r}."
            for name, tensor in moved(state, torch.device("cpu")).items():
                own = r == self.round and name.startswith(self._not_of_model)
                tensors[name if own else f"{prefix}{name}"] = tensor.clone()
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned, on the device of the present model.

        Raises:
            InputError: when the tensors are not those of this model.
        """
        template = self.current
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
        self.round = int(tensors["round"])
        self._models = {self.round if owner == "model" else int(owner): state for owner, state in models.items()}


def _split(key: str) -> tuple[str, str]:
    """Return whose tensor a key names, ``"model"`` or the round of a snapshot, and its name in the model."""
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
