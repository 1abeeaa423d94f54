"""Checkpoints: what was saved comes back, bit for bit; damage is named."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from received import reseal
from safetensors.torch import save

from vnetsim.errors import InputError
from vnetsim.learning import AGGREGATOR, HandoverEffects, ModelKey, Participant
from vnetsim.runs.checkpoint import Checkpoint, FinishedRound, TrainingHistory, digest
from vnetsim.storage.folder import Folder, disk

ROUND = FinishedRound(participants="abc", rejected=(1,), weights=(0.1, None), losses=(1 / 3, 2.0), metrics={"a": 0.7})
PROGRESS = TrainingHistory(initial={"knn": 0.1}, rounds=(ROUND, ROUND))
STATE = {"model.w": torch.linspace(0, 1, 7), "n": torch.tensor(3)}


def test_many_rounds_are_written_once_and_come_back(tmp_path):
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
    for content, words in ((b'{"rounds": [{"participants": "a", "weights": 3}]}', "rounds.0.weights: "), (b"", "")):
        Folder(tmp_path).put({"checkpoint/rounds-000064.json": content})
        with pytest.raises(InputError, match=rf"rounds-000064\.json: .*{words}"):
            Checkpoint(Folder(tmp_path)).load()
    block.unlink()
    with pytest.raises(InputError, match=r"rounds-000064\.json: gone since it was written"):
        Checkpoint(Folder(tmp_path)).load()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool, torch.int64])
def test_a_state_of_any_type_is_written_as_safetensors_does(dtype, tmp_path):
    weight = torch.arange(120).reshape(5, 2, 3, 4).to(dtype)
    state = {"plain": weight, "scalar": torch.tensor(1, dtype=dtype), "none": weight[:0]}
    state["turned"] = torch.ones(2, 3, dtype=dtype).T
    state["last"] = weight.to(memory_format=torch.channels_last, copy=True)
    state["grad"] = torch.ones(2, requires_grad=True)
    Checkpoint(Folder(tmp_path)).save(PROGRESS, state)
    content = {name: tensor.detach().contiguous().clone() for name, tensor in state.items()}
    assert (tmp_path / "checkpoint" / "state-000002.safetensors").read_bytes() == save(content)
    back = Checkpoint(Folder(tmp_path)).load()[1]
    assert all(torch.equal(back[name], tensor) and back[name].dtype == tensor.dtype for name, tensor in state.items())


def test_a_kill_between_the_two_writes_leaves_the_previous_round(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("damage", ["cut", "gone", "foreign"])
@pytest.mark.parametrize("pattern", ["state-*", "silo-3-*", "progress.json"])
def test_damage_is_named(tmp_path, pattern, damage):
    Checkpoint(Folder(tmp_path)).save(PROGRESS, {"silo.3.w": torch.arange(4.0), **STATE})
    (path,) = (tmp_path / "checkpoint").glob(pattern)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5] if damage == "cut" else b"[]")
    for told in (True, False):
        if not told:
            reseal(tmp_path)
        with pytest.raises(InputError, match=f"checkpoint/{path.name}: ") as caught:
            Checkpoint(Folder(tmp_path)).load()
        assert "\n" not in str(caught.value)


def test_the_digest_tells_participants_apart():
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

    untold = dict.fromkeys(("download_s", "train_s", "upload_s", "stay_s"), 0.0)
    assert digest([one()]) == digest([one(**untold, neighbours=0, work_share=1.0)])
    others = [], [one(), one()], [one(speed_mps=9.000000001)], [one(work_share=0.5)], [one(work_share=0.25)]
    assert len({digest([one()]), *map(digest, others)}) == 6
    # the digest of earlier versions: their checkpoints can be resumed
    carried = HandoverEffects(
        counted_from=2, carried="change", mixed=((0.5, ModelKey("s", 2)),), bases=(ModelKey("r", 1), ModelKey("s", 2))
    )
    assert digest([one(handover=carried)]) == "3c05dbdc2ee9eeff7cbe2e7c20c6c06b850994378b73de9eb33781f5c7c90420"


def silo_files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("silo-*")}


def test_silo_and_aggregator_are_written_when_one_of_their_tensors_is_another_object(tmp_path, monkeypatch):
    written: list[str] = []
    replace = disk.replace

    def watched(source: Path, target: Path) -> None:
        written.append(target.name)
        replace(source, target)

    monkeypatch.setattr(disk, "replace", watched)
    checkpoint = Checkpoint(Folder(tmp_path))
    own = {f"{name}/{tensor}": torch.ones(3) for name in ("a/b", "c") for tensor in ("model.w", "round")}
    first = {"silo.0.w": torch.zeros(3), "silo.12.w": torch.ones(3), **own, **STATE}
    assert not checkpoint.exists
    checkpoint.save(TrainingHistory(initial={}), first)
    assert checkpoint.exists
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
    assert len(list((tmp_path / "checkpoint").glob("state-*"))) == 1
    progress, state = Checkpoint(Folder(tmp_path)).load()
    assert progress == PROGRESS
    assert state.keys() == second.keys()
    assert all(torch.equal(state[name], second[name]) for name in second)


def test_a_resumed_checkpoint_has_the_same_files(tmp_path):
    """File names follow from content, so that a run that was resumed leaves the same folder."""
    state = {"silo.3.w": torch.arange(4.0), **STATE}
    checkpoint = Checkpoint(Folder(tmp_path))
    checkpoint.save(TrainingHistory(initial={}), state)
    names = silo_files(tmp_path / "checkpoint")
    again = Checkpoint(Folder(tmp_path))
    _, loaded = again.load()
    again.save(PROGRESS, loaded)
    assert silo_files(tmp_path / "checkpoint") == names
