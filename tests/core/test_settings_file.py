"""Settings: TOML and overrides in, one validated tree out, one line for every fault."""

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.settings_file import load_experiment, merge, parse_override, to_toml


def load(*overrides: str) -> Experiment:
    return load_experiment("gaussian", [parse_override(text) for text in overrides])


def test_defaults_survive_a_round_trip_through_toml(tmp_path: Path) -> None:
    experiment = load("traffic.seed=7", 'traffic.rsu=["a", "1,2:30"]', "learning.batch=32", "round.quorum=3")
    file = tmp_path / "experiment.toml"
    file.write_text(to_toml(experiment))
    assert load_experiment(str(file)) == experiment


def test_overrides_win_over_the_file_and_the_last_one_wins(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text('scenario = "gaussian"\nrounds = 3\n[round]\nquorum = 2\n')
    experiment = load_experiment(str(file), [(("round", "quorum"), 4), (("round", "quorum"), 5)])
    assert (experiment.rounds, experiment.round.quorum) == (3, 5)


def test_a_scenario_in_a_toml_file_is_found_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text('scenario = "net/x.sumocfg"\n')
    assert load_experiment(str(file)).scenario == str(tmp_path / "net/x.sumocfg")


def test_a_run_directory_gives_its_settings_and_becomes_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text('scenario = "gaussian"\nrounds = 3\n')
    experiment = load_experiment(str(tmp_path))
    assert (experiment.scenario, experiment.rounds) == (str(tmp_path), 3)


def test_another_learner_keeps_the_recorded_settings_that_it_knows(tmp_path: Path) -> None:
    text = 'scenario = "gaussian"\nlearner = "a"\n[learning]\nbatch = 8\nqueue = 5\n'
    (tmp_path / "experiment.toml").write_text(text)

    def learning(learner: str | None) -> dict[str, int]:
        overrides = [] if learner is None else [(("learner",), learner)]
        return dict(load_experiment(str(tmp_path), overrides, learner_settings=lambda _: {"batch", "lr"}).learning)

    assert learning("b") == {"batch": 8}
    assert learning("a") == learning(None) == {"batch": 8, "queue": 5}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("round.quorom=3", r"round: unknown key 'quorom'\. Did you mean 'quorum'\?"),
        ("rouns=3", r"unknown key 'rouns'\. Did you mean 'rounds'\?"),
        ("gaussian.v_min_mph=60", r"gaussian: unknown key 'v_min_mph'\. Did you mean 'v_min_kmh'\?"),
        ("rounds=1.5", r"rounds: expected a whole number, got 1\.5"),
        ("rounds=0", r"rounds must be at least 1, got 0"),
        ("seed=true", r"seed: expected a whole number, got True"),
        ("seed=-1", r"seed must be at least 0, got -1"),
        ("traffic.range_m=250m", r"traffic\.range_m: expected a number, got '250m'"),
        ("traffic.range_m=0", r"traffic\.range_m must be positive and finite, got 0\.0"),
        ("traffic.gui=1", r"traffic\.gui: expected true or false, got 1"),
        ("traffic.rsu=a", r"traffic\.rsu: expected a list of strings"),
        ("link.model=x", r"link\.model: must be one of 'tr37885', 'constant', got 'x'"),
        ("link.efficiency=1.5", r"link\.efficiency must be at most 1, got 1\.5"),
        ("gaussian.sd_kmh=0", r"gaussian\.sd_kmh must be positive and finite, got 0\.0"),
        ("gaussian.sd_kmh=nan", r"gaussian\.sd_kmh must be positive and finite, got nan"),
        ("gaussian.v_min_kmh=200", r"gaussian\.v_min_kmh must be below gaussian\.v_max_kmh, got 200\.0 and 150\.0"),
        ("round.invited=2", r"round\.invited must be at least round\.quorum \(5\), got 2"),
        ("round=3", r"round: expected a table, got 3"),
        ("round.quorum.x=3", r"round\.quorum: expected a whole number, got \{'x': 3\}"),
        ("silos.approaches=0", r"silos\.approaches must be in 1\.\.silos\.count \(95\), got 0"),
        ("camera.exposure_s=-1", r"camera\.exposure_s must be positive and finite, got -1\.0"),
        ("blur.fraction=2", r"blur\.fraction must be in \[0, 1\], got 2\.0"),
        ("x", r"--set x: write it as table\.key=value"),
    ],
)
def test_every_fault_is_one_line_that_names_key_and_value(override: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(override)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario = x", r"e\.toml: not valid TOML: .*line 1"),
        ("rounds = 3", r"e\.toml: it must name its traffic"),
        ('scenario = "gaussian"\nrouns = 3', r"e\.toml: unknown key 'rouns'"),
        ('scenario = "gaussian"\n[link]\nmodel = 3', r"e\.toml: link\.model: must be one of"),
    ],
)
def test_a_fault_of_the_file_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "e.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_experiment(str(file))


def test_a_missing_toml_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.toml: no such file"):
        load_experiment(str(tmp_path / "gone.toml"))


def test_every_default_can_be_set_by_its_own_name() -> None:
    experiment = load()
    for field in fields(experiment):
        table = getattr(experiment, field.name)
        if not is_dataclass(table):
            continue
        for leaf in fields(table):
            value = getattr(table, leaf.name)
            if value is None:
                continue
            assert load_experiment("gaussian", [((field.name, leaf.name), value)]) == experiment


@given(st.lists(st.text("abc", min_size=1), min_size=1, max_size=4), st.integers())
def test_merge_sets_exactly_one_path_and_keeps_its_argument(path: list[str], value: int) -> None:
    before: dict[str, object] = {"zzz": {"kept": 1}}
    after = merge(before, path, value)
    assert before == {"zzz": {"kept": 1}}
    assert after["zzz"] == {"kept": 1}
    node = after
    for name in path:
        node = node[name]
    assert node == value
