"""Checkpoints: at the end of a round, everything a killed run needs to go on to the same bits.

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
from typing import Any, TypeVar

from vnetsim.errors import InputError
from vnetsim.learning import Participant
from vnetsim.storage.checksums import sha256
from vnetsim.storage.folder import Folder
from vnetsim.storage.structure import structured

T = TypeVar("T")

FOLDER = "checkpoint"
_PROGRESS = f"{FOLDER}/progress.json"
BLOCK_ROUNDS = 64
"""So many finished rounds have a file of their own, which is written once: the work of saving does not grow."""
_OWNER = re.compile(r"silo\.(\d+)\.|(.+/)")
"""Beginning of the name of what belongs to a silo, or to one of several aggregators."""
_CURE = "the run cannot be resumed; start it again with `vnetsim run`."


@dataclass(frozen=True, kw_only=True)
class FinishedRound:
    """The results of one round, or of one average of several aggregators' models.

    Args:
        participants: digest of the participants it trained, so that a resumed simulation is checked against it.
        rejected: positions of the non-finite updates among the participants.
        weights: weight of each participant in the aggregate, None where rejected.
        losses: mean training loss of each participant.
        metrics: what aggregation and evaluation reported.
        exchanges: sender, receiver and the learner's figure for exchanges between vehicles.
        mixing: whether it is an average.
        figures: what the selection policy asked of each update; empty where it asks nothing.
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
    """Return a fingerprint of who takes part and with what."""
    return hashlib.sha256(json.dumps([asdict(one) for one in participants], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class TrainingHistory:
    """What a checkpoint holds besides the learner's state.

    Args:
        initial: metrics of the untrained model.
        rounds: the finished rounds, in order.
    """

    initial: Mapping[str, float]
    rounds: tuple[FinishedRound, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Block:
    """``rounds-000000.json`` and so on."""

    rounds: tuple[FinishedRound, ...]


@dataclass(frozen=True, kw_only=True)
class _Progress(_Block):
    """``progress.json``: what follows the blocks, and the names of all that belongs to it."""

    initial: dict[str, float]
    blocks: list[str]
    state: str
    parts: dict[str, str]


def copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a learner's state as it is now; what belongs to a silo or an aggregator is never changed in place."""
    return {name: tensor if _OWNER.match(name) else tensor.clone() for name, tensor in state.items()}


class Checkpoint:
    """The newest round that was saved, in the folder ``checkpoint`` of a run directory.

    Results of rounds stand in ``progress.json`` until they fill a file of their own, ``rounds-000000.json`` and so on.
    The state is written under a new name before ``progress.json`` names it, so a kill at any instant leaves files
    that belong together. What belongs to a silo (``silo.N.*``), or to one of several aggregators (``NAME/*``), has a
    file of its own, named by its content and written only when a tensor is another object than at the last call: a
    round changes few of many silos, and one aggregator.
    """

    def __init__(self, run: Folder) -> None:
        self._run = run
        self.folder = run.path / FOLDER
        self._parts: dict[str, tuple[dict[str, Any], str]] = {}

    @property
    def exists(self) -> bool:
        """Whether a round (or the untrained model) was saved."""
        return self._run.holds(_PROGRESS)

    def save(self, progress: TrainingHistory, state: Mapping[str, Any]) -> None:
        """Write learner state and progress.

        Raises:
            RunError: disk full or folder not writable; the previous checkpoint stays.
        """
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
        """Return the states and silos that no checkpoint names any more."""
        return [f"{FOLDER}/{path.name}" for path in self.folder.glob("*.safetensors") if path.name not in used]

    def load(self) -> tuple[TrainingHistory, dict[str, Any]]:
        """Return what ``save`` wrote.

        Raises:
            InputError: missing, damaged or altered.
        """
        from safetensors import SafetensorError  # noqa: PLC0415
        from safetensors.torch import load  # noqa: PLC0415 - brings torch, which the traffic commands never load

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
        self._run.put({}, remove=self._unused({Path(name).name for name in names}))  # a kill may have come before that
        return TrainingHistory(initial=record.initial, rounds=tuple(rounds)), state

    def _read(self, name: str, kind: type[T]) -> T:
        try:
            value = json.loads(self._run.read_bytes(f"{FOLDER}/{name}"))
            return structured(self.folder / name, value, kind)
        except InputError as error:
            raise InputError(f"{error} It belongs to the checkpoint: without it, {_CURE}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.folder / name}: unreadable checkpoint: {error}; {_CURE}") from error


def _bytes(tensors: Mapping[str, Any]) -> bytes:
    from safetensors.torch import save  # noqa: PLC0415 - see Checkpoint.load

    content: bytes = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    return content
