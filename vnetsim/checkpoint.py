"""Checkpoints: after every round, everything a killed run needs to go on to the same bits.

Only results of learning are kept. Timing never depends on weights, so a resumed run simulates traffic and radio again
from the start, takes the recorded results for the rounds that were finished, and trains from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError
from vnetsim.learning import Participant
from vnetsim.run_directory import write_atomically


@dataclass(frozen=True, kw_only=True)
class FinishedRound:
    """The results of one round.

    Args:
        participants: digest of the participants it trained, so that a resumed simulation is checked against it.
        rejected: positions of the non-finite updates among the participants.
        weights: weight of each participant in the aggregate, None where rejected.
        losses: mean training loss of each participant.
        metrics: what aggregation and evaluation reported.
        exchanges: sender, receiver and the learner's figure for exchanges between vehicles.
    """

    participants: str
    rejected: tuple[int, ...] = ()
    weights: tuple[float | None, ...] = ()
    losses: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    exchanges: tuple[tuple[str, str, float], ...] = ()


def digest(participants: Sequence[Participant]) -> str:
    """Return a fingerprint of who takes part and with what."""
    return hashlib.sha256(json.dumps([asdict(p) for p in participants], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a checkpoint holds besides the learner's state.

    Args:
        initial: metrics of the untrained model.
        rounds: the finished rounds, in order.
    """

    initial: Mapping[str, float]
    rounds: tuple[FinishedRound, ...] = ()


class Checkpoint:
    """The newest finished round, in ``folder``.

    The state is written under a new name before ``progress.json`` names it, so a kill at any instant leaves a pair
    that belongs together.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def exists(self) -> bool:
        """Whether a round (or the untrained model) was saved."""
        return (self.folder / "progress.json").is_file()

    def save(self, progress: Progress, state: Mapping[str, Any]) -> None:
        """Write learner state and progress.

        Raises:
            RunError: disk full or folder not writable; the previous checkpoint stays.
        """
        from safetensors.torch import save  # noqa: PLC0415 - brings torch, which the traffic commands never load

        content = save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})
        name = f"state-{len(progress.rounds):06d}.safetensors"
        write_atomically(self.folder / name, content)
        record = {**asdict(progress), "state": name, "sha256": hashlib.sha256(content).hexdigest()}
        write_atomically(self.folder / "progress.json", json.dumps(record).encode())
        for old in self.folder.glob("state-*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)

    def load(self) -> tuple[Progress, dict[str, Any]]:
        """Return what ``save`` wrote.

        Raises:
            InputError: missing, damaged or altered.
        """
        from safetensors.torch import load  # noqa: PLC0415

        path = self.folder / "progress.json"
        cure = "The run cannot be resumed; start it again with `vnetsim run`."
        try:
            record = json.loads(path.read_bytes())
            state_path = self.folder / str(record.pop("state"))
            content = state_path.read_bytes()
            if hashlib.sha256(content).hexdigest() != record.pop("sha256"):
                raise InputError(f"{state_path}: unreadable checkpoint: the file was altered or cut. {cure}")
            rounds = tuple(
                FinishedRound(
                    participants=item["participants"],
                    rejected=tuple(item["rejected"]),
                    weights=tuple(item["weights"]),
                    losses=tuple(item["losses"]),
                    metrics=item["metrics"],
                    exchanges=tuple((sender, receiver, value) for sender, receiver, value in item["exchanges"]),
                )
                for item in record["rounds"]
            )
            return Progress(initial=record["initial"], rounds=rounds), load(content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: unreadable checkpoint: {error}. {cure}") from error
