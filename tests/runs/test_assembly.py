"""What a run is made of is found once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import vnetsim
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import Kind
from vnetsim.runs.assembly import assemble
from vnetsim.storage import structure

SCENARIOS = Path(__file__).parents[2] / "scenarios"
TINY = {"silos": {"count": 10}, "data": {"train_images": 400, "test_images": 50}, "learning": {"steps": 1}}


def test_a_run_finds_every_plugin_and_checks_every_setting_once(tmp_path, monkeypatch):
    found: Counter[tuple[str, str]] = Counter()
    made: Counter[type] = Counter()
    find, converter = Kind.find, structure._make_converter

    def finding(kind: Kind, name: str) -> type[Any]:
        found[kind.name, name] += 1
        return find(kind, name)

    class Counting:
        def __init__(self, **how: bool) -> None:
            self._how = how

        def structure(self, values: Any, kind: type) -> Any:
            made[kind] += 1
            return converter(**self._how).structure(values, kind)

    monkeypatch.setattr(Kind, "find", finding)
    monkeypatch.setattr(structure, "_make_converter", Counting)
    learner = "fedavg-classification"
    vnetsim.run("gaussian", learner=learner, rounds=1, settings=TINY, out=tmp_path / "run", progress=False)
    assert {kind for kind, _ in found} > {"learner", "selection policy", "pace", "radio model", "traffic source"}
    assert {plugin: times for plugin, times in found.items() if times != 1} == {}
    assert (made[Experiment], made[LEARNERS.find(learner).Settings]) == (1, 1)


def test_a_model_on_the_clock_takes_the_place_of_that_of_the_schedules_learner():
    given: dict[str, Any] = {**TINY, "schedule.learner": "fedco", "schedule.learning": {"batch": 8, "steps": 2}}
    costs = {}
    for model, images in (("trained", None), ("resnet18", 32)):
        cost = {"cost.model": model, "cost.images": images}
        experiment = vnetsim.Experiment("gaussian", learner="flsimco", settings={**given, **cost})
        assembly = assemble(experiment)
        learner, costs[model] = assembly.make_learner(assembly.context("cpu"))
        assert learner.name == "flsimco"
    trained, charged = costs["trained"][0], costs["resnet18"][0]
    assert trained.model is not None
    assert trained.model.other_upload_bytes == 8 * 128 * 4, "a batch of keys"
    assert charged.upload_bytes == 44_976_544 + 32 * 128 * 4, "the keys of 32 images"
    assert charged.download_bytes == 44_976_544 + 4096 * 128 * 4, "the published queue"
    assert charged.work_flop == 32 * 4 * 1_110_966_272, "forward and backward for the query, forward for the key"


def test_buildings_of_a_sumo_scenario_are_found_recorded_and_the_same_in_a_replay(tmp_path):
    """A house over the western road hides those who are behind it."""
    shipped, config = SCENARIOS / "intersection", tmp_path / "housed.sumocfg"
    houses, more = tmp_path / "houses.add.xml", tmp_path / "more.add.xml"
    house = '<additional><poly id="h" type="building.yes" shape="-150,-60 -100,-60 -100,60 -150,60"/></additional>'
    houses.write_text(house)

    def write(*files: Path) -> None:
        config.write_text(
            f'<configuration><net-file value="{shipped}/intersection.net.xml"/>'
            f'<route-files value="{shipped}/intersection.rou.xml"/>'
            f'<additional-files value="{", ".join(map(str, (shipped / "intersection.add.xml", *files)))}"/>'
            '<end value="60"/><step-length value="0.5"/></configuration>'
        )

    def run(scenario: Path, name: str, **settings: Any) -> Any:
        return vnetsim.run(
            scenario, learner="flsimco", settings=settings, timing_only=True, progress=False, out=tmp_path / name
        )

    write(houses)
    found = run(config, "found", **{"radio.state": "polygons"})
    assert found.settings["radio"]["file"] == str(houses)
    states = found.manifest["radio"]["links"]["states"]
    assert states["behind buildings"] > 50
    again = run(tmp_path / "found" / "experiment.toml", "again")
    replayed = run(tmp_path / "found", "replayed", radio=found.settings["radio"])
    assert again.manifest["radio"]["links"]["states"] == states == replayed.manifest["radio"]["links"]["states"]
    more.write_text(house)
    for files, says in (
        ((), "none of its additional files has polygons of buildings"),
        ((houses, more), "2 of its additional files have polygons of buildings"),
    ):
        write(*files)
        with pytest.raises(InputError, match=rf"housed\.sumocfg: radio\.state = polygons: {says}.*name one"):
            assemble(vnetsim.Experiment(config, settings={"radio.state": "polygons"}))


def test_a_computer_for_a_type_that_nobody_drives_is_refused(tmp_path):
    known, config = "truck", SCENARIOS / "intersection.sumocfg"
    for name in (known, "xway_coach", "bus"):
        assemble(vnetsim.Experiment(config, settings={"compute.by_type": {name: "agx-orin"}}))
    for name in ("lorry", "DEFAULT_VEHTYPE"):
        says = rf"nobody in .*intersection\.sumocfg is of vehicle type '{name}'; there are bus, delivery.*xway_truck\."
        with pytest.raises(InputError, match=r"compute\.by_type: " + says):
            assemble(vnetsim.Experiment(config, settings={"compute.by_type": {known: "agx-orin", name: "agx-orin"}}))
    including = tmp_path / "including.sumocfg"
    (tmp_path / "types.rou.xml").write_text('<routes><include href="others.rou.xml"/></routes>')
    including.write_text(
        '<configuration><net-file value="no.net.xml"/><route-files value="types.rou.xml"/></configuration>'
    )
    assemble(vnetsim.Experiment(including, settings={"compute.by_type": {"lorry": "agx-orin"}}))
    (tmp_path / "types.rou.xml").write_text(
        '<routes><vType id="idle"/><vType id="a"/><vType id="b"/><vTypeDistribution id="ab" vTypes="a b"/>'
        '<trip id="t" type="cd"/><flow id="f"/><trip id="u" type="ab"/>'
        '<vTypeDistribution id="cd"><vType id="c"/><vType id="d"/></vTypeDistribution></routes>'
    )
    for name in ("a", "b", "c", "d", "DEFAULT_VEHTYPE"):
        assemble(vnetsim.Experiment(including, settings={"compute.by_type": {name: "agx-orin"}}))
    with pytest.raises(InputError, match=r"of vehicle type 'idle'; there are DEFAULT_VEHTYPE, a, b, c, d\."):
        assemble(vnetsim.Experiment(including, settings={"compute.by_type": {"idle": "agx-orin"}}))
