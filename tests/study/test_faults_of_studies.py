"""Every fault of a study is named with file and key, and every fault of an option without, before anything runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.scenario.settings_file import parse_override
from vnetsim.study.plan import Plan
from vnetsim.study.request import plan_of

Planned = Callable[..., Plan]

ARMS = '[[arms]]\nname = "ours"\nlearner = "flsimco"\n[[arms]]\nlearner = "fedco"\n'
TWO = (
    ARMS + '[[conditions]]\nname = "IID"\nsettings.data.partition = "iid"\n'
    '[[conditions]]\nname = "skew"\nsettings.data = { partition = "dirichlet", alpha = 0.5 }\n'
)
OPEN = '[[arms]]\nname = "a"\n[[arms]]\nname = "b"\nsettings.round.quorum = 3\n'
FEW = "last_evaluations = 3\nsettings = { rounds = 6, evaluate_every = 3 }\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = '0\n", "not valid TOML"),
        ("sedes = 3\n", "unknown key 'sedes'. Did you mean 'seeds'?"),
        ("seeds = 3\n", "seeds: expected FIRST:END"),
        ("seeds = [1, 1]\n", "seeds: expected FIRST:END"),
        ("seeds = '0:251'\n", "502 cells (2 arms, 251 seeds): add --yes if you mean it"),
        ("seeds = '0:251'\n" + TWO, "1004 cells (2 arms, 2 conditions, 251 seeds): add --yes"),
        ("traffic_seeds = [true]\n", "traffic_seeds: expected FIRST:END"),
        ("traffic_seeds = [1]\nsettings.traffic.seed = 3\n", "traffic.seed: traffic_seeds says it already"),
        ("interval = 'bca'\n", "interval: must be one of 'sign-flip', 't', got 'bca'"),
        ("last_evaluations = 0\n", "last_evaluations must be between 1 and 1000000"),
        (FEW, "last_evaluations = 3: 'ours' is evaluated 2 times only (rounds = 6, evaluate_every = 3)"),
        ("settings.data.alfa = 3\n", "data: unknown key 'alfa'. Did you mean 'alpha'?"),
        ("settings.learner = 3\n", "settings.learner: expected a name, got 3"),
        ("settings.learner = 'fedcoo'\n" + OPEN, "unknown learner 'fedcoo'. Did you mean 'fedco'?"),
        ("settings.seed = 3\n", "settings.seed: a study says this with seeds"),
        ("settings.learning.bath = 3\n", "arm 'ours': learning: unknown key 'bath'. Did you mean 'batch'?"),
        ("settings.learning.batch = 'x'\n", "arm 'ours': learning.batch: expected a whole number"),
        ("equal_schedule = 'fedcoo'\n", "unknown learner 'fedcoo'. Did you mean 'fedco'?"),
        ("equal_schedule = 'cdl'\n", "learners of different tasks cannot be compared"),
        ('equal_schedule = "ours"\n' + ARMS + "settings.round.quorum = 2\n",
         "equal schedule: 'fedco' has a round.quorum of its own"),
        ('equal_schedule = "fedco"\n' + ARMS + "settings.selection.name = 'age'\n",
         "equal schedule: 'fedco' has a selection.name of its own"),
        ('against = "our"\n', "against: unknown arm 'our'. Did you mean 'ours'?"),
        ("arms = 3\n", "arms: write each as a table below a line [[arms]]"),
        ("[[arms]]\nlearner = 'fedco'\n", "name at least two, such as flsimco and fedavg, or one under at least two"),
        ("[[arms]]\nlerner = 'fedco'\n", "[[arms]] no. 1: unknown key 'lerner'. Did you mean 'learner'?"),
        (ARMS + "round.quorum = 3\n", "[[arms]] no. 2: unknown key 'round'. Available: learner, learn"),
        ("[[arms]]\nname = 'x'\n", "[[arms]] no. 1: learner: name one"),
        ("[[arms]]\nlearner = 'no.py:X'\n" + ARMS, "no.py: no such file"),
        ("[[arms]]\nlearner = 'fedco'\n" + ARMS, "[[arms]]: 'fedco' is there twice"),
        (ARMS + "learning.que = 3\n", "arm 'fedco': learning: unknown key 'que'. Did you mean 'queue'?"),
        (ARMS + "[[arms]]\nlearner = 'cdl'\n", "learners of different tasks cannot be compared (flsimco"),
        (ARMS + "[[arms]]\nname = 'x'\nlearner = 'fedco'\n", "'fedco, seed 0' and 'x, seed 0' are the same experiment"),
        (ARMS + "settings.round.quorun = 3\n", "arm 'fedco': round: unknown key 'quorun'. Did you mean 'quorum'"),
        (ARMS + "settings.traffic.warmup_s = 3\n", "settings.traffic.warmup_s: a study says this with [[conditions]]"),
        (ARMS + "settings.learning.batch = 3\n", "settings.learning.batch: a study says this with learning, beside"),
        ("[grid]\nlearner = ['flsimco']\n" + ARMS, "[[arms]] no. 1: learner: a condition, or the grid, names one too"),
        ("[grid]\nlearner = [3]\n" + OPEN, "grid.learner: expected names, got [3]"),
        ("[grid]\nlearner = ['fedavg', 'cdl']\n" + OPEN, "learners of different tasks cannot be compared (fedavg"),
        ("[grid]\nlearner = ['fedavg']\n" + OPEN.replace('name = "b"\n', ""), "no. 2: name: say what the page"),
        (OPEN + "[[conditions]]\nname = 'c'\nlearner = 'fedco'\n[[conditions]]\nname = 'd'\n", "learner: name one"),
        (ARMS + "[[conditions]]\nnam = 'x'\n", "[[conditions]] no. 1: unknown key 'nam'. Did you mean 'name'?"),
        (TWO + "settings.rond.quorum = 0\n", "condition 'skew': unknown key 'rond'. Did you mean 'round'?"),
        (TWO + "[[conditions]]\nname = 'IID'\n", "[[conditions]]: 'IID' is there twice"),
        (TWO + "scenario = 'no.sumocfg'\n", "no.sumocfg: no such file"),
        (TWO + "scenario = 'study.toml'\n", "study.toml: a study, not an experiment"),
        (TWO + "scenario = 'notes.md'\n", "notes.md: unknown kind of scenario"),
        ("traffic_seeds = [1]\n" + TWO + "scenario = 'fcd.xml'\n", "traffic_seeds: "),
        ("[grid]\ndata.alpha = 3\n" + ARMS, "grid.data.alpha: expected a list of values, got 3"),
        ("[grid]\ndata.alpha = [1, 1.0]\n" + ARMS, "[[conditions]]: 'alpha=1' is there twice"),
        ("[grid]\ndata.alpha = {}\n" + ARMS, "grid.data.alpha: expected a list of values, got {}"),
        ("[settings]\nround.quorum = {}\n" + ARMS, "round.quorum: expected a whole number, got {}"),
        (ARMS + "learning.lr = {}\n", "learning.lr: expected a number, got {}"),
        ("[grid]\ndata.alfa = [1]\n" + ARMS, "condition 'alfa=1': data: unknown key 'alfa'. Did you mean 'alpha'?"),
        ("[grid]\nlearning.bath = [1]\n" + ARMS, "grid.learning: unknown key 'bath'. Did you mean 'batch'?"),
        ("[grid]\ndata.alpha = [1, 'x']\n" + ARMS, "condition 'alpha=x': data.alpha: expected a number, got 'x'"),
        ("[grid]\nlearning.queue = [1]\n" + ARMS + "learning.queue = 2\n", "'fedco': the grid varies learning.queue"),
        ("[grid]\ndata.alpha = [1]\n" + TWO, "condition 'skew': the grid varies data.alpha"),
        ("[grid]\nscenario = ['gaussian']\n" + TWO + "scenario = 'gaussian'\n", "'skew': the grid varies scenario"),
        (f"[grid]\nlearning.batch = {list(range(2, 200))}\nlearning.steps = {list(range(1, 200))}\n" + ARMS,
         "grid: it expands to 39402 points, too many"),
        (ARMS + "[[skip]]\narm = 'x'\n", "[[skip]] no. 1: reason: say why"),
        (ARMS + "[[skip]]\nreason = 'x'\n", "[[skip]] no. 1: name an arm, a condition, or both"),
        (ARMS + "[[skip]]\narm = 'o'\nreason = 'x'\n", "[[skip]] no. 1: arm: 'o' matches none of ours, fedco"),
        (TWO + "[[skip]]\ncondition = 'i*'\nreason = 'x'\n", "condition: 'i*' matches none of IID, skew"),
        (ARMS + "[[skip]]\narm = '?*'\nreason = 'x'\n", "[[skip]]: everything is left out"),
        ("sizes.small = 3\n", "sizes.small: expected a table, got 3"),
        ("sizes.small.sizes = {}\n", "sizes.small.sizes: a size has no sizes"),
        ("sizes.a.settings.data.alpha = 'x'\n", "study.toml (size a): data.alpha: expected a number, got 'x'"),
    ],
)  # fmt: skip
def test_faults_of_the_file(text, message, planned, tmp_path):
    (tmp_path / "fcd.xml").touch()
    with pytest.raises(InputError) as refused:
        planned(text)
    assert str(refused.value).startswith(f"{tmp_path / 'study.toml'}")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"learners": "flsimco,fedco"}, (), "--learners: "),
        ({"size": "smal"}, (), "study.toml: unknown size 'smal'. Did you mean 'small'? Available: small."),
        ({"seeds": "3:3"}, (), "--seeds: expected FIRST:END"),
        ({"equal_schedule": "fedcoo"}, (), "unknown learner 'fedcoo'"),
        ({}, ("data.alpha=3",), "study.toml (size small) varies it; change it there"),
        ({}, ("seed=3",), "--set seed: a comparison takes --seeds"),
        ({}, ("schedule.learner=fedco",), "--set schedule.learner: a comparison takes --equal-schedule"),
        ({}, ("round.quorun=3",), "round: unknown key 'quorun'"),
        ({}, ("learning.bath=3",), "learning: unknown key 'bath'"),
        ({}, ("learning.batch=x",), "learning.batch: expected a whole number, got 'x'"),
    ],
)
def test_faults_of_the_options(given, options, message, planned):
    with pytest.raises(InputError) as refused:
        planned("sizes.small = {}\n[grid]\ndata.alpha = [1, 2]\n" + ARMS, *options, **given)
    assert message in str(refused.value)
    if options and "study" not in message:
        assert "study.toml" not in str(refused.value), "an option is not the file's fault"


LEARNERS = {"learners": "flsimco,fedavg"}


@pytest.mark.parametrize(
    ("scenario", "given", "message"),
    [
        ("gaussian", {}, "gaussian: say what to compare with --learners flsimco,fedavg, or name a study file"),
        ("mine.toml", {}, "mine.toml: say what to compare with --learners flsimco,fedavg, or add [[arms]]"),
        ("nowhere.toml", {}, "nowhere.toml: no such file"),
        ("gaussian", {**LEARNERS, "size": "small"}, "--size small: gaussian is a scenario"),
        ("gaussian", {**LEARNERS, "equal_schedule": "cdl"}, "learners of different tasks"),
        ("gaussian", {**LEARNERS, "equal_schedule": "x"}, "unknown learner 'x'"),
        ("gaussian", {**LEARNERS, "seeds": "0:251"}, "502 cells (2 learners, 251 seeds): add --yes"),
        ("gaussian", {"learners": "fedavg"}, "--learners: name at least two"),
        ("gaussian", {"learners": "fedavg,fedavg"}, "--learners: 'fedavg' is there twice"),
        ("gaussian", {"learners": "flsimco,fedavgg"}, "unknown learner 'fedavgg'. Did you mean 'fedavg'?"),
        ("gaussian", {"learners": "flsimco,cdl,fedavg"}, "flsimco, fedavg: contrastive; cdl: steering"),
        ("gaussian", {**LEARNERS, "set": "learning.bath=3"}, "learning: unknown key 'bath'. Did you mean 'batch'"),
        ("gaussian", {**LEARNERS, "set": "learner=fedco"}, "--set learner: a comparison takes --learners"),
        ("gaussian", {**LEARNERS, "set": "round.quorun=3"}, "unknown key 'quorun'"),
        ("mine.toml", {**LEARNERS, "set": "rounds=x"}, "rounds: expected a whole number, got 'x'"),
    ],
)
def test_faults_without_a_study(scenario, given, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('scenario = "gaussian"\n')
    options = [parse_override(given["set"])] if "set" in given else []
    with pytest.raises(InputError) as refused:
        plan_of(scenario, options, **{key: value for key, value in given.items() if key != "set"})
    assert message in str(refused.value)
    assert "arm " not in str(refused.value)
