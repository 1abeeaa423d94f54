"""Checkpoints: what was saved comes back, bit for bit; damage is named."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from received import reseal

from vnetsim.errors import InputError
from vnetsim.learning import AGGREGATOR, ModelKey, Participant
from vnetsim.runs.checkpoint import Checkpoint, FinishedRound, TrainingHistory, digest
from vnetsim.storage.folder import Folder, disk

ROUND = FinishedRound(participants="abc", rejected=(1,), weights=(0.1, None), losses=(1 / 3, 2.0), metrics={"a": 0.7})
PROGRESS = TrainingHistory(initial={"knn": 0.1}, rounds=(ROUND, ROUND))
STATE = {"model.w": torch.linspace(0, 1, 7), "n": torch.tensor(3)}


def test_progress_and_state_come_back_bit_for_bit(tmp_path: Path) -> None:
    checkpoint = Checkpoint(Folder(tmp_path))
    assert not checkpoint.exists
    checkpoint.save(PROGRESS, STATE)
    progress, state = checkpoint.load()
    assert checkpoint.exists
    assert progress == PROGRESS
    assert all(torch.equal(state[name], STATE[name]) for name in STATE)
    assert state.keys() == STATE.keys()


def test_many_rounds_are_written_once_and_come_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint(Folder(tmp_path))
    rounds: list[FinishedRound] = []
    sizes = []
    for number in range(150):
        rounds.append(replace(ROUND, participants=str(number)))
        checkpoint.save(TrainingHistory(initial={"knn": 0.1}, rounds=tuple(rounds)), STATE)
        sizes.append((tmp_path / "checkpoint" / "progress.json").stat().st_size)
    assert max(sizes[64:]) < 1.1 * max(sizes[:64])
    assert len(list((tmp_path / "checkpoint").glob("rounds-*.json"))) == 2
    assert Checkpoint(Folder(tmp_path)).load()[0].rounds == tuple(rounds)
    block = tmp_path / "checkpoint" / "rounds-000064.json"
    for content, words in (
        (b'{"rounds": [{"participants": "a", "weights": 3}]}', "rounds.0.weights: "),
        (b"", ""),
    ):
        Folder(tmp_path).put({"checkpoint/rounds-000064.json": content})
        with pytest.raises(InputError, match=rf"rounds-000064\.json: .*{words}"):
            Checkpoint(Folder(tmp_path)).load()
    block.unlink()
    with pytest.raises(InputError, match=r"rounds-000064\.json: gone since it was written"):
        Checkpoint(Folder(tmp_path)).load()


def test_only_the_newest_state_stays(tmp_path: Path) -> None:
    checkpoint = Checkpoint(Folder(tmp_path))
    checkpoint.save(TrainingHistory(initial={}), STATE)
    checkpoint.save(PROGRESS, STATE)
    assert len(list((tmp_path / "checkpoint").glob("state-*"))) == 1


def test_a_kill_between_the_two_writes_leaves_the_previous_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(Folder(tmp_path))
    checkpoint.save(TrainingHistory(initial={"knn": 0.1}), STATE)

    replace = disk.replace

    def killed(source: Path, target: Path) -> None:
        if target.name == "progress.json":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(disk, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(PROGRESS, {"model.w": torch.zeros(1)})
    progress, state = checkpoint.load()
    assert progress == TrainingHistory(initial={"knn": 0.1})
    assert torch.equal(state["model.w"], STATE["model.w"])


@pytest.mark.parametrize("damage", ["cut state", "no state", "cut progress", "no progress", "foreign progress"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    checkpoint = Checkpoint(Folder(tmp_path))
    checkpoint.save(PROGRESS, STATE)
    state = next((tmp_path / "checkpoint").glob("state-*"))
    record = tmp_path / "checkpoint" / "progress.json"
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
    for told in (True, False):
        if not told:
            reseal(tmp_path)
        with pytest.raises(InputError, match="checkpoint/") as caught:
            Checkpoint(Folder(tmp_path)).load()
        assert "\n" not in str(caught.value)


def test_the_digest_tells_participants_apart() -> None:
    def one(**changes: object) -> Participant:
        values = {
            "round": 1,
            "base": ModelKey(AGGREGATOR, 1),
            "vehicle_id": "v",
            "rsu_id": "r",
            "silo": 0,
            "speed_mps": 9.0,
        }
        return Participant(**{**values, "level_px": 1.0, **changes})

    assert digest([one()]) == digest([one()])
    digests = {digest([one()]), digest([]), digest([one(), one()]), digest([one(speed_mps=9.000000001)])}
    assert len(digests) == 4


def silo_files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("silo-*")}


def test_silo_and_aggregator_are_written_when_one_of_their_tensors_is_another_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    replace = disk.replace

    def watched(source: Path, target: Path) -> None:
        written.append(target.name)
        replace(source, target)

    monkeypatch.setattr(disk, "replace", watched)
    checkpoint = Checkpoint(Folder(tmp_path))
    own = {f"{name}/{tensor}": torch.ones(3) for name in ("a/b", "c") for tensor in ("model.w", "round")}
    first = {"silo.0.w": torch.zeros(3), "silo.12.w": torch.ones(3), **own, **STATE}
    checkpoint.save(TrainingHistory(initial={}), first)
    before = silo_files(tmp_path / "checkpoint")
    assert len(before) == 2
    written.clear()
    second = {**first, "silo.12.w": torch.full((3,), 7.0), "c/model.w": torch.full((3,), 8.0)}
    checkpoint.save(PROGRESS, second)
    assert [name.split("-")[:2] for name in written if name.startswith("silo")] == [["silo", "12"]]
    assert sum(name.startswith("aggregator") for name in written) == 1
    assert len(list((tmp_path / "checkpoint").glob("aggregator-*"))) == 2
    assert len(silo_files(tmp_path / "checkpoint") - before) == 1
    assert len(silo_files(tmp_path / "checkpoint")) == 2
    progress, state = Checkpoint(Folder(tmp_path)).load()
    assert progress == PROGRESS
    assert state.keys() == second.keys()
    assert all(torch.equal(state[name], second[name]) for name in second)


def test_a_resumed_checkpoint_has_the_same_files(tmp_path: Path) -> None:
    """File names follow from content, so that a run that was resumed leaves the same folder."""
    state = {"silo.3.w": torch.arange(4.0), **STATE}
    checkpoint = Checkpoint(Folder(tmp_path))
    checkpoint.save(TrainingHistory(initial={}), state)
    names = silo_files(tmp_path / "checkpoint")
    again = Checkpoint(Folder(tmp_path))
    _, loaded = again.load()
    again.save(PROGRESS, loaded)
    assert silo_files(tmp_path / "checkpoint") == names


def test_a_damaged_silo_is_named(tmp_path: Path) -> None:
    Checkpoint(Folder(tmp_path)).save(PROGRESS, {"silo.3.w": torch.arange(4.0), **STATE})
    (path,) = (tmp_path / "checkpoint").glob("silo-3-*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"silo-3-.*altered or damaged"):
        Checkpoint(Folder(tmp_path)).load()
    path.unlink()
    with pytest.raises(InputError, match=r"silo-3-.*missing"):
        Checkpoint(Folder(tmp_path)).load()


def test_the_fingerprint_tells_how_much_a_vehicle_was_to_do() -> None:
    one = Participant(
        round=3,
        base=ModelKey(AGGREGATOR, 2),
        vehicle_id="a",
        rsu_id="r",
        silo=5,
        speed_mps=12.5,
        level_px=1.5,
        neighbours=1,
    )
    assert len({digest([replace(one, work_share=share)]) for share in (1.0, 0.5, 0.25)}) == 3
