from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import tomli_w
from small_runs import UNDRAWN, figures, write_table

from analysis.loading import Samples, load
from analysis.report.headline import finding, headline
from analysis.report.notices import notices
from analysis.report.page import build_report
from vnetsim.storage.run_directory import RunDirectory


def with_settings(run, **settings):
    """Return a run's directory, with tables of its settings replaced."""
    directory = RunDirectory(run)
    directory.put({"experiment.toml": tomli_w.dumps({**directory.settings(), **settings}).encode()})
    return directory


@pytest.fixture
def told(tmp_path, make_run):
    """Return the notices of a made-up run whose participations and settings are changed."""

    def tell(*, outcomes=None, speed_mps=None, settings=None, manifest=None, **scenario):
        run = make_run(tmp_path / "run", **{"vehicles": 60, **scenario})
        directory = RunDirectory(run)
        if directory.has("participations"):
            table = directory.read("participations")
            if outcomes:
                names = [name for name, times in outcomes.items() for _ in range(times)]
                table = table.head(len(names)).with_columns(outcome=pl.Series(names))
            if speed_mps is not None:
                table = table.with_columns(speed_mps=pl.lit(speed_mps))
            write_table(directory, "participations", table.rows())
        directory.write_json("manifest.json", directory.manifest() | (manifest or {}))
        with_settings(run, **(settings or {}))
        return [line.replace("\u202f", " ") for line in notices(load(run))]

    return tell


FAST = 35.0


def test_a_run_of_which_all_went_well_has_none(told):
    assert told(outcomes={"committed": 50, "stale": 5, "left_training": 5}, speed_mps=FAST) == []
    synchronous = {"round": {"max_staleness": 0, "invited": 9}}  # whose rounds drop who is still at work
    assert told(outcomes={"committed": 10, "stale": 23}, speed_mps=FAST, settings=synchronous) == []


def test_rounds_that_were_over_before_vehicles_left(tmp_path, make_run):
    run = make_run(tmp_path / "early", vehicles=60, note="")
    directory = RunDirectory(run)
    manifest = directory.manifest()
    directory.write_json("manifest.json", manifest | {"time_s": 26.4, "ended_by": "rounds"})
    windows = directory.read("windows")
    for share, told in ((0.5, False), (0.6, True)):
        cut = pl.when(pl.int_range(pl.len()) < share * pl.len()).then(pl.lit("end")).otherwise("exit_cause")
        write_table(directory, "windows", windows.with_columns(exit_cause=cut).rows())
        lines = [line for line in notices(load(run)) if "rounds were over" in line]
        assert len(lines) == told
        assert all("over after 26.4\u202fs, sooner than most vehicles leave" in line for line in lines)
    rejected = directory.read("participations").with_columns(outcome=pl.lit("rejected"))
    write_table(directory, "participations", rejected.rows())
    assert not any("rounds were over" in line for line in notices(load(run))), "more of the same"


def test_too_stale(told):
    lines = told(
        outcomes={"committed": 10, "stale": 14, "left_upload": 9, "not_selected": 20}, speed_mps=FAST,
        settings={"round": {"max_staleness": 1, "invited": 9}},
    )  # fmt: skip
    assert lines == [
        (
            "14 of 33 invited were too stale, still at work when their round closed: raise round.max_staleness (now 1) "
            "or invite fewer (round.invited, now 9)."
        )
    ]


@pytest.mark.parametrize(
    ("stage", "setting"),
    [
        ("left_download", "radio.bandwidth_hz"),
        ("left_training", "learning.steps"),
        ("left_exchange", "exchange.limit_s"),
        ("left_upload", "radio.bandwidth_hz"),
    ],
)
def test_most_left_first_with_the_stage_and_its_setting(told, stage, setting):
    other = "left_upload" if stage == "left_download" else "left_download"
    (line,) = told(outcomes={"committed": 10, stage: 25, other: 5}, speed_mps=FAST)
    assert line.startswith("30 of 40 invited left before they had finished, 25 of them while ")
    assert setting in line


@pytest.mark.parametrize(("rule", "trim", "said"), [("krum", 0.1, True), ("krum", 0.0, False), ("median", 0.1, False)])
def test_rounds_of_too_few_uploads_for_krum(tmp_path, make_run, rule, trim, said):
    run = make_run(tmp_path / "run", vehicles=60, note="")
    directory = with_settings(run, learning={"aggregation": rule, "trim": trim})
    rounds = directory.read("rounds")
    few = [4 if place == 0 else 5 for place in range(rounds.height)]
    write_table(directory, "rounds", rounds.with_columns(committed=pl.Series(few)).rows())
    lines = [line for line in notices(load(directory.path)) if "Krum" in line]
    assert [line.split(" with")[0] for line in lines] == [f"In 1 of {rounds.height} rounds"] * said


def test_hostile_vehicles_that_never_came(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=20, note="")
    assert not [line for line in notices(load(run)) if "hostile" in line]
    with_settings(run, hostile={"vehicles": ["no such"]}, conduct={"name": "noise"})
    assert [line for line in notices(load(run)) if line.startswith("No vehicle in coverage was hostile")]


def test_a_computer_for_a_type_that_nobody_drove_is_told(told):
    own = [{"preset": "ecu", "share": 1, "median_flops": 1e9, "vehicle_type": name} for name in ("no such", "truck")]
    lines = told(outcomes={"committed": 10}, manifest={"computers": own})
    assert [line for line in lines if "by_type" in line] == [
        "compute.by_type: nobody of type no such was in coverage, but car, truck."
    ]


@pytest.mark.parametrize(
    ("given", "told_of"),
    [
        ({"learner": "flsimco"}, [True, True, False]),
        ({"learner": "mine.py:Mine"}, [False] * 3),
        ({"learner": "fedavg", "learning": {"weights": "images"}}, [False] * 3),
        ({"learner": "fedavg", "learning": {"weights": "equal"}}, [True, True, False]),
    ],
)
def test_silos_of_unequal_size(tmp_path, make_run, given, told_of):
    directory = with_settings(make_run(tmp_path / "run", vehicles=60), **given)
    for (smallest, largest), said in zip([(2, 60), (40, 46), (40, 45)], told_of, strict=True):
        write_table(directory, "silos", [(0, 0, "a", smallest), (1, 0, "a", 1), (1, 1, "b", largest - 1)])
        words = f"Silos hold {smallest} to {largest} images, and an update counts the same whatever its silo holds."
        assert (words in notices(load(directory.path))) == said


@pytest.mark.parametrize("lanes", [False, True])
def test_buildings_without_streets(told, lanes):
    plugins = {"radio": {"name": "tr37885", "settings": {"state": "streets"}}}
    lines = told(outcomes={"committed": 30}, speed_mps=FAST, manifest={"plugins": plugins}, lanes=lanes)
    assert ["radio.state was probability" in line for line in lines] == [True] * (not lanes)


def test_nobody_committed_or_all_were_late(told):
    assert told(outcomes={"deadline": 30}, speed_mps=FAST) == [
        "None of 30 invited participations committed: the model is as it was at the beginning.",
        "30 of 30 invited were cut off by the round's deadline: raise round.deadline_s.",
    ]


def test_updates_that_were_not_finite(told, tmp_path):
    few = told(outcomes={"committed": 4, "rejected": 1}, speed_mps=FAST)
    assert few == ["1 of 5 updates were not finite: lower learning.lr."]
    all_of_them = told(outcomes={"rejected": 10}, speed_mps=FAST)
    assert all_of_them[0] == "10 of 10 updates were not finite: lower learning.lr."
    data = load(tmp_path / "run")
    assert dict(headline(data))["Updates not finite"] == "10 of 10"
    assert "100\u202f% were rejected because the update was not finite" in finding(data)


def test_images_that_stay_sharp(told):
    (line,) = told(outcomes={"committed": 30}, speed_mps=10.0)
    assert line.startswith(
        "All images stay sharp: at 36.0 km/h, the fastest vehicle that committed, the motion kernel "
    )
    assert "is 0.711 px long and only one above 1 px changes an image of 32 px: raise camera.exposure_s" in line
    assert "(now 0.01) above 0.015" in line, "0.0141 would not do, rounded to 0.014"


def test_images_that_vehicles_took_blur_by_their_own_speed_not_by_that_at_entry(told, tmp_path):
    told(outcomes={"committed": 30}, speed_mps=10.0)
    run = load(tmp_path / "run")
    one = Samples(
        images=np.zeros((1, 1, 8, 8, 3), np.uint8), kernels_px=np.zeros(1), speeds_mps=np.zeros(1), paths={}, places={}
    )
    assert any("All images stay sharp" in line for line in notices(replace(run, samples=one)))
    taken = replace(one, places={"speed_mps": np.full(30, 20.0)})
    assert not any("sharp" in line or "too slow" in line for line in notices(replace(run, samples=taken)))
    slow = replace(one, places={"speed_mps": np.append(np.full(29, 1.0), 20.0)})
    [line] = [line for line in notices(replace(run, samples=slow)) if "too slow" in line]
    assert line.startswith(
        "97\N{NARROW NO-BREAK SPACE}% of the training images are of vehicles too slow to blur an image of 32 px"
    )


def test_no_exchange_completed(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=120, exchange=True, relay=True)
    directory = RunDirectory(run)
    write_table(
        directory, "exchanges", directory.read("exchanges").with_columns(outcome=pl.lit("cut"), value=None).rows()
    )
    assert any("exchanges between vehicles completed: each contact ended first" in line for line in notices(load(run)))


def test_page_and_terminal_tell_the_same(told, tmp_path):
    lines = told(outcomes={"committed": 30}, speed_mps=10.0)
    with figures(UNDRAWN):
        result = build_report(tmp_path / "run")
    assert [line.replace("\u202f", " ") for line in result.notices] == lines
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8").replace("\u202f", " ")
    assert all(f'<p class="warning">{line}</p>' in page for line in lines)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ((1, 1, 0), "Neighbours' models were 2.0 rounds old in the mean when they were averaged (1 to 3), because of"),
        ((2, 3, 3), None),
        ((), "No neighbour's model arrived before the last average: each RSU's model is its own."),
    ],
)
def test_how_old_neighbours_models_were(tmp_path, make_run, versions, words):
    run = make_run(tmp_path / "run", vehicles=40, rounds=3)
    directory = with_settings(run, topology={"kind": "peers"})
    rounds = load(run).rounds
    names = [rounds.with_columns(aggregator=pl.lit(name)) for name in ("rsu0", "rsu1")]
    write_table(directory, "rounds", pl.concat(names).rows())
    # rsu0 averages once right before rsu1's third round, and twice right after it
    third_s = rounds["close_s"].sort()[2]
    times_s = (third_s - 0.001, third_s + 0.001, third_s + 0.001)
    own = [(time_s, "rsu0", 3, "rsu0", 3, 0.5, "round") for time_s in times_s]
    others = [(times_s[i], "rsu0", 3, "rsu1", version, 0.5, "round") for i, version in enumerate(versions)]
    write_table(directory, "merges", [*own, *others])
    found = [line for line in notices(load(run)) if "eighbour" in line]
    assert [line[: len(words or "")] for line in found] == ([words] if words else [])


def test_vehicles_too_fast_for_any_road(tmp_path, make_run):
    run = load(make_run(tmp_path / "run", vehicles=60))
    assert not any("in feet?" in line for line in notices(run))
    faster = replace(run, windows=run.windows.with_columns(pl.col("entry_speed_mps") * 5))
    assert sum("in feet?" in line for line in notices(faster)) == 1
