"""What belongs to the silos: models and optimizers that stay with the data when another vehicle carries it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from learners.state.global_model import State, alike, misfit


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
        template: gives names, shapes and types of the tensors that a silo may have.
        whole: whether a silo that has tensors of its own has all of the template's.
    """

    def __init__(self, silos: int, template: Callable[[], SiloState], *, whole: bool = False) -> None:
        self._silos = silos
        self._template = template
        self._whole = whole
        self._states: dict[int, SiloState] = {}

    def __getitem__(self, silo: int) -> SiloState:
        """Return a silo's state, an empty one before its first round."""
        return self._states.get(silo, SiloState())

    def __setitem__(self, silo: int, state: SiloState) -> None:
        self._states[silo] = state

    @property
    def trained(self) -> dict[int, SiloState]:
        """The states there are, by silo, in ascending order."""
        return dict(sorted(self._states.items()))

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``silo.I.shared.*`` and ``silo.I.own.*``; a silo without news returns the same objects again."""
        return {
            f"silo.{silo}.{name}": tensor
            for silo, state in self.trained.items()
            for name, tensor in state.tensors.items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            InputError: when the tensors are not of this learner.
        """
        template = self._template()
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
            for part, wanted in (("shared", template.shared), ("own", template.own if self._whole else {})):
                missing = wanted.keys() - state[part].keys()
                if missing and (state[part] or part == "own"):
                    raise misfit(f"silo.{silo}.{part}.{min(missing)}")
        self._states = {silo: SiloState(**state) for silo, state in parts.items()}
