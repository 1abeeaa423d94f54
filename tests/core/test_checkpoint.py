"""Checkpoints: what was saved comes back, bit for bit; damage is named."""

from pathlib import Path

import pytest
import torch

import vnetsim.checkpoint as checkpoint_module
from vnetsim.checkpoint import Checkpoint, FinishedRound, Progress, digest
from vnetsim.errors import InputError
from vnetsim.learning import Participant

ROUND = FinishedRound(participants="abc", rejected=(1,), weights=(0.1, None), losses=(1 / 3, 2.0), metrics={"a": 0.7})
PROGRESS = Progress(initial={"knn": 0.1}, rounds=(ROUND, ROUND))
STATE = {"model.w": torch.linspace(0, 1, 7), "n": torch.tensor(3)}


def test_progress_and_state_come_back_bit_for_bit(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert not checkpoint.exists
    checkpoint.save(PROGRESS, STATE)
    progress, state = checkpoint.load()
    assert checkpoint.exists
    assert progress == PROGRESS
    assert all(torch.equal(state[name], STATE[name]) for name in STATE)
    assert state.keys() == STATE.keys()


def test_only_the_newest_state_stays(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(Progress(initial={}), STATE)
    checkpoint.save(PROGRESS, STATE)
    assert len(list(tmp_path.glob("state-*"))) == 1


def test_a_kill_between_the_two_writes_leaves_the_previous_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(Progress(initial={"knn": 0.1}), STATE)

    def killed(path: Path, content: bytes) -> None:
        if path.name == "progress.json":
            raise KeyboardInterrupt
        path.write_bytes(content)

    monkeypatch.setattr("vnetsim.checkpoint.write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(PROGRESS, {"model.w": torch.zeros(1)})
    progress, state = checkpoint.load()
    assert progress == Progress(initial={"knn": 0.1})
    assert torch.equal(state["model.w"], STATE["model.w"])


@pytest.mark.parametrize("damage", ["cut state", "no state", "cut progress", "no progress", "foreign progress"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(PROGRESS, STATE)
    state = next(tmp_path.glob("state-*"))
    record = tmp_path / "progress.json"
    if damage == "cut state":
        state.write_bytes(state.read_bytes()[:-5])
    elif damage == "no state":
        state.unlink()
    elif damage == "cut progress":
        record.write_bytes(record.read_bytes()[:-5])
    elif damage == "no progress":
        record.unlink()
    else:
        record.write_text("[]")
    with pytest.raises(InputError, match="unreadable checkpoint") as caught:
        checkpoint.load()
    assert "\n" not in str(caught.value)


def test_the_digest_tells_participants_apart() -> None:
    def one(**changes: object) -> Participant:
        values = {"round": 1, "base_round": 1, "vehicle_id": "v", "rsu_id": "r", "silo": 0, "speed_mps": 9.0}
        return Participant(**{**values, "level_px": 1.0, **changes})

    assert digest([one()]) == digest([one()])
    digests = {digest([one()]), digest([]), digest([one(), one()]), digest([one(speed_mps=9.000000001)])}
    assert len(digests) == 4


def silo_files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("silo-*")}


def test_a_silo_is_written_when_one_of_its_tensors_is_another_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = checkpoint_module.write_atomically

    def watched(path: Path, content: bytes) -> None:
        written.append(path.name)
        write(path, content)

    monkeypatch.setattr(checkpoint_module, "write_atomically", watched)
    checkpoint = Checkpoint(tmp_path)
    first = {"silo.0.w": torch.zeros(3), "silo.12.w": torch.ones(3), **STATE}
    checkpoint.save(Progress(initial={}), first)
    before = silo_files(tmp_path)
    assert len(before) == 2
    written.clear()
    second = {**first, "silo.12.w": torch.full((3,), 7.0)}
    checkpoint.save(PROGRESS, second)
    assert [name.split("-")[:2] for name in written if name.startswith("silo")] == [["silo", "12"]]
    assert len(silo_files(tmp_path) - before) == 1
    assert len(silo_files(tmp_path)) == 2
    progress, state = Checkpoint(tmp_path).load()
    assert progress == PROGRESS
    assert state.keys() == second.keys()
    assert all(torch.equal(state[name], second[name]) for name in second)


def test_a_resumed_checkpoint_has_the_same_files(tmp_path: Path) -> None:
    """File names follow from content, so that a run that was resumed leaves the same folder."""
    state = {"silo.3.w": torch.arange(4.0), **STATE}
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(Progress(initial={}), state)
    names = silo_files(tmp_path)
    again = Checkpoint(tmp_path)
    _, loaded = again.load()
    again.save(PROGRESS, loaded)
    assert silo_files(tmp_path) == names


def test_a_damaged_silo_is_named(tmp_path: Path) -> None:
    Checkpoint(tmp_path).save(PROGRESS, {"silo.3.w": torch.arange(4.0), **STATE})
    (path,) = tmp_path.glob("silo-3-*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"silo-3-.*altered or cut"):
        Checkpoint(tmp_path).load()
    path.unlink()
    with pytest.raises(InputError, match="unreadable checkpoint"):
        Checkpoint(tmp_path).load()
