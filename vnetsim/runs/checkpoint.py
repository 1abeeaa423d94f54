"""Checkpoints: everything that a stopped run needs to continue with the same results, bit for bit.

Timing never depends on weights, so a checkpoint has only results of learning: a resumed run simulates traffic and radio
again from the start, uses the recorded results of finished rounds, and trains from there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vnetsim.errors import InputError
from vnetsim.learning import Participant
from vnetsim.storage.checksums import sha256
from vnetsim.storage.folder import Folder
from vnetsim.storage.structure import build_record

T = TypeVar("T")

FOLDER = "checkpoint"
_PROGRESS = f"{FOLDER}/progress.json"
BLOCK_ROUNDS = 64
"""Number of finished rounds in one file. It is written only once, so saving does not get slower with more rounds."""
_OWNER = re.compile(r"silo\.(\d+)\.|(.+/)")
"""Prefix of the names of tensors that belong to a silo, or to one of several aggregators."""
_CURE = "the run cannot be resumed; start it again with `vnetsim run`."


@dataclass(frozen=True, kw_only=True)
class FinishedRound:
    """The results of one round, or of one average of several aggregators' models (``mixing``)."""

    participants: str  # digest of participants or averaged models; equal in a resumed simulation
    rejected: tuple[int, ...] = ()  # positions of the non-finite updates among the participants
    weights: tuple[float | None, ...] = ()  # of each participant in the aggregate; None if rejected
    losses: tuple[float, ...] = ()  # mean training loss of each participant
    metrics: Mapping[str, float] = field(default_factory=dict)  # of aggregation and evaluation
    exchanges: tuple[tuple[str, str, float], ...] = ()  # between vehicles: sender, receiver, the learner's number
    mixing: bool = False
    figures: tuple[float | None, ...] = ()  # the value of each update that the selection policy requested; or empty


def digest(participants: Sequence[Participant]) -> str:
    """Return a SHA-256 (hexadecimal) over all fields of the participants, in order, except ``start_s``."""
    rows = [asdict(one) for one in participants]
    for row in rows:
        row.update(row.pop("handover"))  # flat, and without start_s, as in the checkpoints of earlier versions
        del row["start_s"]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class TrainingHistory:
    """A checkpoint without the learner's state: metrics of the untrained model, and finished rounds in order."""

    initial: Mapping[str, float]
    rounds: tuple[FinishedRound, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Block:
    """The content of a file ``rounds-000000.json`` and so on, of ``BLOCK_ROUNDS`` rounds each."""

    rounds: tuple[FinishedRound, ...]


@dataclass(frozen=True, kw_only=True)
class _Progress(_Block):
    """The content of ``progress.json``: ``TrainingHistory.initial``, rounds after the blocks, names of all files."""

    initial: dict[str, float]
    blocks: list[str]
    state: str
    parts: dict[str, str]


def copy_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a learner's state; tensors of silos and named aggregators are shared: they never change."""
    return {name: tensor if _OWNER.match(name) else tensor.clone() for name, tensor in state.items()}


class Checkpoint:
    """The newest saved round, in the folder ``checkpoint`` of a run directory.

    New state files are written before ``progress.json`` names them, so a run may be killed at any time. The tensors of
    a silo (``silo.N.*``), or of one of several aggregators (``NAME/*``), have a file named by its content. It is
    written only if a tensor is another object than at the last call: a round changes few silos and one aggregator.
    """

    def __init__(self, run: Folder) -> None:
        self._run = run
        self.folder = run.path / FOLDER
        self._parts: dict[str, tuple[dict[str, Any], str]] = {}

    @property
    def exists(self) -> bool:
        """Whether a round, or the untrained model, was saved; InputError if the file is gone since."""
        return self._run.holds(_PROGRESS)

    def save(self, progress: TrainingHistory, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by history and learner state; RunError if writing fails, which keeps the old."""
        shared: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for name, tensor in state.items():
            found = _OWNER.match(name)
            (parts.setdefault(found[1] or found[2], {}) if found else shared)[name] = tensor
        main = f"state-{len(progress.rounds):06d}.safetensors"
        files = {f"{FOLDER}/{main}": _to_safetensors(shared)}
        names = {}
        for owner, tensors in parts.items():
            known, name = self._parts.get(owner, ({}, ""))
            if not name or known.keys() != tensors.keys() or any(known[key] is not tensors[key] for key in known):
                content = _to_safetensors(tensors)
                whose = "aggregator" if owner.endswith("/") else f"silo-{owner}"
                name = f"{whose}-{sha256(content)[:16]}.safetensors"
                if not self._run.holds(f"{FOLDER}/{name}"):
                    files[f"{FOLDER}/{name}"] = content
            names[owner] = name
        in_blocks = len(progress.rounds) // BLOCK_ROUNDS * BLOCK_ROUNDS
        blocks = [f"rounds-{first:06d}.json" for first in range(0, in_blocks, BLOCK_ROUNDS)]
        for number, name in enumerate(blocks):
            if not self._run.holds(f"{FOLDER}/{name}"):
                block = [asdict(one) for one in progress.rounds[number * BLOCK_ROUNDS : (number + 1) * BLOCK_ROUNDS]]
                files[f"{FOLDER}/{name}"] = json.dumps({"rounds": block}).encode()
        rounds = [asdict(finished) for finished in progress.rounds[in_blocks:]]
        entries = {"initial": dict(progress.initial), "rounds": rounds, "blocks": blocks}
        record = json.dumps({**entries, "state": main, "parts": names}).encode()
        self._run.put({**files, _PROGRESS: record}, remove=self._find_unused({main, *names.values()}))
        self._parts = {owner: (parts[owner], names[owner]) for owner in parts}

    def _find_unused(self, used: set[str]) -> list[str]:
        """Return the paths, from the run directory, of state files whose names are not in ``used``."""
        return [f"{FOLDER}/{path.name}" for path in self.folder.glob("*.safetensors") if path.name not in used]

    def load(self) -> tuple[TrainingHistory, dict[str, Any]]:
        """Return history and learner state; delete state files not in use. InputError for a missing or damaged file."""
        from safetensors import SafetensorError  # noqa: PLC0415
        from safetensors.torch import load  # noqa: PLC0415 - loads torch, which the traffic commands never need

        path = self.folder / "progress.json"
        if not self.exists:
            raise InputError(f"{path}: unreadable checkpoint: it is missing; {_CURE}")
        record = self._read(path.name, _Progress)
        rounds = [
            *(finished for name in record.blocks for finished in self._read(Path(name).name, _Block).rounds),
            *record.rounds,
        ]
        state: dict[str, Any] = {}
        names = [record.state, *record.parts.values()]
        for name in names:
            file = f"{FOLDER}/{Path(name).name}"
            try:
                state.update(load(self._run.read_bytes(file)))
            except InputError as error:
                raise InputError(f"{error} It belongs to the checkpoint: without it, {_CURE}") from error
            except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
                raise InputError(f"{self.folder / name}: unreadable checkpoint: {error}; {_CURE}") from error
        self._run.put({}, remove=self._find_unused({Path(name).name for name in names}))  # left by a kill during save
        return TrainingHistory(initial=record.initial, rounds=tuple(rounds)), state

    def _read(self, name: str, kind: type[T]) -> T:
        """Return a JSON file of the checkpoint, read into the dataclass ``kind``; InputError if missing or damaged."""
        try:
            value = json.loads(self._run.read_bytes(f"{FOLDER}/{name}"))
            return build_record(self.folder / name, value, kind)
        except InputError as error:
            raise InputError(f"{error} It belongs to the checkpoint: without it, {_CURE}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.folder / name}: unreadable checkpoint: {error}; {_CURE}") from error


def _to_safetensors(tensors: Mapping[str, Any]) -> bytes:
    """Return tensors by name as the content of a safetensors file; the tensors may be on any device."""
    from safetensors import numpy, torch  # noqa: PLC0415 - see Checkpoint.load

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        content: bytes = numpy.save({name: tensor.numpy() for name, tensor in ready.items()})  # five times as fast
    except TypeError:  # NumPy has no bfloat16
        content = torch.save(ready)
    return content
