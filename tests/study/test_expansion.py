"""From a study file, or the options of a comparison, to its cells."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.scenario.settings_file import parse_override
from vnetsim.study.levels import seeds_of
from vnetsim.study.plan import Cell, Plan
from vnetsim.study.request import plan_of

Planned = Callable[..., Plan]

ARMS = '[[arms]]\nname = "ours"\nlearner = "flsimco"\n[[arms]]\nlearner = "fedco"\n'
OWN = ARMS.replace('"flsimco"\n', '"flsimco"\nlearning.t_alpha = 0.25\nlearning.batch = 8\n')
CONDITIONS = """
[[conditions]]
name = "IID"
settings.data.partition = "iid"
[[conditions]]
name = "skew"
settings.data = { partition = "dirichlet", alpha = 0.5 }
"""
SELECTING = """
[[arms]]
name = "drawn"
settings.selection.name = "random"
[[arms]]
name = "oldest"
learning.steps = 3
settings = { selection.name = "age", round.quorum = 3 }
[[conditions]]
name = "IID"
settings.round.quorum = 1
settings.data.partition = "iid"
[[conditions]]
name = "skew"
settings.data.partition = "dirichlet"
"""


def planned_without_a_study(
    *options: str, learners: str = "flsimco,fedco", scenario: str = "gaussian", **given: object
) -> Plan:
    return plan_of(scenario, [parse_override(option) for option in options], learners=learners, **given)[0]  # type: ignore[arg-type]


def first(plan: Plan) -> list[Cell]:
    return [cell for cell in plan.cells if cell.experiment.seed == plan.cells[0].experiment.seed]


def labels(plan: Plan) -> list[tuple[str, str]]:
    return [(cell.condition, cell.arm) for cell in first(plan)]


@pytest.mark.parametrize(
    ("text", "seeds"), [("0:3", [0, 1, 2]), ("7:8", [7]), ("0,3,7", [0, 3, 7]), ("5", [5]), (" 1 : 3 ", [1, 2])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert list(seeds_of(text, "--seeds")) == seeds


@pytest.mark.parametrize(
    "text", ["", "3:3", "4:2", "a:b", ":3", "0:", "-1:2", "1.5", "1,,2", "1,1", "0:1:2", "0:9999999"]
)
def test_seeds_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--seeds: "):
        seeds_of(text, "--seeds")


def test_every_learner_at_every_seed_without_a_study(tmp_path: Path) -> None:
    """Settings that one learner knows go to it alone, from an experiment's file as well."""
    file = tmp_path / "mine.toml"
    file.write_text('scenario = "gaussian"\nrounds = 7\n[learning]\nqueue = 32\nbatch = 9\n')
    plan = planned_without_a_study("learning.batch=8", scenario=str(file), seeds="3,5")
    assert [(cell.arm, cell.experiment.seed) for cell in plan.cells] == [
        *(("flsimco", 3), ("fedco", 3), ("flsimco", 5), ("fedco", 5))
    ]
    ours, theirs = (cell.experiment for cell in first(plan))
    assert (ours.rounds, ours.learning["batch"], theirs.learning["batch"], theirs.learning["queue"]) == (7, 8, 8, 32)
    assert "queue" not in ours.learning
    assert len(planned_without_a_study().cells) == 20
    assert (len(plan.traffics), plan.last_evaluations, plan.interval) == (1, 1, "sign-flip")


def test_the_folder_tells_what_decides_the_result() -> None:
    cell = planned_without_a_study().cells[0]
    name = cell.folder("traffic")
    assert name.startswith("flsimco-seed0-")
    assert name == planned_without_a_study("round.quorum=3").cells[0].folder("traffic"), (
        "spelling a default out is no change"
    )
    assert name != cell.folder("other traffic")
    for option in ("round.quorum=2", "learning.batch=17"):
        assert name != planned_without_a_study(option).cells[0].folder("traffic")
    named = replace(cell, arm="Eq. 11", condition="non-IID, \u00fcber 100 km/h")
    assert named.folder("traffic") == name.replace("flsimco", "Eq.-11-non-IID-ber-100-km-h")


def test_without_training(planned: Planned, tmp_path: Path) -> None:
    """All of the traffic, another at every seed; shared by conditions that do not decide it; never a trained cell."""
    text = "seeds = [3, 5, 9]\n[settings]\nrounds = 4\n[grid]\ntraffic.range_m = [150, 250]\nround.invited = [8, 40]\n"
    plan = planned(text, arms=" ", timing_only=True)
    assert {(cell.arm, cell.experiment.traffic.repeat) for cell in plan.cells} == {("flsimco", False)}
    assert min(cell.experiment.rounds for cell in plan.cells) > 10_000
    assert (len(plan.cells), len(plan.traffics), plan.timing_only) == (12, 6, True)
    for cell in plan.cells:
        traffic = plan.traffics[cell.traffic]
        assert (traffic.seed, traffic.source) == (cell.experiment.seed, cell.experiment.source)
        assert cell.folder("traffic") != cell.folder("traffic", timing_only=True)
    assert {cell.experiment.rounds for cell in planned(text, "rounds=7", arms=" ", timing_only=True).cells} == {7}
    shared = planned(f"traffic_seeds = [1]\n{text}", arms=" ", timing_only=True)
    assert [traffic.seed for traffic in shared.traffics] == [1, 1]
    (tmp_path / "one.toml").write_text('scenario = "gaussian"\nlearner = "fedco"\n')
    alone, name = plan_of(str(tmp_path / "one.toml"), [], seeds="0", timing_only=True)
    assert ([cell.arm for cell in alone.cells], name) == (["fedco"], "one-compare-timing")


def test_a_learners_own_file_counts_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (Path(__file__).resolve().parents[2] / "scenarios" / "fedprox.py").read_text()
    names = []
    for folder, text in (("a", source), ("b", source), ("c", source + "\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fedprox.py").write_text(text)
        monkeypatch.chdir(tmp_path / folder)
        names.append(planned_without_a_study(learners="fedprox.py:FedProx,fedavg").cells[0].folder("traffic"))
    assert names[0] == names[1] != names[2]


def test_arms_conditions_and_settings(planned: Planned) -> None:
    text = (
        'title = "T"\nnotes = ["a", "b"]\nseeds = [4, 2]\n[settings]\nrounds = 7\nlearning.queue = 64\ndata.alpha = 3\n'
    )
    plan = planned(text, arms=OWN + CONDITIONS)
    assert (plan.title, plan.notes) == ("T", ("a", "b"))
    assert [cell.experiment.seed for cell in plan.cells] == [4, 4, 4, 4, 2, 2, 2, 2]
    assert labels(plan) == [("IID", "ours"), ("IID", "fedco"), ("skew", "ours"), ("skew", "fedco")]
    ours, theirs, skewed, _ = (cell.experiment for cell in first(plan))
    assert {one.rounds for one in (ours, theirs, skewed)} == {7}
    assert (ours.data.partition, ours.data.alpha) == ("iid", 3)
    assert (skewed.data.partition, skewed.data.alpha) == ("dirichlet", 0.5)
    assert ours.learning["t_alpha"] == 0.25
    assert "queue" not in ours.learning
    assert theirs.learning["queue"] == 64
    assert len(plan.traffics) == 1, "data do not change the traffic"


def test_arms_may_be_settings_and_learners_conditions(planned: Planned) -> None:
    plan = planned('against = "drawn"\n[grid]\nlearner = ["fedavg", "flsimco"]\n', arms=SELECTING)
    assert (plan.against, plan.arm_settings) == ("drawn", ("selection.name", "round.quorum"))
    assert labels(plan) == [
        (f"{data} {learner}", arm)
        for data in ("IID", "skew")
        for learner in ("fedavg", "flsimco")
        for arm in ("drawn", "oldest")
    ]
    rules = {
        (cell.condition, cell.experiment.learner, cell.arm): (
            cell.experiment.selection.get("name", "random"),
            cell.experiment.round.quorum,
            cell.experiment.learning["steps"],
        )
        for cell in first(plan)
    }
    assert rules["IID fedavg", "fedavg", "drawn"] == ("random", 1, 8)
    assert rules["skew flsimco", "flsimco", "drawn"] == ("random", 3, 8)
    assert rules["IID flsimco", "flsimco", "oldest"] == ("age", 3, 3)
    assert len(plan.traffics) == 1, "arms change no traffic"
    one = planned('[grid]\nlearner = ["fedavg"]\n', "round.quorum=2", arms=SELECTING)
    assert {condition for condition, _ in labels(one)} == {"IID", "skew"}, "the only learner tells nothing"
    assert {cell.experiment.round.quorum for cell in one.cells} == {2}, "options go before an arm's settings"
    named = planned("", arms=SELECTING.replace("settings.data.part", 'learner = "flsimco"\nsettings.data.part'))
    assert {cell.experiment.learner for cell in named.cells} == {"flsimco"}
    grown = planned('[grid]\nlearner = ["fedavg", "fedco"]\nlearning.batch = [8, 16]\n', arms=SELECTING)
    assert {arm for _, arm in labels(grown)} == {"drawn batch=8", "drawn batch=16", "oldest batch=8", "oldest batch=16"}


def test_one_learner_under_conditions(planned: Planned) -> None:
    """The learner of ``[settings]`` is that of arms, or of conditions, that name none; it may be the only arm."""
    common = '[settings]\nlearner = "fedco"\n'
    alone = planned(common, arms=CONDITIONS)
    assert labels(alone) == [("IID", "fedco"), ("skew", "fedco")]
    assert {cell.experiment.learner for cell in alone.cells} == {"fedco"}
    of_conditions = CONDITIONS.replace("settings.data", 'learner = "fedavg"\nsettings.data')
    assert labels(planned("", arms=of_conditions)) == [("IID", "fedavg"), ("skew", "fedavg")]
    two = planned(common, arms=f'[[arms]]\nlearner = "flsimco"\n[[arms]]\n{CONDITIONS}')
    assert [cell.experiment.learner for cell in first(two)] == ["flsimco", "fedco"] * 2
    mixed = planned(common, arms=SELECTING.replace('"skew"', '"skew"\nlearner = "flsimco"'))
    assert [cell.experiment.learner for cell in first(mixed)] == ["fedco", "fedco", "flsimco", "flsimco"]


def test_cameras_of_arms_share_the_traffic(planned: Planned) -> None:
    common = '[settings]\nlearner = "flsimco"\n'
    cameras = '[[arms]]\nname = "now"\n[[arms]]\nname = "open long"\nsettings.camera.exposure_s = 0.03\n'
    plan = planned(common, arms=cameras)
    assert [cell.experiment.camera.exposure_s for cell in first(plan)] == [0.01, 0.03]
    assert (len(plan.traffics), plan.arm_settings) == (1, ("camera.exposure_s",))
    assert plan.notes[0].startswith("Only the camera differs between arms. All arms replay the same traffic")
    more = planned(common, arms=f"{cameras}learning.steps = 3\n")
    assert more.notes[0].startswith("Arms have cameras of their own. ")


def test_sharp_controls(planned: Planned) -> None:
    """Every arm has one, beside an equal schedule and for one learner too; only ``blur.fraction`` differs."""
    plan = planned('sharp_control = true\nequal_schedule = "flsimco"\n')
    assert [arm for _, arm in labels(plan)] == ["ours", "ours, sharp camera", "fedco", "fedco, sharp camera"]
    moving, sharp = (cell.experiment for cell in first(plan)[:2])
    assert (moving.blur.fraction, sharp.blur.fraction) == (1.0, 0.0)
    assert replace(sharp, blur=moving.blur) == moving
    assert (plan.arm_settings, plan.notes[0][:13]) == (("blur.fraction",), "Sharp camera:")
    alone = planned_without_a_study(learners="flsimco", sharp_control=True)
    assert [arm for _, arm in labels(alone)] == ["flsimco", "flsimco, sharp camera"]
    assert len(planned("sharp_control = true\nseeds = [0]\n", timing_only=True).cells) == 2, "nobody is trained"
    with pytest.raises(InputError, match=r"--set blur\.fraction: sharp_control sets it"):
        planned("sharp_control = true\n", "blur.fraction=0.5")
    with pytest.raises(InputError, match=r"'ours' has a blur\.fraction of its own"):
        planned("sharp_control = true\n", arms=ARMS.replace('"flsimco"', '"flsimco"\nsettings.blur.fraction = 0.5'))
    with pytest.raises(InputError, match=r"--sharp-control: .* nobody is trained"):
        planned_without_a_study(sharp_control=True, timing_only=True)


def test_a_grid_multiplies_arms_and_conditions(planned: Planned) -> None:
    text = "[grid]\nlearning.queue = [32, 64]\ndata.alpha = [0.1, 1]\n'selection.name' = ['random']\n"
    plan = planned('seeds = "0:1"\nsettings.data.partition = "dirichlet"\n' + text + ARMS)
    conditions = ["alpha=0.1, selection=random", "alpha=1, selection=random"]
    arms = ["ours", "fedco queue=32", "fedco queue=64"]
    assert labels(plan) == [(condition, arm) for condition in conditions for arm in arms]
    assert [cell.experiment.data.alpha for cell in plan.cells] == [0.1] * 3 + [1.0] * 3
    assert [cell.experiment.learning.get("queue") for cell in plan.cells] == [None, 32, 64] * 2
    assert len({cell.folder("traffic") for cell in plan.cells}) == 6
    plan = planned(
        "[grid]\nexchange.range_m = [50]\nround.deadline_s = [9]\nselection.name = ['age', 'random']\n" + ARMS
    )
    assert labels(plan)[0][0] == "range_m=50, deadline_s=9, selection=age"


def test_grid_and_named_conditions(planned: Planned, tmp_path: Path) -> None:
    for name in ("a.sumocfg", "b.sumocfg"):
        (tmp_path / name).touch()
    grid = '[grid]\nscenario = ["a.sumocfg", "b.sumocfg", "gaussian"]\n'
    plan = planned('seeds = "0:2"\n' + grid + ARMS + CONDITIONS, scenario="")
    assert [condition for condition, _ in labels(plan)][::2] == [
        *("IID a.sumocfg", "IID b.sumocfg", "IID gaussian"),
        *("skew a.sumocfg", "skew b.sumocfg", "skew gaussian"),
    ]
    assert [traffic.scenario for traffic in plan.traffics] == [
        *(str(tmp_path / "a.sumocfg"), str(tmp_path / "b.sumocfg"), "gaussian")
    ]
    assert [cell.traffic for cell in first(plan)] == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
    skip = '[[skip]]\ncondition = "a.sumocfg"\nreason = "x"\n'
    plan = planned('[grid]\nscenario = ["a.sumocfg", "gaussian"]\n' + ARMS + skip, scenario="")
    assert [traffic.scenario for traffic in plan.traffics] == ["gaussian"], "what nobody replays is not recorded"


def test_pairs_are_left_out(planned: Planned) -> None:
    skip = (
        '[[skip]]\narm = "fedco queue=3*"\ncondition = "IID"\nreason = "short"\n'
        '[[skip]]\ncondition = "I*"\narm = "fedco*"\nreason = "later"\n'
    )
    plan = planned("[grid]\nlearning.queue = [32, 64]\n" + ARMS + CONDITIONS + skip)
    assert labels(plan) == [("IID", "ours"), *(("skew", arm) for arm in ("ours", "fedco queue=32", "fedco queue=64"))]
    assert [(one.arm, one.condition, one.reason) for one in plan.skipped] == [
        ("fedco queue=32", "IID", "short"),
        ("fedco queue=64", "IID", "later"),
    ]
    text = '[grid]\ntraffic.rsu = [["A"], ["B"]]\n[[skip]]\narm = "ours"\ncondition = \'rsu=["A"]\'\nreason = "x"\n'
    assert labels(planned(text + ARMS)) == [('rsu=["A"]', "fedco"), ('rsu=["B"]', "ours"), ('rsu=["B"]', "fedco")]


def test_sizes(planned: Planned, tmp_path: Path) -> None:
    text = """
    seeds = "0:10"
    last_evaluations = 3
    settings = { rounds = 100, data = { alpha = 2.0, partition = "dirichlet" } }
    [sizes.small]
    seeds = "0:2"
    settings.rounds = 3
    [sizes.paper]
    title = "whole"
    seeds = "0:15"
    interval = "t"
    last_evaluations = 5
    """
    small, again, paper = planned(text), planned(text, size="small"), planned(text, size="paper")
    assert small == again
    assert (len(small.cells), len(paper.cells)) == (4, 30)
    assert [plan.cells[0].experiment.rounds for plan in (small, paper)] == [3, 100]
    assert {plan.cells[0].experiment.data.alpha for plan in (small, paper)} == {2.0}
    assert [plan.title for plan in (small, paper)] == ["", "whole"]
    assert [(plan.last_evaluations, plan.interval) for plan in (small, paper)] == [(3, "sign-flip"), (5, "t")]
    assert plan_of(str(tmp_path / "study.toml"), [])[1] == "study-small"


def test_options_go_before_the_file(planned: Planned) -> None:
    options = ("rounds=9", "learning.batch=16", "learning.steps=2")
    plan = planned("[settings]\nrounds = 7\nlearning.steps = 4\n", *options, arms=OWN, seeds="5:7")
    assert {cell.experiment.seed for cell in plan.cells} == {5, 6}
    for cell in plan.cells:
        assert cell.experiment.rounds == 9
        assert (cell.experiment.learning["batch"], cell.experiment.learning["steps"]) == (16, 2)


def test_every_seed_has_the_traffic_it_is_due(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "a.sumocfg").touch()
    plan = planned('seeds = "3:8"\ntraffic_seeds = [10, 11, 12]\n', scenario="a.sumocfg")
    due = {3: 10, 4: 11, 5: 12, 6: 10, 7: 11}
    assert [plan.traffics[cell.traffic].traffic.seed for cell in plan.cells] == [
        due[cell.experiment.seed] for cell in plan.cells
    ]
    assert [cell.experiment.traffic.seed for cell in plan.cells] == [due[cell.experiment.seed] for cell in plan.cells]
    assert len(plan.traffics) == 3
    assert "Seed s replays the traffic of seed number s mod 3 of 10, 11, 12, the same in every arm." in plan.notes
    model = planned('seeds = "0:2"\ntraffic_seeds = "5:7"\n')
    assert [(traffic.scenario, traffic.seed) for traffic in model.traffics] == [("gaussian", 5), ("gaussian", 6)]
    assert [(cell.experiment.seed, cell.traffic) for cell in model.cells] == [(0, 0), (0, 0), (1, 1), (1, 1)]


@pytest.mark.parametrize(("schedule", "batch"), [("ours", 8), ("flsimco", 8), ("fedavg", 4), ("fedco", 4)])
def test_equal_schedule(schedule: str, batch: int, planned: Planned) -> None:
    """An arm by its label or its learner comes with its settings; any other learner with those that all have."""
    text = f'equal_schedule = "{schedule}"\nseeds = "0:1"\nsettings.learning.batch = 4\n'
    plan = planned(text, arms=OWN)
    learner = "flsimco" if schedule == "ours" else schedule
    for cell in plan.cells:
        assert cell.experiment.schedule.learner == learner
        assert cell.experiment.schedule.learning["batch"] == batch
    assert [cell.experiment.learning["batch"] for cell in plan.cells] == [8, 4]
    assert any(note.startswith("Equal schedule: payload and work") for note in plan.notes)
    assert planned(text, arms=OWN, equal_schedule="discard").cells[0].experiment.schedule.learner == "discard"
    plain = planned("", arms=OWN).cells[0]
    assert plain.experiment.schedule.learner == ""
    assert plain.folder("traffic") != plan.cells[0].folder("traffic")


def test_arms_of_one_learner_leave_the_schedule_open(planned: Planned) -> None:
    text = 'equal_schedule = "fedco"\n[grid]\nlearning.queue = [1, 2]\n' + ARMS
    message = "equal schedule: several arms are of fedco: name one of 'fedco queue=1', 'fedco queue=2'"
    with pytest.raises(InputError, match=message):
        planned(text)
    plan = planned(text.replace('"fedco"', '"fedco queue=2"', 1))
    assert plan.cells[0].experiment.schedule.learning["queue"] == 2


def test_paths_are_the_study_files(planned: Planned, tmp_path: Path) -> None:
    scenarios = Path(__file__).resolve().parents[2] / "scenarios"
    (tmp_path / "mine.py").write_bytes((scenarios / "fedprox.py").read_bytes())
    (tmp_path / "net.py").write_bytes((scenarios / "plugins" / "plain_cnn.py").read_bytes())
    (tmp_path / "mine.toml").write_text('scenario = "gaussian"\nrounds = 4\n')
    arms = '[[arms]]\nlearner = "mine.py:FedProx"\n[[arms]]\nlearner = "fedavg"\n'
    arms += 'learning.encoder = "net.py:PlainCnn"\n'
    cell, other = planned('equal_schedule = "mine.py:FedProx"\n', arms=arms, scenario="mine.toml").cells[:2]
    assert other.experiment.learning["encoder"] == f"{tmp_path / 'net.py'}:PlainCnn"
    assert (cell.arm, cell.experiment.rounds) == ("FedProx", 4)
    assert cell.experiment.learner == cell.experiment.schedule.learner == f"{tmp_path / 'mine.py'}:FedProx"
    text = 'settings.traffic.net = "n"\n[grid]\ntraffic.rsu = [["a.xml"], ["/b.xml"]]\n[[conditions]]\nname = "c"\n'
    plan = planned(f'{text}settings.data.root = "d"\nsettings.data.name = "cifar10"\n')
    assert {label for label, _ in labels(plan)} == {'c rsu=["a.xml"]', 'c rsu=["/b.xml"]'}
    one, another = (cell.experiment for cell in first(plan)[::2])
    assert (one.traffic.net, one.data.root) == (str(tmp_path / "n"), str(tmp_path / "d"))
    assert (one.traffic.rsu, another.traffic.rsu) == ((str(tmp_path / "a.xml"),), ("/b.xml",))


def test_the_documented_example(planned: Planned, tmp_path: Path) -> None:
    for name in ("intersection.sumocfg", "expressway.sumocfg"):
        (tmp_path / name).touch()
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "compare.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    plan = planned(text, scenario="")
    assert [cell.experiment.seed for cell in plan.cells[:: len(first(plan))]] == [0, 1, 2]
    assert {cell.experiment.rounds for cell in plan.cells} == {5}
    arms = ["FLSimCo", "fedco queue=1024", "fedco queue=4096"]
    assert labels(plan) == [
        *((condition, arm) for condition in ("IID rate_bps=1000000", "IID rate_bps=10000000") for arm in arms[:2]),
        *((f"Dirichlet rate_bps={rate}", arm) for rate in (1000000, 10000000) for arm in arms),
    ]
    assert len(plan.skipped) == 2
    assert len(plan.traffics) == 6, "two scenarios, three seeds"
