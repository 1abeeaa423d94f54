"""Checkpoints: after every round, everything a killed run needs to go on to the same bits.

Only results of learning are kept. Timing never depends on weights, so a resumed run simulates traffic and radio again
from the start, takes the recorded results for the rounds that were finished, and trains from there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError
from vnetsim.learning import Participant
from vnetsim.run_directory import write_atomically

_SILO = re.compile(r"silo\.(\d+)\.")
_CURE = "The run cannot be resumed; start it again with `vnetsim run`."


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


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file of tensors and its content's hash."""

    name: str
    sha256: str


class Checkpoint:
    """The newest finished round, in ``folder``.

    The state is written under a new name before ``progress.json`` names it, so a kill at any instant leaves files
    that belong together. What belongs to a silo (``silo.N.*``) has a file of its own, named by its content and written
    only when a tensor is another object than at the last call: a round changes few of many silos.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._silos: dict[str, tuple[dict[str, Any], _File]] = {}

    @property
    def exists(self) -> bool:
        """Whether a round (or the untrained model) was saved."""
        return (self.folder / "progress.json").is_file()

    def save(self, progress: Progress, state: Mapping[str, Any]) -> None:
        """Write learner state and progress.

        Raises:
            RunError: disk full or folder not writable; the previous checkpoint stays.
        """
        shared: dict[str, Any] = {}
        silos: dict[str, dict[str, Any]] = {}
        for name, tensor in state.items():
            owner = _SILO.match(name)
            (silos.setdefault(owner[1], {}) if owner else shared)[name] = tensor
        files = {}
        for silo, tensors in silos.items():
            known, file = self._silos.get(silo, ({}, None))
            if (
                file is None
                or known.keys() != tensors.keys()
                or any(known[name] is not tensors[name] for name in known)
            ):
                file = self._write(tensors, f"silo-{silo}-{{hash}}.safetensors")
                self._silos[silo] = tensors, file
            files[silo] = file
        main = self._write(shared, f"state-{len(progress.rounds):06d}.safetensors")
        record = {
            **asdict(progress),
            "state": main.name,
            "sha256": main.sha256,
            "silos": {silo: [file.name, file.sha256] for silo, file in files.items()},
        }
        write_atomically(self.folder / "progress.json", json.dumps(record).encode())
        used = {main.name, *(file.name for file in files.values())}
        for old in self.folder.glob("*.safetensors"):
            if old.name not in used:
                old.unlink(missing_ok=True)

    def _write(self, tensors: Mapping[str, Any], name: str) -> _File:
        """Write tensors under ``name``, in which ``{hash}`` stands for their content; return what was written."""
        from safetensors.torch import save  # noqa: PLC0415 - brings torch, which the traffic commands never load

        content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        sha256 = hashlib.sha256(content).hexdigest()
        file = _File(name=name.format(hash=sha256[:16]), sha256=sha256)
        if "{hash}" not in name or not (self.folder / file.name).is_file():
            write_atomically(self.folder / file.name, content)
        return file

    def _read(self, file: _File) -> dict[str, Any]:
        from safetensors.torch import load  # noqa: PLC0415

        path = self.folder / file.name
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise InputError(f"{path}: unreadable checkpoint: the file was altered or cut. {_CURE}")
        tensors: dict[str, Any] = load(content)
        return tensors

    def load(self) -> tuple[Progress, dict[str, Any]]:
        """Return what ``save`` wrote.

        Raises:
            InputError: missing, damaged or altered.
        """
        path = self.folder / "progress.json"
        try:
            record = json.loads(path.read_bytes())
            state = self._read(_File(name=str(record["state"]), sha256=record["sha256"]))
            for name, sha256 in record["silos"].values():
                state.update(self._read(_File(name=str(name), sha256=sha256)))
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
            return Progress(initial=record["initial"], rounds=rounds), state
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: unreadable checkpoint: {error}. {_CURE}") from error
