"""What is out of all proportion is said before it starts; what people run is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vnetsim.errors import InputError
from vnetsim.runs import effort
from vnetsim.runs.effort import effort_of, refuse_out_of_proportion
from vnetsim.scenario.settings_file import load_experiment, parse_override
from vnetsim.study.request import Request

CROSSING = Path(__file__).resolve().parents[2] / "scenarios" / "intersection.sumocfg"
STUDIES = Path(__file__).resolve().parents[2] / "scenarios" / "studies"


def of(*settings: str, scenario: str = "gaussian") -> Any:
    return load_experiment(scenario, [parse_override(text) for text in settings])


@pytest.mark.parametrize(
    ("settings", "learns", "words"),
    [
        (("gaussian.arrivals_per_s=1000", "gaussian.duration_s=1e8"), False, "by gaussian.arrivals_per_s x gaussian"),
        (("gaussian.arrivals_per_s=1000", "round.deadline_s=1e5", "rounds=1000000"), True, "arrivals_per_s x rounds"),
        (("link.update_s=0.01", "rounds=1000000", "round.invited=100"), True, "rounds x round.invited / link.update_s"),
        (("rounds=1000000", "learning.steps=1000", "learning.batch=512"), True, "learning.steps x learning.batch"),
    ],
)
def test_combinations_within_bounds_that_do_not_end(settings: tuple[str, ...], learns: bool, words: str) -> None:
    experiment = of(*settings)
    with pytest.raises(InputError, match=r"^This would take at least [\d.e+]+ days, [\d.e+]+ events and ") as caught:
        refuse_out_of_proportion([experiment], learns=learns, yes=False)
    assert words in str(caught.value)
    assert str(caught.value).endswith("; add --yes if it is meant.")
    refuse_out_of_proportion([experiment], learns=learns, yes=True)


def test_rounds_beyond_the_end_of_the_traffic_are_not_counted() -> None:
    """The fewest that fill it are: ten minutes hold at least ten of 60 s, and a thousand are no more than ten."""
    settings = ("link.update_s=0.01", "round.invited=100", "round.deadline_s=60", "gaussian.duration_s=600")
    ten, many = (effort_of(of(*settings, "traffic.repeat=false", f"rounds={n}"), learns=True) for n in (10, 1_000_000))
    assert ten.events == pytest.approx(many.events, rel=0.1)
    endless = of(*settings, "rounds=1000000")
    assert effort_of(endless, learns=True).events > 1e4 * many.events
    until = of(*settings, "traffic.end_s=600", "traffic.repeat=false", "rounds=1000000", scenario=str(CROSSING))
    assert effort_of(until, learns=True).events == 10 * 100 * 60 / 0.01


@pytest.mark.parametrize(("name", "image_bytes"), [("signs", 3072), ("road", 4096), ("npz", 784), ("a.py:B", 784)])
def test_memory_of_images_by_data_set(name: str, image_bytes: int) -> None:
    some, more = (effort_of(of(f"data.train_images={n}", f"data.name={name}"), learns=True) for n in (2000, 3000))
    assert more.memory_bytes - some.memory_bytes == pytest.approx(1000 * image_bytes)


def test_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "_memory_bytes", lambda: 8e9)
    images = of("data.train_images=10000000")
    assert effort_of(images, learns=True).memory_bytes > 30e9
    with pytest.raises(InputError, match=r"31 GB of memory \(there are 8 GB\), by data.train_images"):
        refuse_out_of_proportion([images], learns=True, yes=False)
    refuse_out_of_proportion([images], learns=False, yes=False)


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        (("learner=dsgd",), True),
        (("learner=cdl",), True),
        (("learner=cdl", "exchange.topology=star"), False),
        (("learner=fedavg-steering",), False),
        (("learner=fedefm", "learning.server=none"), True),
        (("learner=fedefm",), False),
        (("learner=fedco",), True),
        (("learner=fedco", "learning.key_encoder=visit"), False),
        (("learner=flsimco",), False),
    ],
)
def test_models_of_silos_count(settings: tuple[str, ...], keeps: bool) -> None:
    """At least 100 kB for each silo that takes part, where a learner keeps one."""
    few, many = (effort_of(of(*settings, f"silos.count={n}", "rounds=100000"), learns=True) for n in (100, 100_000))
    assert many.memory_bytes - few.memory_bytes == pytest.approx(99_900 * 1e5 if keeps else 0.0, rel=0.01)
    assert (many.largest == "silos.count, each with a model of its own") == keeps
    traffic = effort_of(of(*settings, "silos.count=100000"), learns=False)
    assert traffic.memory_bytes == 0
    begun = effort_of(of(*settings, "silos.count=100000", "rounds=1", "round.quorum=4"), learns=True)
    assert begun.memory_bytes < 1e9, "silos that did not take part have nothing"


def test_defaults_of_the_learner_count() -> None:
    """What is not set is what the learner takes: 8 steps of 64 images here."""
    unset, same, half = (
        effort_of(of("learner=flsimco", "rounds=1000", *more), learns=True)
        for more in ((), ("learning.steps=8", "learning.batch=64"), ("learning.steps=4",))
    )
    assert unset == same
    assert unset.time_s - half.time_s == pytest.approx(1000 * 5 * 4 * 64 * effort._TRAINED_S)


def test_evaluations_count() -> None:
    often, seldom = (effort_of(of("rounds=1000", f"evaluate_every={n}"), learns=True) for n in (1, 10))
    assert often.time_s - seldom.time_s == pytest.approx(900 * of().data.test_images * effort._EVALUATED_S)


@pytest.mark.parametrize("key", ["end_s", "warmup_s"])
def test_the_length_of_a_simulation_by_sumo_counts(key: str, tmp_path: Path) -> None:
    config = tmp_path / "fine.sumocfg"
    config.write_text('<configuration><time><step-length value="0.1"/></time></configuration>')
    for scenario, step_s in ((CROSSING, 0.5), (config, 0.1)):
        long = effort_of(of(f"traffic.{key}=1e9", scenario=str(scenario)), learns=False)
        assert long.time_s == pytest.approx(1e9 / step_s * effort._SUMO_STEP_S)
        assert long.most == "traffic.end_s and traffic.warmup_s"
    with pytest.raises(InputError, match=r"at least 5\.8 days, .* by traffic\.end_s and traffic\.warmup_s; add"):
        refuse_out_of_proportion([of(f"traffic.{key}=1e9", scenario=str(config))], learns=False, yes=False)
    few_rounds = of("traffic.end_s=1e9", "rounds=2", scenario=str(config))
    refuse_out_of_proportion([few_rounds], learns=True, yes=False)


def test_many_runs_add_up() -> None:
    one = of("rounds=100000", "round.quorum=8", "learning.steps=100", "learning.batch=512")
    refuse_out_of_proportion([one], learns=True, yes=False)
    with pytest.raises(InputError, match="days"):
        refuse_out_of_proportion([one] * 2, learns=True, yes=False)


@pytest.mark.parametrize("settings", [(), ("rounds=1000",), ("gaussian.duration_s=1e6", "gaussian.arrivals_per_s=1")])
def test_what_people_run_is_not_asked_about(settings: tuple[str, ...]) -> None:
    for learns in (True, False):
        refuse_out_of_proportion([of(*settings)], learns=learns, yes=False)


def test_no_shipped_study_is_asked_about() -> None:
    for path in STUDIES.glob("*.toml"):
        plan, _ = Request(scenario=str(path), yes=True).plan([])
        refuse_out_of_proportion([cell.experiment for cell in plan.cells], learns=True, yes=False)


@pytest.mark.parametrize("command", [("mobility",), ("run",), ("compare", "--learners", "fedavg,flsimco")])
def test_every_command_asks(
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from vnetsim.cli.commands import main  # noqa: PLC0415

    def started(*_: object, **__: object) -> Callable[..., None]:
        raise InputError("it was started")

    monkeypatch.chdir(tmp_path)
    for name in ("runs.runner.start_run", "runs.traffic_recording.record_mobility", "study.runner.compare"):
        monkeypatch.setattr(f"vnetsim.{name}", started)
    settings = ("--set", "gaussian.arrivals_per_s=1000", "--set", "gaussian.duration_s=1e8", "--set", "rounds=1000000")
    for more, words in ((), "add --yes"), (("--yes",), "it was started"):
        with pytest.raises(SystemExit) as stopped:
            main([command[0], "gaussian", *command[1:], *settings, *more])
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
