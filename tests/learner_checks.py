"""What tests of learners ask of states, participants and threads."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from vnetsim.learning import Participant, Peer

State = Mapping[str, torch.Tensor]
FEW = ("flsimco", "fedavg-classification", "cdl")
"""One learner of each task: what `make test` tries laws of all learners on."""


def mark_all_only(learners: Iterable[Any], few: Iterable[str] = FEW) -> list[Any]:
    """Return parameters of a test, names or classes of learners; `make test-all` alone takes those not in ``few``."""
    names = {str(getattr(one, "name", one)): one for one in learners}
    return [
        pytest.param(one, id=name, marks=[] if name in few else [pytest.mark.all_only]) for name, one in names.items()
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread, as engines do: several wait for each other where cores are few."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def equal(a: State, b: State) -> bool:
    """Say whether two states are the same to the bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def of(state: State, prefix: str) -> dict[str, torch.Tensor]:
    """Return the part of a state below ``prefix``, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def model_of(learner: Any) -> dict[str, torch.Tensor]:
    """Return the newest model that a learner saves."""
    return of(learner.state_dict(), "model.")


def resumed(make: Callable[[], Any], play: Callable[[Any, range], None], *, rounds: int, stop: int) -> State:
    """Compare a run with one that stops and goes on from its file, to the bit; return what the file holds."""
    whole, first, second = make(), make(), make()
    play(whole, range(rounds))
    play(first, range(stop))
    assert all(tensor.device.type == "cpu" for tensor in first.state_dict().values())
    saved = load(save(first.state_dict()))
    second.load_state_dict(saved)
    assert equal(second.state_dict(), saved)
    play(second, range(stop, rounds))
    assert equal(second.state_dict(), whole.state_dict())
    assert second.evaluate(final=True) == whole.evaluate(final=True)
    return saved


def peers_of(*others: Participant) -> tuple[Peer, ...]:
    """Return participants as another one meets them."""
    return tuple(Peer(vehicle_id=p.vehicle_id, silo=p.silo, speed_mps=p.speed_mps, level_px=p.level_px) for p in others)
