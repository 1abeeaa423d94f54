"""What a comparison is to run: names, seeds, cells and their hashes."""

from dataclasses import replace
from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.scenario.settings_file import parse_override
from vnetsim.study.plan import Cell, parse_names, parse_seeds
from vnetsim.study.resolve import plan


@pytest.mark.parametrize(
    ("text", "seeds"), [("0:3", [0, 1, 2]), ("7:8", [7]), ("0,3,7", [0, 3, 7]), ("5", [5]), (" 1 : 3 ", [1, 2])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "3:3", "4:2", "a:b", ":3", "0:", "-1:2", "1.5", "1,,2", "1,1", "0:1:2", "0:9999999"]
)
def test_seeds_refused(text: str) -> None:
    with pytest.raises(InputError, match="--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["", "fedavg", "fedavg,fedavg", "a.py:Mine,b.py:Mine"])
def test_learners_refused(text: str) -> None:
    with pytest.raises(InputError, match="--learners"):
        parse_names(text)


def planned(*overrides: str, learners: str = "flsimco,fedco", scenario: str = "gaussian") -> list[Cell]:
    return list(plan(scenario, parse_names(learners), [0, 1], [parse_override(text) for text in overrides]).cells)


def test_every_learner_at_every_seed() -> None:
    cells = planned()
    assert [(cell.learner, cell.experiment.seed) for cell in cells] == [
        ("flsimco", 0),
        ("fedco", 0),
        ("flsimco", 1),
        ("fedco", 1),
    ]
    assert len({cell.folder("traffic") for cell in cells}) == 4


def test_the_folder_tells_what_decides_the_result() -> None:
    cell = planned()[0]
    name = cell.folder("traffic")
    assert name.startswith("flsimco-seed0-")
    assert name == planned("learning.batch=64" if cell.experiment.learning["batch"] == 64 else "rounds=20")[0].folder(
        "traffic"
    ), "a default that is spelt out is the same experiment"
    assert name != cell.folder("other traffic")
    assert name != planned("round.quorum=6")[0].folder("traffic")
    assert name != planned("learning.batch=17")[0].folder("traffic")
    named = replace(cell, arm="Eq. 11", condition="non-IID, \u00fcber 100 km/h")
    assert named.folder("traffic") == name.replace("flsimco", "Eq.-11-non-IID-ber-100-km-h")


def test_a_learners_own_file_counts_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (Path(__file__).resolve().parents[2] / "scenarios" / "fedprox.py").read_text()
    names = []
    for folder, text in (("a", source), ("b", source), ("c", source + "\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fedprox.py").write_text(text)
        monkeypatch.chdir(tmp_path / folder)
        names.append(planned(learners="fedprox.py:FedProx,fedavg")[0].folder("traffic"))
    assert names[0] == names[1] != names[2]


def test_settings_of_one_learner_go_to_it_alone() -> None:
    ours, theirs = planned("learning.queue=64")[:2]
    assert "queue" not in ours.experiment.learning
    assert theirs.experiment.learning["queue"] == 64


@pytest.mark.parametrize(
    ("overrides", "learners", "message"),
    [
        (["learning.bath=3"], "flsimco,fedavg", "learning: unknown key 'bath'. Did you mean 'batch'"),
        (["learning.batch=many"], "flsimco,fedavg", "learning.batch: expected a whole number"),
        (["learning.batch=0"], "flsimco,fedavg", "batch"),
        (["seed=3"], "flsimco,fedavg", "--set seed: a comparison takes --seeds"),
        (["learner=fedco"], "flsimco,fedavg", "--set learner: a comparison takes --learners"),
        (["round.quorun=3"], "flsimco,fedavg", "unknown key 'quorun'"),
        ([], "flsimco,fedavgg", "unknown learner 'fedavgg'. Did you mean 'fedavg'?"),
        ([], "flsimco,cdl,fedavg", "flsimco, fedavg: contrastive; cdl: steering"),
    ],
)
def test_wrong_input_is_named_before_anything_runs(overrides: list[str], learners: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        planned(*overrides, learners=learners)
    assert message in str(refused.value)


def test_settings_of_the_experiment_file_are_fitted_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('scenario = "gaussian"\nrounds = 7\n[learning]\nqueue = 32\nbatch = 9\n')
    ours, theirs = planned(scenario=str(file))[:2]
    assert (ours.experiment.rounds, ours.experiment.learning["batch"]) == (7, 9)
    assert theirs.experiment.learning["queue"] == 32
