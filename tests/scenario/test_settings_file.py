"""Settings: TOML and overrides in, one validated tree out, one line for every fault."""

import json
from dataclasses import fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest
from received import reseal

from vnetsim.errors import InputError, RunError
from vnetsim.experiment import Experiment
from vnetsim.scenario.settings_file import load_experiment, parse_override, read_experiment, to_toml


def load(*overrides: str) -> Experiment:
    return load_experiment("gaussian", [parse_override(text) for text in overrides])


def test_defaults_survive_a_round_trip_through_toml(tmp_path):
    experiment = load("traffic.seed=7", 'traffic.rsu=["a", "1,2:30"]', "learning.batch=32", "round.quorum=3")
    file = tmp_path / "experiment.toml"
    file.write_text(to_toml(experiment))
    assert load_experiment(str(file)) == experiment


def test_overrides_win_over_the_file_and_the_last_one_wins(tmp_path):
    file = tmp_path / "e.toml"
    file.write_text('scenario = "gaussian"\nrounds = 3\n[round]\nquorum = 2\ninvited = 8\n')
    experiment = load_experiment(str(file), [(("round", "quorum"), 4), (("round", "quorum"), 5)])
    assert (experiment.rounds, experiment.round.quorum) == (3, 5)
    for table, expected in (({}, (2, 8)), ({"quorum": 1}, (1, 3))):
        found = load_experiment(str(file), [(("round",), table)]).round
        assert (found.quorum, found.invited) == expected


def test_a_scenario_in_a_toml_file_is_found_beside_it(tmp_path):
    file = tmp_path / "e.toml"
    file.write_text('scenario = "net/x.sumocfg"\n')
    assert load_experiment(str(file)).scenario == str(tmp_path / "net/x.sumocfg")


def test_a_run_directory_gives_its_settings_and_becomes_the_scenario(tmp_path):
    (tmp_path / "experiment.toml").write_text('scenario = "gaussian"\nrounds = 3\n')
    reseal(tmp_path)
    experiment = load_experiment(str(tmp_path))
    assert (experiment.scenario, experiment.rounds) == (str(tmp_path), 3)


def learner(name: str, defaults: dict[str, Any] | None = None, *settings: str) -> Any:
    """Return as much of a learner as settings depend on."""
    made = make_dataclass("Settings", [(setting, int, 1) for setting in settings], frozen=True, kw_only=True)
    return type(name, (), {"name": name, "Settings": made, "defaults": defaults or {}})


class Learners(dict[str, Any]):
    """Learners that are found by their names."""

    def read(self, scenario: Path | str, *overrides: str) -> Experiment:
        """Return an experiment with one of these learners."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vnetsim.plugins.Kind.find", lambda _, name: self[name])
            return read_experiment(str(scenario), [parse_override(text) for text in overrides])[0]


def test_another_learner_keeps_the_recorded_settings_that_it_knows(tmp_path):
    text = 'scenario = "gaussian"\nlearner = "a"\n[learning]\nbatch = 8\nqueue = 5\n'
    (tmp_path / "experiment.toml").write_text(text)
    reseal(tmp_path)

    learners = Learners(a=learner("a", {}, "batch", "queue"), b=learner("b", {}, "batch", "lr"))
    assert learners.read(tmp_path, "learner=b").learning == {"batch": 8}
    assert learners.read(tmp_path, "learner=a").learning == {"batch": 8, "queue": 5}
    assert learners.read(tmp_path).learning == {"batch": 8, "queue": 5}


OWN = {"data.name": "road", "rounds": 7, "round.quorum": 3}


def test_a_learners_defaults_stand_between_the_general_ones_and_the_file(tmp_path):
    file = tmp_path / "e.toml"
    file.write_text('scenario = "gaussian"\nrounds = 9\n[data]\nalpha = 2.0\n')
    learners = Learners(flsimco=learner("flsimco", {"seed": 4}), x=learner("x", OWN))
    by_option = learners.read(file, 'learner="x"', "round.quorum=2")
    assert (by_option.data.name, by_option.data.alpha) == ("road", 2.0)
    assert (by_option.rounds, by_option.round.quorum, by_option.seed) == (9, 2, 0)
    assert learners.read("gaussian").seed == 4, "that of the learner nobody named"
    file.write_text('scenario = "gaussian"\nlearner = "x"\n')
    assert learners.read(file).rounds == 7
    assert load_experiment(str(file)).rounds is None, "no learner is looked at"


def test_a_value_that_clashes_with_a_learners_default_is_told(tmp_path):
    learners = Learners(x=learner("x", {"round.quorum": 8, "round.invited": 8}))
    file = tmp_path / "e.toml"
    file.write_text('scenario = "gaussian"\nlearner = "x"\n[round]\ninvited = 6\n')
    says = r"e\.toml.*round\.quorum \(8\).*defaults of its own: round\.quorum, round\.invited\."
    with pytest.raises(InputError, match=says) as told:
        learners.read(file)
    assert "\n" not in str(told.value)
    assert learners.read(file, "round.quorum=6").round.quorum == 6
    file.write_text('scenario = "gaussian"\nlearner = "x"\n')
    with pytest.raises(InputError, match=r"^round\.invited .* got 5\.$"):
        learners.read(file, "round.quorum=6", "round.invited=5")
    file.write_text('scenario = "gaussian"\nlearner = "x"\nround = 3\n')
    with pytest.raises(InputError, match=r"round: expected a table, got 3\.$"):
        learners.read(file)


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"data": {"name": "road"}}, r"data: expected dotted keys"),
        ({"learning.batch": 3}, r"learning\.batch is not among what they may set"),
        ({"learner": "x"}, r"learner is not among what they may set"),
    ],
)
def test_wrong_defaults_of_a_learner_name_it(defaults, message):
    with pytest.raises(RunError, match=f"learner 'x': its own defaults are wrong: {message}"):
        Learners(x=learner("x", defaults)).read("gaussian", "learner=x")


@pytest.mark.parametrize("recorded_by", ["old", "mobility"])
def test_a_replay_with_another_learner_exchanges_defaults_but_not_what_was_set(tmp_path, recorded_by):
    old = {"data.name": "road", "traffic.seed": 5, "round.quorum": 3, "round.invited": 4}
    kinds = Learners(old=learner("old", old), new=learner("new", {"silos.count": 11, "round.quorum": 2}))
    # the user had set round.invited
    set_ = "learner=old", "round.invited=6"
    given = kinds.read("gaussian", *set_) if recorded_by == "old" else load(*set_)
    (tmp_path / "experiment.toml").write_text(to_toml(given))
    manifest = {"kind": "run", "learner_defaults": old} if recorded_by == "old" else {"kind": "mobility"}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    reseal(tmp_path)

    new = kinds.read(tmp_path, "learner=new")
    assert (new.data.name, new.traffic.seed, new.silos.count) == ("signs", None, 11)
    assert (new.round.quorum, new.round.invited) == (2, 6)
    again = kinds.read(tmp_path)
    assert (again.data.name, again.traffic.seed, again.silos.count) == ("road", 5, 95)
    assert (again.round.quorum, again.round.invited) == (3, 6)
    assert kinds.read(tmp_path, "learner=old") == again


def test_a_replay_with_other_data_leaves_the_partition_of_the_recorded_set(tmp_path):
    kinds = Learners(old=learner("old", {}), own=learner("own", {"data.partition": "label-skew"}))
    for name in ("old", "own"):
        given = kinds.read("gaussian", f"learner={name}", "data.name=drive")
        assert given.data.partition == "vehicle"
        (tmp_path / "experiment.toml").write_text(to_toml(given))
        (tmp_path / "manifest.json").write_text(json.dumps({"kind": "run", "learner_defaults": {}}))
        reseal(tmp_path)
        assert kinds.read(tmp_path).data.partition == "vehicle"
        expected = "iid" if name == "old" else "label-skew"
        assert kinds.read(tmp_path, "data.name=gtsrb").data.partition == expected


def test_a_learners_file_is_found_beside_the_toml_file_that_names_it(tmp_path):
    (tmp_path / "e.toml").write_text('scenario = "gaussian"\nlearner = "sub/mine.py:Mine"\n')
    assert load_experiment(str(tmp_path / "e.toml")).learner == f"{tmp_path / 'sub' / 'mine.py'}:Mine"


@pytest.mark.parametrize("named", ["sub/file", "/elsewhere/file", ""])
def test_files_are_found_beside_the_toml_file_that_names_them(tmp_path, named):
    tables = f'[traffic]\nnet = "{named}"\nrsu = ["{named}.xml", "A1"]\n[data]\nroot = "{named}"\n'
    (tmp_path / "e.toml").write_text(f'scenario = "gaussian"\n{tables}')
    found = str(tmp_path / named) if named else ""
    experiment = load_experiment(str(tmp_path / "e.toml"))
    assert [experiment.traffic.net, experiment.data.root] == [found] * 2
    assert experiment.traffic.rsu == (str(tmp_path / f"{named}.xml"), "A1")
    # what the command line names is seen from where the user is
    given = load_experiment(str(tmp_path / "e.toml"), [(("traffic", "rsu"), ["mine.xml"])])
    assert (given.traffic.rsu[0], given.traffic.net) == ("mine.xml", found)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("round.quorom=3", r"round: unknown key 'quorom'\. Did you mean 'quorum'\?"),
        ("rouns=3", r"unknown key 'rouns'\. Did you mean 'rounds'\?"),
        ("rounds=1.5", r"rounds: expected a whole number, got 1\.5"),
        ("seed=true", r"seed: expected a whole number, got True"),
        ("traffic.range_m=250m", r"traffic\.range_m: expected a number, got '250m'"),
        ("traffic.gui=1", r"traffic\.gui: expected true or false, got 1"),
        ("traffic.rsu=a", r"traffic\.rsu: expected a list of strings"),
        ("radio=3", r"radio: expected a table, got 3"),
        ("round.invited=2", r"round\.invited must be at least round\.quorum \(3\), got 2"),
        ("round=3", r"round: expected a table, got 3"),
        ("round.quorum.x=3", r"round\.quorum: expected a whole number, got \{'x': 3\}"),
        ("x", r"--set x: write it as table\.key=value"),
    ],
)
def test_every_fault_is_one_line_that_names_key_and_value(override, message):
    with pytest.raises(InputError, match=message) as caught:
        load(override)
    assert "\n" not in str(caught.value)


def test_settings_of_a_plug_in_do_not_go_to_another_that_takes_its_place(tmp_path):
    file = tmp_path / "e.toml"
    file.write_text(
        'scenario = "gaussian"\nradio.environment = "highway"\nselection = { name = "oort", alpha = 3.0 }\n'
    )
    rate = (("radio", "rate_bps"), 1e6)
    given = load_experiment(str(file), [rate, (("radio", "name"), "constant"), (("selection", "name"), "oort")])
    assert given.radio == {"rate_bps": 1e6, "name": "constant"}
    assert given.selection == {"name": "oort", "alpha": 3.0}
    assert load_experiment(str(file), [(("radio", "name"), "tr37885")]).radio["environment"] == "highway"
    file.write_text(
        'scenario = "gaussian"\ndata.name = "my.py:Mine"\ndata.period_px = 4\nlearning.encoder = "my.py:Net"\n'
        'encoder.width = 8\nselection = { name = "my.py:Policy", margin = 0.5 }\n'
    )
    given = load_experiment(str(file), [(("data", "name"), "signs"), (("learning", "encoder"), "small")])
    assert (given.data.own, given.encoder) == ({}, {})


def test_a_file_named_from_another_folder_is_no_other_plug_in(tmp_path, monkeypatch):
    file = tmp_path / "e.toml"
    file.write_text('scenario = "gaussian"\nselection = { name = "my.py:Policy", margin = 0.5 }\n')
    monkeypatch.chdir(tmp_path.parent)
    name = f"{tmp_path.name}/my.py:Policy"
    assert load_experiment(str(file), [(("selection", "name"), name)]).selection["margin"] == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario = x", r"e\.toml: not valid TOML: .*line 1"),
        ("rounds = 3", r"e\.toml: it must name its traffic"),
        ('scenario = "gaussian"\nrouns = 3', r"e\.toml: unknown key 'rouns'"),
        (
            'scenario = "gaussian"\n"round.quorum" = 2\nround = 3',
            r"e\.toml: round\.quorum: 'round' is a value, not a table",
        ),
        ('scenario = "gaussian"\n[blur]\nfraction = "x"', r"e\.toml: blur\.fraction: expected a number, got 'x'"),
    ],
)
def test_a_fault_of_the_file_names_the_file(tmp_path, text, message):
    file = tmp_path / "e.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_experiment(str(file))


def test_a_missing_toml_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.toml: no such file"):
        load_experiment(str(tmp_path / "gone.toml"))


def test_every_default_can_be_set_by_its_own_name():
    experiment = load()
    for field in fields(experiment):
        table = getattr(experiment, field.name)
        if not is_dataclass(table):
            continue
        for leaf in fields(table):
            value = getattr(table, leaf.name)
            if value is None or leaf.metadata:
                continue
            assert load_experiment("gaussian", [((field.name, leaf.name), value)]) == experiment


def test_a_mark_of_utf_8_is_no_part_of_a_file(tmp_path):
    (tmp_path / "a.toml").write_bytes(b'\xef\xbb\xbfscenario = "gaussian"\n')
    assert load_experiment(str(tmp_path / "a.toml")).scenario == "gaussian"
