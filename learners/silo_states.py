"""What belongs to the silos: models and optimizers that stay with the data when another vehicle carries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from learners.global_model import State, alike, misfit


@dataclass(frozen=True, kw_only=True, eq=False)
class SiloState:
    """One silo's tensors, on the CPU, never changed in place.

    Args:
        shared: its model, the part that other silos' are mixed with; empty where the model is the RSU's.
        own: what never leaves it.
    """

    shared: State = field(default_factory=dict)
    own: State = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, under ``shared.*`` and ``own.*``."""
        return {f"{part}.{name}": tensor for part in ("shared", "own") for name, tensor in getattr(self, part).items()}


class SiloStates:
    """The states of the silos that took part so far; the others have none and take no room.

    Args:
        silos: number of silos.
    """

    def __init__(self, silos: int) -> None:
        self._silos = silos
        self._states: dict[int, SiloState] = {}

    def __getitem__(self, silo: int) -> SiloState:
        """Return a silo's state, an empty one before its first round."""
        return self._states.get(silo, SiloState())

    def __setitem__(self, silo: int, state: SiloState) -> None:
        self._states[silo] = state

    @property
    def visited(self) -> dict[int, SiloState]:
        """The states there are, by silo, in ascending order."""
        return dict(sorted(self._states.items()))

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``silo.I.shared.*`` and ``silo.I.own.*``; a silo without news returns the same objects again."""
        return {
            f"silo.{silo}.{name}": tensor
            for silo, state in self.visited.items()
            for name, tensor in state.tensors.items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor], template: SiloState) -> None:
        """Restore what ``state_dict`` returned.

        Args:
            tensors: the tensors.
            template: names, shapes and types of the tensors that a silo may have.

        Raises:
            InputError: when the tensors are not of this learner.
        """
        known = template.tensors
        parts: dict[int, dict[str, dict[str, Tensor]]] = {}
        for key, tensor in tensors.items():
            owner, _, name = key.removeprefix("silo.").partition(".")
            fits = key.startswith("silo.") and owner.isdecimal() and int(owner) < self._silos
            if not (fits and name in known and alike(tensor, known[name])):
                raise misfit(key)
            part, _, name = name.partition(".")
            parts.setdefault(int(owner), {"shared": {}, "own": {}})[part][name] = tensor
        for silo, state in parts.items():
            missing = template.shared.keys() - state["shared"].keys()
            if state["shared"] and missing:
                raise misfit(f"silo.{silo}.shared.{min(missing)}")
        self._states = {silo: SiloState(**state) for silo, state in parts.items()}
