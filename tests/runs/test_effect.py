"""A setting that a user gives and that has no effect is refused; what it needs is declared beside it."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

import vnetsim
from vnetsim.cli.lookup import kinds
from vnetsim.errors import bounds
from vnetsim.errors.bounds import Acts, acts_of, needed
from vnetsim.experiment import Experiment
from vnetsim.runs.effect import OF_DATA_SET, OF_PACE
from vnetsim.scenario.settings_file import to_toml
from vnetsim.setting_texts import setting_texts, tables_of
from vnetsim.study.request import plan_of

FACTS = {one.key for one in vars(bounds).values() if isinstance(one, Acts)}
FACTS |= {needed("pace", key).key for key in OF_PACE} | {needed("data set", key).key for key in OF_DATA_SET}


def classes() -> Iterator[tuple[str, type]]:
    yield "", Experiment
    yield from tables_of(Experiment).items()
    for kind in kinds():
        for name in kind.names():
            yield kind.table, kind.settings_of(kind.find(name))


def fault(call: Any, *args: Any, **keys: Any) -> str:
    try:
        call(*args, **keys)
    except vnetsim.InputError as error:
        return str(error)
    return ""


def test_what_a_setting_needs_is_a_setting_or_a_known_fact():
    known = {text.key for table, kind in classes() for text in setting_texts(kind, table)}
    for _, kind in classes():
        for name, needs in acts_of(kind).items():
            for one in needs:
                assert one.key in (FACTS if one.is_fact else known), f"{kind.__name__}.{name}: {one.key}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topology__edge_rounds": 1}, "topology.edge_rounds: means nothing with topology.kind = 'single'; it"),
        ({"topology__cloud_deadline_s": 9}, "it acts with topology.kind = 'hierarchical'. Leave it out"),
        ({"topology__kind": "per-rsu", "topology__reset": "in-flight"}, "topology.reset: means nothing with topology"),
        ({"topology__kind": "peers", "topology__range_m": 9}, "topology.range_m: means nothing with topology.peers"),
        ({"association__trigger_s": 1}, "association.trigger_s: means nothing with association.rule = 'first'"),
        ({"handover__longest_gap_s": 1}, "handover.longest_gap_s: means nothing with handover.policy = 'drop'"),
        ({"radio__state": "los", "radio__truck_share": 0.1}, "radio.truck_share: means nothing with radio.state"),
        ({"data__alpha": 0.1}, "data.alpha: means nothing with data.partition = 'iid'"),
        ({"data": {"image_px": 24}}, "data.image_px: means nothing here; it acts with a data set that"),
        ({"settings": {"silos": {"replaced_share": 0.2}}}, "silos.replaced_share: means nothing with silos.by"),
        ({"pace": "coverage", "round__quorum": 3}, "round.quorum: means nothing here; it acts with a pace that needs"),
        ({"pace": "coverage", "selection": "age"}, "selection.name: means nothing here; it acts with a pace"),
        ({"compute__fleet": {"ecu": 1.0}, "compute__preset": "ecu"}, "compute.preset: means nothing with compute"),
        ({"learner": "cdl", "learning__beta": 0.3}, "learning.beta: means nothing with learning.coupling = 'unit'"),
        ({"learning__trim": 0.2}, "learning.trim: means nothing with learning.aggregation = 'mean'"),
        ({"scenario": "x.csv", "source__sd_kmh": 3}, "source.sd_kmh: means nothing here; it acts with a scenario that"),
        ({"data__alpha": 0.1, "data__partition": "dirichlet"}, ""),
        ({"pace": "mob-fl", "selection": "age", "learner": "fedavg-classification"}, ""),
        ({"topology": Experiment(scenario="gaussian").topology}, ""),
    ],
)
def test_a_setting_without_effect_is_refused(given, message):
    said = fault(vnetsim.Experiment, **{"scenario": "gaussian", **given})
    assert message in said
    assert bool(message) == bool(said)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"handover__policy": "forward"}, "handover.policy: means nothing here; it acts with two RSUs or more, or"),
        ({"handover__policy": "forward", "handover__longest_gap_s": 2}, ""),
        ({"radio__interference": "co-channel"}, "radio.interference: means nothing here; it acts with two RSUs"),
        ({"exchange__range_m": 9}, "exchange.range_m: means nothing here; it acts with a learner whose vehicles exch"),
        ({"learner": "dsgd", "exchange__topology": "star"}, ""),
        ({"learning__lr": 0.1, "timing_only": True}, "learning.lr: means nothing here; it acts with training, which"),
        ({"evaluate_every": 2, "timing_only": True}, "evaluate_every: means nothing here; it acts with training"),
        ({"learning__steps": 3, "timing_only": True}, ""),
    ],
)
def test_a_run_knows_its_rsus_and_its_learner(given, message, tmp_path):
    few = {"silos__count": 5, "data": {"train_images": 60, "test_images": 9}, "traffic__end_s": 20, "rounds": 1}
    timing = {"timing_only": True, "progress": False, "out": tmp_path / "out"}
    said = fault(vnetsim.run, "gaussian", **(few | {"learner": "fedavg-classification"} | timing | given))
    assert message in said
    assert bool(message) == bool(said)
    assert (tmp_path / "out").exists() == (not message)


def test_a_file_is_refused_too_unless_the_call_took_the_effect_away_or_it_is_a_record(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('scenario = "gaussian"\ndata.alpha = 0.3\n')
    assert fault(vnetsim.Experiment, file).startswith(f"{file}: data.alpha: means nothing with data.partition = 'iid'")
    assert vnetsim.Experiment(file, data__partition="dirichlet").data.alpha == 0.3
    file.write_text('scenario = "gaussian"\ndata.alpha = 0.3\ndata.partition = "dirichlet"\n')
    made = vnetsim.Experiment(file, data__partition="iid")
    assert made.data.alpha == 0.3
    file.write_text(to_toml(made))
    assert vnetsim.Experiment(file) == made
    assert dataclasses.replace(made, rounds=3).rounds == 3


@pytest.mark.parametrize(
    ("study", "options", "message"),
    [
        ("settings.data.alpha = 0.3", [], "study.toml: data.alpha: means nothing with data.partition = 'iid'"),
        ("settings.data.alpha = 0.3\ngrid.data.partition = ['iid', 'dirichlet']", [], ""),
        ("", [(("data", "alpha"), 0.3)], "data.alpha: means nothing with data.partition = 'iid'"),
        ("grid.data.partition = ['iid', 'dirichlet']", [(("data", "alpha"), 0.3)], ""),
        ("settings.round.invited = 9\n[sizes.a]\nnotes = []\n[sizes.b.settings]\npace.name = 'coverage'", [], ""),
        ("[sizes.b.settings]\nround.invited = 9\npace.name = 'coverage'", [], "toml (size b): round.invited: means"),
    ],
)
def test_a_study_is_refused_what_acts_in_none_of_its_cells(study, options, message, tmp_path):
    path, arms = tmp_path / "study.toml", '[[arms]]\nlearner = "fedavg"\n[[arms]]\nlearner = "flsimco"\n'
    path.write_text(f'scenario = "gaussian"\n{study}\n{arms}')
    said = fault(plan_of, str(path), options, size="b" if "sizes" in study else None)
    assert message in said
    assert bool(message) == bool(said)


def test_a_comparison_knows_its_rsus(tmp_path):
    given = {"traffic.end_s": 20, "silos.count": 5, "handover.policy": "forward"}
    asked = {"learners": "fedavg-classification", "timing_only": True, "seeds": [0], "progress": False}
    said = fault(vnetsim.compare, "gaussian", settings=given, out=tmp_path / "out", **asked)
    assert said.startswith("handover.policy: means nothing here; it acts with two RSUs or more")
    assert not (tmp_path / "out").exists()


def test_rounds_of_the_settings_count_without_training_too(tmp_path):
    given = {"rounds": 1, "silos.count": 5, "data.train_images": 60, "data.test_images": 9, "traffic.end_s": 90}
    asked = {"learner": "fedavg-classification", "timing_only": True, "progress": False}
    assert vnetsim.run("gaussian", settings=given, out=tmp_path / "out", **asked).rounds.height == 1
