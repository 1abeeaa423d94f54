"""Study files: what they come to, and that every fault is named with file and key before anything runs."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vnetsim.errors import InputError
from vnetsim.scenario.settings_file import parse_override
from vnetsim.study import file as study_file
from vnetsim.study.file import is_study
from vnetsim.study.plan import Cell, Plan
from vnetsim.study.request import Request

ARMS = '[[arms]]\nname = "ours"\nlearner = "flsimco"\n[[arms]]\nlearner = "fedco"\n'
CONDITIONS = """
[[conditions]]
name = "IID"
settings.data.partition = "iid"
[[conditions]]
name = "skew"
settings.data = { partition = "dirichlet", alpha = 0.5 }
"""

Planned = Callable[..., Plan]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """Writes a study and plans it: ``planned(text, *options, size=...)``."""

    def call(text: str, *options: str, arms: str = ARMS, scenario: str = "gaussian", **given: object) -> Plan:
        named = f'scenario = "{scenario}"\n' if scenario else ""
        (tmp_path / "notes.md").touch()
        (tmp_path / "study.toml").write_text(named + text + ("" if "arms" in text else arms))
        request = Request(scenario=str(tmp_path / "study.toml"), **given)  # type: ignore[arg-type]
        return request.plan([parse_override(option) for option in options])[0]

    return call


def first(plan: Plan) -> list[Cell]:
    return [cell for cell in plan.cells if cell.experiment.seed == plan.cells[0].experiment.seed]


def labels(plan: Plan) -> list[tuple[str, str]]:
    return [(cell.condition, cell.arm) for cell in first(plan)]


def test_the_smallest_study(planned: Planned) -> None:
    plan = planned("")
    assert labels(plan) == [("", "ours"), ("", "fedco")]
    assert [cell.experiment.seed for cell in plan.cells] == [seed for seed in range(10) for _ in range(2)]
    assert len(plan.traffics) == 1
    assert {cell.traffic for cell in plan.cells} == {0}


def test_arms_conditions_and_settings(planned: Planned) -> None:
    text = (
        'title = "T"\nnotes = ["a", "b"]\nseeds = [4, 2]\n[settings]\nrounds = 7\nlearning.queue = 64\ndata.alpha = 3\n'
    )
    arms = ARMS.replace('"flsimco"\n', '"flsimco"\nlearning.t_alpha = 0.25\n', 1)
    plan = planned(text, arms=arms + CONDITIONS)
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


SELECTING = """
[[arms]]
name = "drawn"
settings.round.selection = "random"
[[arms]]
name = "oldest"
learning.steps = 3
settings = { round.selection = "age", round.quorum = 3 }
[[conditions]]
name = "IID"
settings.round.quorum = 4
settings.data.partition = "iid"
[[conditions]]
name = "skew"
settings.data.partition = "dirichlet"
"""


def test_arms_may_be_settings_and_learners_conditions(planned: Planned) -> None:
    plan = planned('against = "drawn"\n[grid]\nlearner = ["fedavg", "flsimco"]\n', arms=SELECTING)
    assert (plan.against, plan.arm_settings) == ("drawn", ("round.selection", "round.quorum"))
    assert labels(plan) == [
        (f"{data} {learner}", arm)
        for data in ("IID", "skew")
        for learner in ("fedavg", "flsimco")
        for arm in ("drawn", "oldest")
    ]
    rules = {
        (cell.condition, cell.learner, cell.arm): (
            cell.experiment.round.selection,
            cell.experiment.round.quorum,
            cell.experiment.learning["steps"],
        )
        for cell in first(plan)
    }
    assert rules["IID fedavg", "fedavg", "drawn"] == ("random", 4, 8)
    assert rules["skew flsimco", "flsimco", "drawn"] == ("random", 5, 8)
    assert rules["IID flsimco", "flsimco", "oldest"] == ("age", 3, 3)
    assert len(plan.traffics) == 1, "arms change no traffic"
    one = planned('[grid]\nlearner = ["fedavg"]\n', arms=SELECTING)
    assert {condition for condition, _ in labels(one)} == {"IID", "skew"}, "the only learner tells nothing"
    named = planned("", arms=SELECTING.replace("settings.data.part", 'learner = "flsimco"\nsettings.data.part'))
    assert {cell.learner for cell in named.cells} == {"flsimco"}
    assert not planned("").against
    grown = planned('[grid]\nlearner = ["fedavg", "fedco"]\nlearning.batch = [8, 16]\n', arms=SELECTING)
    assert {arm for _, arm in labels(grown)} == {"drawn batch=8", "drawn batch=16", "oldest batch=8", "oldest batch=16"}


def test_options_go_before_an_arms_settings(planned: Planned) -> None:
    plan = planned('[grid]\nlearner = ["fedavg"]\n', "round.quorum=2", arms=SELECTING)
    assert {cell.experiment.round.quorum for cell in plan.cells} == {2}


def test_a_grid_multiplies_arms_and_conditions(planned: Planned) -> None:
    text = "[grid]\nlearning.queue = [32, 64]\ndata.alpha = [0.1, 1]\n'link.model' = ['constant']\n"
    plan = planned('seeds = "0:1"\n' + text + ARMS)
    conditions = ["alpha=0.1, model=constant", "alpha=1, model=constant"]
    arms = ["ours", "fedco queue=32", "fedco queue=64"]
    assert labels(plan) == [(condition, arm) for condition in conditions for arm in arms]
    assert [cell.experiment.data.alpha for cell in plan.cells] == [0.1] * 3 + [1.0] * 3
    assert [cell.experiment.learning.get("queue") for cell in plan.cells] == [None, 32, 64] * 2
    assert len({cell.folder("traffic") for cell in plan.cells}) == 6


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


def test_two_settings_of_one_name_keep_their_tables(planned: Planned) -> None:
    plan = planned("[grid]\ngaussian.range_m = [200]\nexchange.range_m = [50]\n" + ARMS)
    assert labels(plan)[0][0] == "gaussian.range_m=200, exchange.range_m=50"


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


def test_a_label_with_brackets_is_no_pattern(planned: Planned) -> None:
    text = '[grid]\ntraffic.rsu = [["A"], ["B"]]\n[[skip]]\narm = "ours"\ncondition = \'rsu=["A"]\'\nreason = "x"\n'
    assert labels(planned(text + ARMS)) == [('rsu=["A"]', "fedco"), ('rsu=["B"]', "ours"), ('rsu=["B"]', "fedco")]


def test_traffic_that_nobody_replays_is_not_recorded(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "a.sumocfg").touch()
    skip = '[[skip]]\ncondition = "a.sumocfg"\nreason = "x"\n'
    plan = planned('[grid]\nscenario = ["a.sumocfg", "gaussian"]\n' + ARMS + skip, scenario="")
    assert [traffic.scenario for traffic in plan.traffics] == ["gaussian"]


def test_sizes(planned: Planned, tmp_path: Path) -> None:
    text = """
    seeds = "0:10"
    settings = { rounds = 100, data.alpha = 2.0 }
    [sizes.small]
    seeds = "0:2"
    settings.rounds = 3
    [sizes.paper]
    title = "whole"
    """
    small, again, paper = planned(text), planned(text, size="small"), planned(text, size="paper")
    assert small == again
    assert (len(small.cells), len(paper.cells)) == (4, 20)
    assert [plan.cells[0].experiment.rounds for plan in (small, paper)] == [3, 100]
    assert {plan.cells[0].experiment.data.alpha for plan in (small, paper)} == {2.0}
    assert [plan.title for plan in (small, paper)] == ["", "whole"]
    path = str(tmp_path / "study.toml")
    assert Request(scenario=path).plan([])[1] == "study-small"


def test_options_go_before_the_file(planned: Planned) -> None:
    text = "[settings]\nrounds = 7\nlearning.batch = 8\n"
    arms = ARMS.replace('"flsimco"\n', '"flsimco"\nlearning.steps = 3\n', 1)
    options = ("rounds=9", "learning.batch=16", "learning.steps=2")
    plan = planned(text, *options, arms=arms, seeds="5:7")
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


def test_a_recording_has_no_traffic_seed(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "fcd.xml").touch()
    with pytest.raises(InputError, match=r"study.toml: traffic_seeds: .*fcd.xml is a recording"):
        planned("traffic_seeds = [1]\n", scenario="fcd.xml")


@pytest.mark.parametrize(
    ("schedule", "batch"), [("ours", 8), ("flsimco", 8), ("fedavg", 4), ("fedco", 4), ("discard", 4)]
)
def test_equal_schedule(schedule: str, batch: int, planned: Planned) -> None:
    """An arm by its label or its learner comes with its settings; any other learner with those that all have."""
    text = f'equal_schedule = "{schedule}"\nseeds = "0:1"\nsettings.learning.batch = 4\n'
    arms = ARMS.replace('"flsimco"\n', '"flsimco"\nlearning.batch = 8\n', 1)
    plan = planned(text, arms=arms)
    learner = "flsimco" if schedule == "ours" else schedule
    for cell in plan.cells:
        assert cell.experiment.schedule.learner == learner
        assert cell.experiment.schedule.learning["batch"] == batch
    assert [cell.experiment.learning["batch"] for cell in plan.cells] == [8, 4]
    assert any(note.startswith("Equal schedule: payload and work") for note in plan.notes)
    assert planned(text, arms=arms, equal_schedule="discard").cells[0].experiment.schedule.learner == "discard"
    plain = planned("", arms=arms).cells[0]
    assert plain.experiment.schedule.learner == ""
    assert plain.folder("traffic") != plan.cells[0].folder("traffic")


def test_paths_are_the_study_files(planned: Planned, tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "scenarios" / "fedprox.py"
    (tmp_path / "mine.py").write_bytes(source.read_bytes())
    (tmp_path / "mine.toml").write_text('scenario = "gaussian"\nrounds = 4\n')
    arms = '[[arms]]\nlearner = "mine.py:FedProx"\n[[arms]]\nlearner = "fedavg"\n'
    plan = planned('equal_schedule = "mine.py:FedProx"\n', arms=arms, scenario="mine.toml")
    cell = plan.cells[0]
    assert (cell.arm, cell.experiment.rounds) == ("FedProx", 4)
    assert cell.learner == cell.experiment.schedule.learner == f"{tmp_path / 'mine.py'}:FedProx"
    text = 'settings.traffic.net = "n"\n[grid]\ntraffic.rsu_file = ["a", "/b"]\n[[conditions]]\nname = "c"\n'
    plan = planned(f'{text}settings.data.root = "d"\n')
    assert {label for label, _ in labels(plan)} == {"c rsu_file=a", "c rsu_file=/b"}
    one, other = (cell.experiment for cell in first(plan)[::2])
    assert (one.traffic.net, one.data.root) == (str(tmp_path / "n"), str(tmp_path / "d"))
    assert (one.traffic.rsu_file, other.traffic.rsu_file) == (str(tmp_path / "a"), "/b")


def test_the_documented_example(planned: Planned, tmp_path: Path) -> None:
    for name in ("intersection.sumocfg", "expressway.sumocfg"):
        (tmp_path / name).touch()
    text = textwrap.dedent(str(study_file.__doc__).partition("::\n")[2].partition("An arm may have")[0])
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


def test_what_is_a_study(tmp_path: Path) -> None:
    for text, expected in (('scenario = "gaussian"\n', False), (ARMS, True), ("sizes = 3\n", True)):
        (tmp_path / "file.toml").write_text(text)
        assert is_study(str(tmp_path / "file.toml")) is expected
    assert not is_study("gaussian")
    assert not is_study("city.sumocfg")


TWO = ARMS + CONDITIONS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sedes = 3\n", "study.toml: unknown key 'sedes'. Did you mean 'seeds'?"),
        ("title = 3\n", "study.toml: title: expected a string, got 3"),
        ("notes = 'a'\n", "study.toml: notes: expected a list of strings"),
        ("seeds = 3\n", 'study.toml: seeds: expected "FIRST:END" or a list of whole numbers from 0, got 3'),
        ("seeds = []\n", "study.toml: seeds: the list is empty"),
        ("seeds = [1, 1]\n", "study.toml: seeds: a seed is there twice"),
        ("seeds = '3:3'\n", "study.toml: seeds: 3:3: no seed"),
        ("traffic_seeds = [true]\n", "study.toml: traffic_seeds: expected"),
        ("traffic_seeds = []\n", "study.toml: traffic_seeds: the list is empty"),
        ("traffic_seeds = [1]\nsettings.traffic.seed = 3\n", "traffic.seed: traffic_seeds says it already"),
        ("settings = 3\n", "study.toml: settings: expected a table, got 3"),
        ("settings.data.alfa = 3\n", "study.toml: settings.data: unknown key 'alfa'. Did you mean 'alpha'?"),
        ("settings.dta.alpha = 3\n", "study.toml: settings: unknown key 'dta'. Did you mean 'data'?"),
        ("settings.data = 3\n", "study.toml: data: expected a table, got 3"),
        ("settings.data.alpha = 'x'\n", "study.toml: data.alpha: expected a number, got 'x'"),
        ("settings.seed = 3\n", "study.toml: settings.seed: a study says this with seeds"),
        ("settings.learner = 'fedco'\n", "study.toml: settings.learner: a study says this with [[arms]]"),
        ("settings.schedule.learner = 'x'\n", "settings.schedule.learner: a study says this with equal_schedule"),
        ("settings.learning.bath = 3\n", "study.toml: learning: unknown key 'bath'. Did you mean 'batch'?"),
        ("settings.learning.batch = 'x'\n", "study.toml: arm 'ours': learning.batch: expected a whole number"),
        ("equal_schedule = 'fedcoo'\n", "study.toml: equal schedule: unknown learner 'fedcoo'. Did you mean 'fedco'?"),
        ("equal_schedule = 'cdl'\n", "learners of different tasks cannot be compared"),
        ("arms = 3\n", "study.toml: arms: write each as a table below a line [[arms]]"),
        ("seeds = '0:3'\narms = []\n", "study.toml: [[arms]]: a study compares at least two, this has 0"),
        ("[[arms]]\nlearner = 'fedco'\n", "study.toml: [[arms]]: a study compares at least two, this has 1"),
        (ARMS + "round.quorum = 3\n", "study.toml: [[arms]] no. 2: round: write it as settings.round."),
        (TWO + "data.alpha = 3.0\n", "study.toml: [[conditions]] no. 2: data: write it as settings.data."),
        ("[[arms]]\nlerner = 'fedco'\n", "study.toml: [[arms]] no. 1: unknown key 'lerner'. Did you mean 'learner'?"),
        ("[[arms]]\nname = 'x'\n", "study.toml: [[arms]] no. 1: learner: name one"),
        ("[[arms]]\nlearner = 3\n", "study.toml: [[arms]] no. 1.learner: expected a string, got 3"),
        ("[[arms]]\nlearner = 'fedcoo'\n", "study.toml: [[arms]] no. 1: unknown learner 'fedcoo'"),
        ("[[arms]]\nlearner = 'no.py:X'\n", "no.py: no such file"),
        ("[[arms]]\nlearner = 'fedco'\n" + ARMS, "study.toml: arms: 'fedco' is there twice"),
        (ARMS + "learning.que = 3\n", "study.toml: arm 'fedco': learning: unknown key 'que'. Did you mean 'queue'?"),
        (ARMS + "[[arms]]\nlearner = 'cdl'\n", "study.toml: learners of different tasks cannot be compared (flsimco"),
        (ARMS + "[[arms]]\nname = 'x'\nlearner = 'fedco'\n", "'fedco, seed 0' and 'x, seed 0' are the same experiment"),
        (ARMS + "[[conditions]]\n", "study.toml: [[conditions]] no. 1: name: say what"),
        ('against = "our"\n' + ARMS, "study.toml: against: unknown arm 'our'. Did you mean 'ours'?"),
        (
            ARMS + "settings.round.quorun = 3\n",
            "[[arms]] no. 2.settings.round: unknown key 'quorun'. Did you mean 'quorum'",
        ),
        (ARMS + "settings.round.quorum = 0\n", "study.toml: arm 'fedco': round.quorum must be between"),
        (ARMS + "settings.seed = 3\n", "[[arms]] no. 2.settings.seed: a study says this with seeds"),
        (
            ARMS + "settings.traffic.warmup_s = 3\n",
            "no. 2: settings.traffic.warmup_s: a study says this with [[conditions]]: all arms replay one traffic",
        ),
        (ARMS + "settings.camera.range_m = 3\n", "unknown key 'range_m'"),
        (
            ARMS + "settings.learning.batch = 3\n",
            "settings.learning.batch: a study says this with learning, beside settings",
        ),
        (
            'equal_schedule = "ours"\n' + ARMS + "settings.round.quorum = 3\n",
            "study.toml: equal schedule: 'fedco' has a round.quorum of its own",
        ),
        (
            "[grid]\nlearner = ['flsimco']\n" + ARMS,
            "study.toml: [[arms]] no. 1: learner: condition '' names one too; say it in one place",
        ),
        (
            "[grid]\nlearner = ['flsimco']\n" + SELECTING + "learner = 'flsimco'\n",
            "[[conditions]] no. 2.learner: the grid varies it",
        ),
        ("[grid]\nlearner = ['flsimc']\n" + SELECTING, "study.toml: grid.learner: unknown learner 'flsimc'."),
        ("[grid]\nlearner = [3]\n" + SELECTING, "study.toml: grid.learner: expected names of learners, got 3"),
        (SELECTING + "learner = 'flsimco'\n", "study.toml: [[arms]] no. 1: learner: name one"),
        (SELECTING + "learner = 'flsimc'\n", "study.toml: [[conditions]] no. 2: unknown learner 'flsimc'."),
        (
            "[grid]\nlearner = ['fedavg', 'cdl']\n" + SELECTING,
            "study.toml: learners of different tasks cannot be compared (fedavg",
        ),
        (
            "[grid]\nlearner = ['fedavg']\n" + SELECTING.replace('name = "drawn"\n', ""),
            "study.toml: [[arms]] no. 1: name: say what the page is to call it",
        ),
        (ARMS + "[[conditions]]\nnam = 'x'\n", "[[conditions]] no. 1: unknown key 'nam'. Did you mean 'name'?"),
        (
            ARMS + "[[conditions]]\nname = 'x'\nsettings.rond.quorum = 3\n",
            "study.toml: [[conditions]] no. 1.settings: unknown key 'rond'. Did you mean 'round'?",
        ),
        (
            TWO + "settings.round.quorum = 0\n",
            "study.toml: condition 'skew': round.quorum must be between",
        ),
        (TWO + "[[conditions]]\nname = 'IID'\n", "study.toml: conditions: 'IID' is there twice"),
        (TWO + "scenario = 'no.sumocfg'\n", "study.toml: condition 'skew': "),
        (TWO + "scenario = 'no.sumocfg'\n", "no.sumocfg: no such file"),
        ("settings.rounds = 3\n" + TWO + "scenario = 'study.toml'\n", "study.toml: a study, not an experiment"),
        (TWO + "scenario = 'notes.md'\n", "notes.md: unknown kind of scenario"),
        ("[grid]\ndata.alpha = 3\n" + ARMS, "study.toml: grid.data.alpha: expected a list of values, got 3"),
        (
            "[grid]\ndata.alpha = []\n" + ARMS,
            "study.toml: grid.data.alpha: the list is empty, so that the grid expands",
        ),
        ("[grid]\ndata.alpha = [1, 1]\n" + ARMS, "study.toml: grid.data.alpha: a value is there twice"),
        ("[grid]\ndata = [{}]\n" + ARMS, "study.toml: grid.data: values of a grid are no tables"),
        ("[grid]\nseed = [1]\n" + ARMS, "study.toml: grid.seed: a study says this with seeds"),
        ("[grid]\ndata.alfa = [1]\n" + ARMS, "study.toml: grid.data: unknown key 'alfa'. Did you mean 'alpha'?"),
        ("[grid]\nlearning.bath = [1]\n" + ARMS, "grid.learning: unknown key 'bath'. Did you mean 'batch'?"),
        ("[grid]\ndata.alpha = [1, 'x']\n" + ARMS, "condition 'alpha=x': data.alpha: expected a number, got 'x'"),
        (
            "[grid]\nlearning.queue = [1]\n" + ARMS + "learning.queue = 2\n",
            "arm 'fedco': the grid varies learning.queue",
        ),
        ("[grid]\ndata.alpha = [1]\n" + TWO, "condition 'skew': the grid varies data.alpha"),
        (
            "[grid]\nscenario = ['gaussian']\n" + TWO + "scenario = 'gaussian'\n",
            "[[conditions]] no. 2.scenario: the grid varies it",
        ),
        (
            f"[grid]\nlearning.batch = {list(range(2, 200))}\nlearning.steps = {list(range(1, 200))}\n" + ARMS,
            "study.toml: grid: it expands to 39402 points, too many",
        ),
        (ARMS + "[[skip]]\narm = 'x'\n", "study.toml: [[skip]] no. 1: reason: say why"),
        (ARMS + "[[skip]]\nreason = 'x'\n", "study.toml: [[skip]] no. 1: name an arm, a condition, or both"),
        (
            ARMS + "[[skip]]\narm = 'o'\nreason = 'x'\n",
            "study.toml: [[skip]] no. 1: arm: 'o' matches none of 'ours', 'fedco'",
        ),
        (
            TWO + "[[skip]]\ncondition = 'iid*'\nreason = 'x'\n",
            "study.toml: [[skip]] no. 1: condition: 'iid*' matches none of 'IID', 'skew'",
        ),
        (ARMS + "[[skip]]\narm = '?*'\nreason = 'x'\n", "study.toml: [[skip]]: everything is left out"),
        (ARMS + "[[skip]]\narms = 'o'\n", "[[skip]] no. 1: unknown key 'arms'. Did you mean 'arm'?"),
        ("sizes.small = 3\n", "study.toml: sizes.small: expected a table, got 3"),
        ("sizes.small.sedes = 3\n", "study.toml: sizes.small: unknown key 'sedes'. Did you mean 'seeds'?"),
        ("sizes.small.sizes = {}\n", "study.toml: sizes.small.sizes: a size has no sizes"),
        ("sizes.a = {}\nsizes.b.seeds = 3\n", "study.toml (size b): seeds: expected"),
        ("sizes.a.settings.data.alpha = 'x'\n", "study.toml (size a): data.alpha: expected a number, got 'x'"),
        ("seeds = '0:251'\n", "study.toml: 502 cells (2 arms, 251 seeds): add --yes if you mean it"),
        ("seeds = '0:251'\n" + TWO, "study.toml: 1004 cells (2 arms, 2 conditions, 251 seeds): add --yes"),
        ("seeds = '0\n", "study.toml: not valid TOML"),
    ],
)
def test_faults_of_the_file(text: str, message: str, planned: Planned) -> None:
    with pytest.raises(InputError) as refused:
        planned(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"learners": "flsimco,fedco"}, (), "--learners: "),
        ({"size": "smal"}, (), "study.toml: unknown size 'smal'. Did you mean 'small'? Available: small."),
        ({"seeds": "3:3"}, (), "--seeds 3:3: no seed"),
        ({"equal_schedule": "fedcoo"}, (), "unknown learner 'fedcoo'"),
        ({}, ("data.alpha=3",), "study.toml (size small) varies it; change it there"),
        ({}, ("seed=3",), "--set seed: a comparison takes --seeds"),
        ({}, ("schedule.learner=fedco",), "--set schedule.learner: a comparison takes --equal-schedule"),
        ({}, ("round.quorun=3",), "round: unknown key 'quorun'"),
        ({}, ("learning.bath=3",), "learning: unknown key 'bath'"),
        ({}, ("learning.batch=x",), "learning.batch: expected a whole number, got 'x'"),
    ],
)
def test_faults_of_the_options(given: dict[str, str], options: tuple[str, ...], message: str, planned: Planned) -> None:
    with pytest.raises(InputError) as refused:
        planned("sizes.small = {}\n[grid]\ndata.alpha = [1, 2]\n" + ARMS, *options, **given)
    assert message in str(refused.value)
    if options and "study" not in message:
        assert "study.toml" not in str(refused.value), "an option is not the file's fault"


def test_arms_of_one_learner_leave_the_schedule_open(planned: Planned) -> None:
    text = 'equal_schedule = "fedco"\n[grid]\nlearning.queue = [1, 2]\n'
    message = "equal schedule: several arms are of fedco: name one of 'fedco queue=1', 'fedco queue=2'"
    with pytest.raises(InputError, match=message):
        planned(text + ARMS)
    assert (
        planned(text.replace('"fedco"', '"fedco queue=2"') + ARMS).cells[0].experiment.schedule.learning["queue"] == 2
    )


@pytest.mark.parametrize(
    ("scenario", "given", "message"),
    [
        ("gaussian", {}, "gaussian: say what to compare with --learners flsimco,fedavg, or name a study file"),
        ("mine.toml", {}, "mine.toml: say what to compare with --learners flsimco,fedavg, or add [[arms]]"),
        ("gaussian", {"learners": "flsimco,fedavg", "size": "small"}, "--size small: gaussian is a scenario"),
        (
            "gaussian",
            {"learners": "flsimco,fedavg", "equal_schedule": "cdl"},
            "--learners: learners of different tasks",
        ),
        ("gaussian", {"learners": "flsimco,fedavg", "equal_schedule": "x"}, "equal schedule: unknown learner 'x'"),
        ("nowhere.toml", {}, "nowhere.toml: no such file"),
    ],
)
def test_faults_without_a_study(
    scenario: str, given: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('scenario = "gaussian"\n')
    with pytest.raises(InputError) as refused:
        Request(scenario=scenario, **given).plan([])
    assert message in str(refused.value)
