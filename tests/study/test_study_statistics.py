"""What a study declares of its statistics: evaluations that are averaged and intervals, checked before it runs."""

from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.scenario.settings_file import parse_override
from vnetsim.study.plan import Plan
from vnetsim.study.request import Request

STUDY = """
scenario = "gaussian"
last_evaluations = 3
settings = { rounds = 7, evaluate_every = 3 }
arms = [{ learner = "flsimco" }, { learner = "fedavg" }]
[[conditions]]
name = "often"
settings.evaluate_every = 1
[[conditions]]
name = "seldom"
[sizes.small]
[sizes.long]
last_evaluations = 5
settings.evaluate_every = 1
settings.rounds = 20
conditions = [{ name = "long" }]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def planned(study: Path, *options: str, **given: str) -> Plan:
    return Request(scenario=str(study), **given).plan([parse_override(option) for option in options])[0]


def test_the_file_declares_it_and_a_size_replaces_it(study: Path) -> None:
    """Seven rounds evaluated every third, and the last, are three evaluations."""
    assert planned(study).last_evaluations == 3
    assert planned(study, size="long").last_evaluations == 5
    study.write_text(STUDY.replace("last_evaluations = 3\n", ""))
    assert planned(study).last_evaluations == 1
    assert Request(scenario="gaussian", learners="flsimco,fedavg").plan([])[0].last_evaluations == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("rounds=6",), "'flsimco' under 'seldom' is evaluated 2 times only (rounds = 6, evaluate_every = 3)"),
        (("rounds=2",), "'flsimco' under 'often' is evaluated 2 times only (rounds = 2, evaluate_every = 1)"),
    ],
)
def test_too_few_evaluations_are_told_before_anything_runs(options: tuple[str, ...], message: str, study: Path) -> None:
    with pytest.raises(InputError) as refused:
        planned(study, *options)
    assert str(refused.value).startswith(f"{study} (size small): last_evaluations = 3: {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "true", "'3'", "[3]"])
def test_what_is_no_number_of_evaluations(value: str, study: Path) -> None:
    study.write_text(STUDY.replace("last_evaluations = 3\n", f"last_evaluations = {value}\n"))
    with pytest.raises(
        InputError, match=r"last_evaluations(: expected a whole number, got| must be between 1 and 1000000)"
    ):
        planned(study)


def test_the_file_declares_its_intervals(study: Path) -> None:
    assert planned(study).interval == "sign-flip"
    for name, seeds in (("t", "0:3"), ("bca", "0:15")):
        study.write_text(f'interval = "{name}"\nseeds = "{seeds}"\n' + STUDY)
        assert planned(study).interval == name
    with pytest.raises(InputError, match=r'interval = "bca": covers too little below 15 seeds, and this has 14; take'):
        planned(study, seeds="0:14")
    study.write_text('interval = "bcaa"\n' + STUDY)
    with pytest.raises(InputError, match="interval: must be one of 'sign-flip', 't', 'bca', got 'bcaa'"):
        planned(study)
