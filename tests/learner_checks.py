"""What tests of learners ask of states, participants and threads."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from vnetsim.learning import Participant, Peer

State = Mapping[str, torch.Tensor]


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


def peers_of(*others: Participant) -> tuple[Peer, ...]:
    """Return participants as another one meets them."""
    return tuple(Peer(vehicle_id=p.vehicle_id, silo=p.silo, speed_mps=p.speed_mps, level_px=p.level_px) for p in others)
