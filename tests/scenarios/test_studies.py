"""The shipped studies: every size is planned, and the quick one of each is run."""

import fnmatch
import functools
import html
import json
import math
import re
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import tomli_w
from small_runs import execute

from learners.data.partition import partition
from vnetsim.experiment import DataSettings
from vnetsim.scenario.shipped import copy_scenarios
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.plan import Plan
from vnetsim.study.request import plan_of

FOLDER = Path(__file__).parents[2] / "scenarios" / "studies"

FILES = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}
SIZES = [(name, size) for name, file in FILES.items() for size in file["sizes"]]
NETS = {
    **{("selection", size): 3 for size in ("small", "cifar10", "paper")},
    **{("mobility", size): nets for size, nets in (("small", 2), ("patterns", 4), ("corridor", 1), ("cifar10", 4))},
    **{(name, size): 2 for name in ("fedcs", "oort") for size in ("small", "cifar10")},
    ("middle", "cifar10"): 2,
    **{("payload", size): 2 for size in ("small", "signs")},
}
"""Traffics of a seed, if several: nets, discs, speeds. On the corridor two seeds share those of two limits."""
GALLERY = ("fedcs", "mach", "middle", "oort")
"""Studies that end with the traffic, of papers in kind."""
QUICK = {
    "steering": ("data.train_images=330", "learning.test_frames=50", "learning.steps=2"),
    "classification": ("data.train_images=800", "data.test_images=100", "learning.steps=2", "learning.local_test=50"),
    "contrastive": (
        *("data.train_images=1900", "data.test_images=100", "learning.bank=200"),
        *("learning.steps=1", "learning.batch=16", "learning.linear_probe=never"),
    ),
}
"""Less of everything, for the learners of a task."""
SAME_VEHICLES = (
    *("cdl-optimizer", "cdl-schedule", "cdl-table", "fedefm-similarity"),
    *("flsimco-approach", "flsimco-fig3", "flsimco-fig5", "flsimco-negatives"),
)
"""Studies in whose arms the same vehicles commit."""
ONE_CONDITION = ("fedefm-ablation", "fedefm-full-contact", "fedefm-similarity", "flsimco-fig4", "flsimco-negatives")
"""Studies whose conditions differ in how the data are dealt alone: the last of them is run."""
TASKS = {
    "cdl-optimizer": "steering",
    "cdl-schedule": "steering",
    "cdl-table": "steering",
    "drive-handover": "classification",
    "fedefm-ablation": "classification",
    "fedefm-full-contact": "classification",
    "fedefm-similarity": "classification",
}


@functools.cache
def planned(name: str, size: str | None = None, folder: Path = FOLDER) -> Plan:
    return plan_of(str(folder / f"{name}.toml"), [], size=size, yes=name in ("mobility", "selection"))[0]


def test_the_readme_lists_every_study():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, file in FILES.items():
        assert f"[`{name}.toml`]({name}.md)" in readme
        assert next(iter(file["sizes"])) == ("labels" if name == "headline" else "small"), "the default"
        assert any(note.startswith("Assumed: ") for note in file["notes"])


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_every_size_is_planned_without_its_data_and_has_seeds_enough_to_resolve_a_pair(name, size):
    """The least p-value of n paired differences is 2 / 2^n (all signs alike), times the pairs."""
    plan = planned(name, size)
    seeds = len({cell.experiment.seed for cell in plan.cells})
    assert len(plan.traffics) == NETS.get((name, size), 1) * seeds, "a traffic for each seed and net or speed"
    arms = Counter(cell.condition for cell in plan.cells if cell.experiment.seed == 0)
    pairs = {count - 1 if plan.against else math.comb(count, 2) for count in arms.values()}
    assert 2 / 2**seeds * max(pairs) < 0.05


@pytest.mark.parametrize("size", ["small", "cifar10", "paper"])
def test_arms_of_the_study_of_asynchrony_are_evaluated_after_as_many_uploads(size):
    plan = planned("asynchrony", size)
    uploads = {cell.experiment.evaluate_every * cell.experiment.round.quorum for cell in plan.cells}
    assert uploads == {10}
    rules = {cell.experiment.aggregation.get("name", "sync"): cell.experiment.round for cell in plan.cells}
    stale = {rule: (rounds.quorum, rounds.max_staleness > 0) for rule, rounds in rules.items()}
    assert stale == {"sync": (5, False), "fedbuff": (5, True), "fedasync": (1, True)}
    # an upload in every tenth of a second would not end it before the traffic
    assert all(cell.experiment.rounds > 10 * cell.experiment.traffic.end_s for cell in plan.cells)


@pytest.mark.slow
def test_the_study_of_asynchrony_ends_with_the_traffic_in_every_arm(tmp_path):
    options = ("--set", "traffic.end_s=80", "--set", "data.train_images=400", "--set", "data.test_images=40")
    options = ("--seeds", "0:1", "--device", "cpu", *options, "--out", tmp_path / "s")
    assert execute("compare", FOLDER / "asynchrony.toml", *options).status == 0
    record = json.loads((tmp_path / "s" / "comparison.json").read_text())
    runs = {cell["arm"]: RunDirectory(tmp_path / "s" / "cells" / cell["folder"]) for cell in record["cells"]}
    assert {(run.manifest()["ended_by"], run.manifest()["time_s"]) for run in runs.values()} == {("traffic", 80.0)}
    uploads = {arm: run.read("rounds")["committed"].sum() for arm, run in runs.items()}
    assert uploads["sync"] < min(uploads["FedBuff"], uploads["FedAsync"])
    for arm, run in runs.items():
        committed = run.read("participations").filter(outcome="committed")
        assert (committed["round"] > committed["base_round"]).any() == (arm != "sync")


def test_a_copy_of_the_scenarios_has_studies_that_can_be_planned(tmp_path):
    copy_scenarios(tmp_path / "mine")
    for name in FILES:
        plan = planned(name, folder=tmp_path / "mine" / "studies")
        assert len(plan.cells) == len(planned(name).cells)
        assert all(
            one.scenario in ("gaussian", "jumps") or Path(one.scenario).is_relative_to(tmp_path)
            for one in plan.traffics
        )


def test_hostile_vehicles_that_the_study_names_are_in_its_scenario():
    """A renamed flow would leave nobody hostile."""
    conditions = {one["name"]: one for one in FILES["hostile"]["conditions"]}
    named = conditions["sign-flip on the street"]["settings"]["hostile"]["vehicles"]
    routes = (FOLDER.parent / "intersection").glob("*.rou.xml")
    flows = re.findall(r'<flow id="(.*?)"', "".join(path.read_text(encoding="utf-8") for path in routes))
    assert all(fnmatch.filter([f"{flow}.0" for flow in flows], pattern) for pattern in named)


def with_condition(name: str, condition: str, scenarios: Path) -> Path:
    """Return the path of a copy of a study that has one of its conditions."""
    copy_scenarios(scenarios)
    path = scenarios / "studies" / f"{name}.toml"
    file = tomllib.loads(path.read_text(encoding="utf-8"))
    file["conditions"] = [one for one in file["conditions"] if one["name"] == condition]
    file["sizes"]["small"].pop("skip", None)
    path.write_text(tomli_w.dumps(file), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sorted(
        FILES.keys() - {"asynchrony", "headline", "hostile", "methods", "mobility", "payload", "selection", *GALLERY}
    ),
)
def test_a_study_runs(name, tmp_path):
    options = [word for setting in QUICK[TASKS.get(name, "contrastive")] for word in ("--set", setting)]
    rounds, wanted = str(planned(name).last_evaluations), [c for c in planned(name).cells if c.experiment.seed == 0]
    path = FOLDER / f"{name}.toml"
    if name in ONE_CONDITION:
        wanted = [cell for cell in wanted if cell.condition == wanted[-1].condition]
        path = with_condition(name, wanted[0].condition, tmp_path / "mine")
    few = ("--seeds", "0:1", "--rounds", rounds, "--set", "evaluate_every=1", "--device", "cpu", *options)
    assert execute("compare", path, *few, "--out", tmp_path / "study").status == 0
    record = json.loads((tmp_path / "study" / "comparison.json").read_text())
    cells = [RunDirectory(tmp_path / "study" / "cells" / cell["folder"]) for cell in record["cells"]]
    assert len(cells) == len(wanted)
    for cell in cells:
        assert cell.manifest()["status"] == "finished"
        assert cell.read("rounds")["committed"].sum() > 0
    assert record["title"] in html.unescape((tmp_path / "study" / "comparison.html").read_text())
    if name in SAME_VEHICLES:  # as the page says
        for condition in {cell["condition"] for cell in record["cells"]}:
            of = [run for cell, run in zip(record["cells"], cells, strict=True) if cell["condition"] == condition]
            rows = [run.read("participations").select("round", "vehicle_id", "silo", "outcome") for run in of]
            assert all(one.equals(rows[0]) for one in rows)
    if name == "fedefm-full-contact":  # every silo takes part in every round
        assert all(set(run.read("rounds")["committed"]) == {6} for run in cells)
    if name == "flsimco-fig3":
        by_condition = {cell["condition"]: run for cell, run in zip(record["cells"], cells, strict=True)}
        assert execute("report", *(run.path for run in by_condition.values())).status == 0
        # as the page says: nothing is drawn where all silos are alike
        drawn = {condition: (run.path / "figures" / "silos.svg").is_file() for condition, run in by_condition.items()}
        assert drawn == {"IID": False, "Dirichlet 0.1": True, "Dirichlet 1": True}


@pytest.mark.slow
def test_in_the_study_of_handover_on_frames_many_are_handed_over_and_data_and_control_change_nobodys_time(tmp_path):
    options = ("--timing-only", "--seeds", "0:1", "--out", tmp_path / "study")
    assert execute("compare", FOLDER / "drive-handover.toml", *options).status == 0
    record = json.loads((tmp_path / "study" / "comparison.json").read_text())
    runs = {
        (cell["condition"], cell["arm"]): RunDirectory(tmp_path / "study" / "cells" / cell["folder"])
        for cell in record["cells"]
    }
    assert len(runs) == 5
    rows = {key: run.read("participations").filter(pl.col("outcome") != "not_selected") for key, run in runs.items()}
    for key, run in runs.items():
        assert run.read("handovers")["participation"].n_unique() > 0.15 * len(rows[key])
    timed = ("vehicle_id", "start_s", "train_s", "end_s", "outcome", "silo")
    for arm in ("forward", "drop"):
        assert rows["by place", arm].select(timed).equals(rows["IID", arm].select(timed))
    assert rows["by place", "control: half the steps"].select(timed).equals(rows["by place", "forward"].select(timed))
    committed = {arm: (rows["by place", arm]["outcome"] == "committed").sum() for arm in ("forward", "drop")}
    assert committed["drop"] < committed["forward"]


@pytest.mark.slow
def test_what_the_gallery_draws_its_images_from_runs(tmp_path):
    few = ("--seeds", "0:1", "--device", "cpu", "--set", "source.duration_s=120", "--set", "data.train_images=300")
    assert execute("compare", FOLDER / "oort.toml", *few, "--out", tmp_path / "study").status == 0
    record = json.loads((tmp_path / "study" / "comparison.json").read_text())
    runs = [RunDirectory(tmp_path / "study" / "cells" / cell["folder"]) for cell in record["cells"]]
    assert {run.manifest()["time_s"] for run in runs} == {120.0}
    assert all(run.read("rounds")["committed"].sum() > 0 for run in runs)


@pytest.mark.parametrize("size", ["small", "patterns", "corridor"])
def test_the_study_of_mobility_has_a_twin_under_every_condition_and_invites_no_more_than_it_needs(size):
    plan = planned("mobility", size)
    twins = {cell.condition: cell.experiment for cell in plan.cells if cell.arm == plan.against == "static twin"}
    assert twins.keys() == {cell.condition for cell in plan.cells}
    for twin in twins.values():
        assert (twin.handover.policy, twin.silos.by, twin.silos.replaced_share) == ("forward", "place", 1.0)
    for cell in plan.cells:
        rules = cell.experiment.round
        assert (rules.invited, rules.max_staleness > 0, cell.experiment.rounds) == (rules.quorum, True, 100_000)
        travels = cell.experiment.silos.by == "origin"
        assert travels == (cell.arm != "static twin" and not cell.condition.startswith("by place"))
    shards = [
        partition(
            np.arange(2000) % 10,  # as many classes as RSUs
            silos=100,
            approaches=4,
            settings=DataSettings(partition=kind),
            generator=np.random.default_rng(0),
            districts=10,
        )
        for kind in ("major-class", "district")
    ]
    assert all((one == other).all() for one, other in zip(*shards, strict=True)), "as the file says"


@pytest.mark.slow
def test_the_study_of_mobility_ends_with_the_traffic_and_its_twin_is_forward_in_all_but_silos(tmp_path):
    path = with_condition("mobility", "by edge, P 0.5", tmp_path / "mine")
    file = tomllib.loads(path.read_text(encoding="utf-8"))
    file["arms"], file["last_evaluations"] = file["arms"][:3], 1
    del file["skip"], file["sizes"]["small"]["conditions"]
    path.write_text(tomli_w.dumps(file), encoding="utf-8")
    options = ("--seeds", "0:1", "--device", "cpu", "--set", "source.duration_s=120", "--set", "learning.steps=1")
    assert execute("compare", path, *options, "--out", tmp_path / "study").status == 0
    record = json.loads((tmp_path / "study" / "comparison.json").read_text())
    runs = {cell["arm"]: RunDirectory(tmp_path / "study" / "cells" / cell["folder"]) for cell in record["cells"]}
    assert {run.manifest()["time_s"] for run in runs.values()} == {120.0}
    twin, forward, drop = (runs[arm].read("participations") for arm in ("static twin", "forward", "drop"))
    assert twin.drop("silo", "loss").equals(forward.drop("silo", "loss"))
    assert not twin["silo"].equals(forward["silo"])
    assert (drop["outcome"] == "committed").sum() < (forward["outcome"] == "committed").sum()
    found = pl.read_parquet(tmp_path / "study" / "comparison.parquet").filter(seed=0)
    values = {arm: dict(rows.select("metric", "value").iter_rows()) for (arm,), rows in found.group_by("arm")}
    assert values["drop"]["equal_commits"] == values["drop"]["accuracy"], "it has the fewest"
    for arm, run in runs.items():
        newest = run.read("metrics").filter(~pl.col("aggregator").is_in(["cloud", ""]), name="accuracy").sort("round")
        mean = newest.group_by("aggregator").last()["value"].mean()
        assert values[arm]["accuracy.rsus"] == pytest.approx(mean)
