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
from vnetsim.storage.folder import Folder, sha256
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
    """The results of one round, or of one average of several aggregators' models (``mixing``).

    Args:
        participants: digest of the participants, to check that a resumed simulation has the same ones.
        rejected: positions of the non-finite updates among the participants.
        weights: weight of each participant in the aggregate, None if rejected.
        losses: mean training loss of each participant.
        metrics: metrics of aggregation and evaluation.
        exchanges: (sender, receiver, the learner's number) of exchanges between vehicles.
        mixing: whether it is an average of models.
        figures: of each update, the value that the selection policy requested; empty if it requested none.
    """

    participants: str
    rejected: tuple[int, ...] = ()
    weights: tuple[float | None, ...] = ()
    losses: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    exchanges: tuple[tuple[str, str, float], ...] = ()
    mixing: bool = False
    figures: tuple[float | None, ...] = ()


def digest(participants: Sequence[Participant]) -> str:
    """Return a digest of the participants with all their fields, except ``start_s``."""
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
    """The content of ``rounds-000000.json`` and so on."""

    rounds: tuple[FinishedRound, ...]


@dataclass(frozen=True, kw_only=True)
class _Progress(_Block):
    """The content of ``progress.json``: the rounds after the blocks, and the names of all files of the checkpoint."""

    initial: dict[str, float]
    blocks: list[str]
    state: str
    parts: dict[str, str]


def copy_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a learner's state; tensors of silos and named aggregators are shared: they never change in place."""
    return {name: tensor if _OWNER.match(name) else tensor.clone() for name, tensor in state.items()}


class Checkpoint:
    """The newest saved round, in the folder ``checkpoint`` of a run directory.

    ``progress.json`` has the results of rounds until they fill a file ``rounds-000000.json`` and so on. New state files
    are written before ``progress.json`` names them, so a run may be killed at any time. The tensors of a silo
    (``silo.N.*``), or of one of several aggregators (``NAME/*``), have a file named by its content, which is written
    only if a tensor is another object than at the last call: a round changes only a few silos and one aggregator.
    """

    def __init__(self, run: Folder) -> None:
        self._run = run
        self.folder = run.path / FOLDER
        self._parts: dict[str, tuple[dict[str, Any], str]] = {}

    @property
    def exists(self) -> bool:
        """Whether a round, or the untrained model, was saved."""
        return self._run.holds(_PROGRESS)

    def save(self, progress: TrainingHistory, state: Mapping[str, Any]) -> None:
        """Write learner state and progress; RunError if the disk is full, and the previous checkpoint stays."""
        shared: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for name, tensor in state.items():
            found = _OWNER.match(name)
            (parts.setdefault(found[1] or found[2], {}) if found else shared)[name] = tensor
        main = f"state-{len(progress.rounds):06d}.safetensors"
        files = {f"{FOLDER}/{main}": _bytes(shared)}
        names = {}
        for owner, tensors in parts.items():
            known, name = self._parts.get(owner, ({}, ""))
            if not name or known.keys() != tensors.keys() or any(known[key] is not tensors[key] for key in known):
                content = _bytes(tensors)
                whose = "aggregator" if owner.endswith("/") else f"silo-{owner}"
                name = f"{whose}-{sha256(content)[:16]}.safetensors"
                if not self._run.holds(f"{FOLDER}/{name}"):
                    files[f"{FOLDER}/{name}"] = content
            names[owner] = name
        blocks, first = [], 0
        while len(progress.rounds) - first >= BLOCK_ROUNDS:
            name = f"rounds-{first:06d}.json"
            if not self._run.holds(f"{FOLDER}/{name}"):
                block = [asdict(finished) for finished in progress.rounds[first : first + BLOCK_ROUNDS]]
                files[f"{FOLDER}/{name}"] = json.dumps({"rounds": block}).encode()
            blocks.append(name)
            first += BLOCK_ROUNDS
        rounds = [asdict(finished) for finished in progress.rounds[first:]]
        entries = {"initial": dict(progress.initial), "rounds": rounds, "blocks": blocks}
        record = json.dumps({**entries, "state": main, "parts": names}).encode()
        self._run.put({**files, _PROGRESS: record}, remove=self._unused({main, *names.values()}))
        self._parts = {owner: (parts[owner], names[owner]) for owner in parts}

    def _unused(self, used: set[str]) -> list[str]:
        """Return the state files whose names are not in ``used``, as paths from the run directory."""
        return [f"{FOLDER}/{path.name}" for path in self.folder.glob("*.safetensors") if path.name not in used]

    def load(self) -> tuple[TrainingHistory, dict[str, Any]]:
        """Return what ``save`` wrote, and remove unused state files; InputError if a file is missing or altered."""
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
        self._run.put({}, remove=self._unused({Path(name).name for name in names}))  # left by a kill during save
        return TrainingHistory(initial=record.initial, rounds=tuple(rounds)), state

    def _read(self, name: str, kind: type[T]) -> T:
        """Return a JSON file of the checkpoint as the dataclass ``kind``; InputError if it is missing or damaged."""
        try:
            value = json.loads(self._run.read_bytes(f"{FOLDER}/{name}"))
            return build_record(self.folder / name, value, kind)
        except InputError as error:
            raise InputError(f"{error} It belongs to the checkpoint: without it, {_CURE}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.folder / name}: unreadable checkpoint: {error}; {_CURE}") from error


def _bytes(tensors: Mapping[str, Any]) -> bytes:
    """Return tensors by name as the content of a safetensors file."""
    from safetensors import numpy, torch  # noqa: PLC0415 - see Checkpoint.load

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        arrays = {name: tensor.numpy() for name, tensor in ready.items()}
    except TypeError:  # NumPy has no bfloat16
        content: bytes = torch.save(ready)
    else:
        content = numpy.save(arrays)  # the same bytes in a fifth of the time
    return content
