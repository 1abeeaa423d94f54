"""The benchmark: rows of a tiny track, and the tracks and rows that are shipped."""

import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomli_w
from polars.testing import assert_frame_equal
from small_runs import SCENARIOS, interrupted_at

import vnetsim
import vnetsim.storage.disk
import vnetsim.study.cells
from vnetsim.errors import InputError
from vnetsim.learning.kinds import LEARNERS
from vnetsim.runs.manifest import sha256_of
from vnetsim.simulation.selection import SELECTIONS
from vnetsim.study.bench import arm_of_row, asked_arm, load_track, read_row, track_names, windows_digest

HOSTILE = "</td><script>alert(1)</script> | `x` [y](javascript:z)"
SEEDS = 3
SUFFIXES = {".csv", ".parquet", ".py"}
"""Of the files that come with a data card."""


@pytest.fixture(scope="module")
def digests(tmp_path_factory) -> list[str]:
    """Of the traffic of each seed of the tiny track."""
    folder = tmp_path_factory.mktemp("traffic")
    made = [vnetsim.mobility("gaussian", seed=seed, traffic__end_s=90, out=folder / str(seed)) for seed in range(SEEDS)]
    return [windows_digest(one.windows) for one in made]


@pytest.fixture
def tiny(tmp_path, monkeypatch, digests, toy) -> Callable[..., None]:
    """Writes the track ``tiny`` of the toy, with other values if wanted; it is in the working directory's place."""
    folder = tmp_path / "scenarios" / "bench"
    (folder / "rows").mkdir(parents=True)
    (folder / "beside.txt").write_text("as it was\n")
    monkeypatch.setattr("vnetsim.study.bench.shipped_scenarios", lambda: tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)
    track: dict[str, Any] = {
        "version": "v0",
        "title": "Tiny",
        "scenario": "gaussian",
        "sumo": "no SUMO",
        "windows": digests,
        "files": {"beside.txt": sha256_of(folder / "beside.txt")},
        "open": ["selection.*", "aggregation.*", "learning.*"],
        "settings": {"rounds": 6, "device": "cpu", "traffic": {"end_s": 90, "repeat": False}, "compute.spread": 0.1},
        "tasks": {
            "random walk": {
                "baseline": toy.name, "metric": "distance", "label": "Distance", "unit": "", "target": 0.5,
                "tolerance": 0.1, "settings": {}, "learning": {"payload_bytes": 200_000},
            }
        },
        "controls": [
            {"name": "light", "task": "random walk", "says": "less to send", "learning": {"payload_bytes": 1000}}
        ],
        "sizes": {"small": {}, "paper": {"settings": {"rounds": 8}}},
    }  # fmt: skip

    def write(**other: Any) -> None:
        (folder / "tiny.toml").write_text(tomli_w.dumps({**track, **other}))

    write()
    return write


def row_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.usefixtures("tiny")
def test_a_row_holds_what_cells_came_to_and_is_gone_on_with():
    with interrupted_at(vnetsim.study.cells, "_start_or_resume", 3), pytest.raises(KeyboardInterrupt):
        vnetsim.bench("tiny", selection="fastest", progress=False)
    assert len(list(Path("bench/tiny-v0/cells").iterdir())) == 3
    made = vnetsim.bench("tiny", selection="fastest", progress=False)
    assert made.path == Path("bench/rows/tiny/small-random-walk-toy-fastest.json")
    row = row_of(made.path)
    assert row["settings"] == {"selection.name": "fastest"}
    runs = vnetsim.load("bench/tiny-v0").runs
    for one in row["seeds"]:
        for who, arm in (("row", "toy, fastest"), ("baseline", "baseline")):
            run, found = runs[arm, "", one["seed"]], one[who]
            values = run.metrics.filter(name="distance")
            assert found["final"] == values["value"][-1]
            assert found["untrained"] == values["value"][0] == 0
            half = values.filter(values["time_s"] <= found["span_s"] / 2)
            assert found["half"] == half["value"][-1]
            met = values.filter(values["value"] >= 0.5)["time_s"]
            assert found["time_to_target_s"] == (met[0] if len(met) else None)
            parts = run.participations
            assert found["commits"] == parts.filter(outcome="committed").height
            assert found["bytes"] == pytest.approx((parts["download_bytes"] + parts["upload_bytes"]).sum())
            joules = sum(
                parts[f"{name}_j"].fill_null(0).sum() for name in ("download", "train", "upload", "wait", "exchange")
            )
            assert found["energy_j"] == pytest.approx(joules)
    with interrupted_at(vnetsim.study.cells, "_start_or_resume", 0):  # nothing is missing
        again = vnetsim.bench("tiny", selection="fastest", progress=False)
    assert row_of(again.path) == row
    other = row_of(vnetsim.bench("tiny", control="light", progress=False).path)
    assert [one["baseline"] for one in other["seeds"]] == [one["baseline"] for one in row["seeds"]]
    assert other["seeds"][0]["row"]["bytes"] < row["seeds"][0]["row"]["bytes"]


@pytest.mark.usefixtures("tiny")
def test_the_row_of_the_baseline_itself_is_equal_to_it(cli):
    done = cli("bench", "tiny", status=0)
    assert re.search(r"^Commits +[\d.]+$", done.out, re.MULTILINE), "a mean without a difference"
    assert done.out.endswith("row: bench/rows/tiny/small-random-walk-toy.json\n")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set", "compute.spread=0.2"], "compute.spread: fixed by track tiny v0"),
        (["--handover", "forward"], "handover.policy: fixed by track tiny v0"),
        (["--learner", "fedavg"], "its task is 'contrastive'; the tasks of tiny are random walk"),
        (["--control", "ligth"], "Did you mean 'light'?"),
        (["--control", "light", "--selection", "age"], "give nothing else"),
        (["--size", "large"], "unknown size 'large'"),
        (["--set", "learning.payload=1"], "unknown key 'payload'"),
    ],
)
def test_what_a_track_does_not_leave_open_is_refused(cli, options, says):
    done = cli("bench", "tiny", *options)
    assert done.status == 2
    assert says in done.err
    assert done.err.count("\n") == 1
    assert not Path("bench").exists()


def test_other_traffic_and_other_files_are_refused(tiny, digests):
    tiny(windows=[digests[0], digests[0], digests[2]])
    with pytest.raises(InputError, match=r"by (.*), the track's by no SUMO\. Install that version") as other:
        vnetsim.bench("tiny", progress=False)
    assert "traffic of seed 1 is not that of track tiny v0" in str(other.value)
    here = str(other.value).partition("recorded here by ")[2].partition(",")[0]
    tiny(windows=[digests[0], digests[0], digests[2]], sumo=here)
    with pytest.raises(InputError, match="Another kind of processor"):
        vnetsim.bench("tiny", progress=False)
    assert not Path("bench/tiny-v0/cells").exists()
    tiny()
    Path("scenarios/bench/beside.txt").write_text("otherwise\n")
    with pytest.raises(InputError, match=r"beside\.txt: not the file that track tiny v0 was frozen with"):
        vnetsim.bench("tiny", progress=False)


@pytest.fixture
def row(tiny) -> dict[str, Any]:
    """A row of the tiny track, made up; written as ``row.json`` by the test."""
    values = {
        "untrained": 0.0, "half": 0.4, "final": 0.9, "time_to_target_s": 40.0, "span_s": 90.0, "commits": 9,
        "bytes": 4e6, "energy_j": 12.0,
    }  # fmt: skip
    tiny()
    track = load_track("tiny")
    seeds = [
        {"seed": seed, "traffic": digest, "row": {**values, "final": 0.9 + seed / 10}, "baseline": values}
        for seed, digest in enumerate(track.windows)
    ]
    return {
        "track": "tiny", "version": "v0", "track_sha256": track.sha256, "size": "small", "task": "random walk",
        "arm": HOSTILE, "learner": "toy", "settings": {"selection.name": "age"}, "seeds": seeds,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda row: row.update(track_sha256="0" * 64), "made on another track than tiny v0 as it is here"),
        (lambda row: row.update(version="v1"), "made on another track"),
        (lambda row: row.update(track="../../etc"), "unknown track"),
        (lambda row: row.update(size="large"), "unknown size"),
        (lambda row: row.update(task="steering"), "unknown task"),
        (lambda row: row.update(control="mine"), "unknown control"),
        (lambda row: row.update(settings={"compute.spread": 1}), "compute.spread: fixed by track"),
        (lambda row: row["seeds"].pop(), "expected 0 to 2, each once"),
        (lambda row: row["seeds"].append(row["seeds"][0]), "expected 0 to 2, each once"),
        (lambda row: row["seeds"][1].update(traffic="0" * 64), "expected 0 to 2, each once"),
        (lambda row: row["seeds"][1]["row"].update(final=float("nan")), "seed 1 of the arm: final is nan, as in"),
        (lambda row: row["seeds"][1]["row"].update(span_s=0), "span_s is 0.0, as in no run"),
        (lambda row: row["seeds"][1]["row"].update(time_to_target_s=91), "time_to_target_s is 91.0, as in no run"),
        (lambda row: row["seeds"][2]["baseline"].update(bytes=-1), "of the baseline: bytes is -1.0, as in no"),
        (lambda row: row["seeds"][1]["row"].update(commits=-1), "commits is -1, as in no run"),
        (lambda row: row["seeds"][1]["row"].update(commits=10**300), "commits is 1000"),
        (lambda row: row["seeds"][1]["row"].update(commits=10**400), "commits: expected a whole number of less than"),
        (lambda row: row["seeds"][1]["row"].update(energy_j=float("inf")), "energy_j is inf, as in no run"),
        (lambda row: row["seeds"][1].pop("baseline"), "seeds.1.baseline"),
        (lambda row: row.update(arm="x" * 300_000), "not a row"),
        (lambda row: row.clear(), "track: it has no default"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_in_one_line(row, cli, change, says):
    change(row)
    Path("row.json").write_text(json.dumps(row))
    for command in ("check", "table"):
        done = cli("bench", command, "row.json")
        assert done.status == 2
        assert says in done.err
        assert done.err.startswith("vnetsim: row.json: ")
        assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "more", "seeds", "says"),
    [
        ("bytes", 1.0, [3], ""),
        ("final", -0.3, [3], ""),
        ("commits", 1, [3], "fedefm: seed 3: commits of the baseline is"),
        ("bytes", 100.0, [3], "bytes of the baseline is"),
        ("half", 5.0, [3], "seed 3 of the baseline: half is 5."),
        ("final", 0.15, range(10), ", more than 0.1 apart, as on track city v2"),
    ],
)
def test_a_baseline_is_that_of_the_shipped_rows(name, more, seeds, says, tmp_path):
    row = row_of(SCENARIOS / "bench" / "rows" / "city" / "small-classification-fedefm.json")
    for seed in seeds:
        row["seeds"][seed]["baseline"][name] += more
    (tmp_path / "row.json").write_text(json.dumps(row))
    with pytest.raises(InputError, match=re.escape(says)) if says else nullcontext():
        vnetsim.bench_table(tmp_path / "row.json")
    with pytest.raises(InputError, match=re.escape(says or "seeds: 10 is none")):
        vnetsim.bench_check(tmp_path / "row.json", seeds=10)


def test_code_is_run_only_where_the_user_names_it(row, cli, toy):
    Path("evil.py").write_text("raise SystemExit('ran')\n")
    for change, says in (
        ({"code": {"pace.name": "0" * 64}}, "pace.name: fixed by track"),
        ({"learner": "evil.py:Evil"}, "names code, which a row may not"),
        ({"settings": {"selection.name": "evil.py:Evil"}}, "names code, which a row may not"),
        ({"code": {"learner": "0" * 64}}, "that this one was made with: --learner=FILE.py:CLASS"),
    ):
        Path("row.json").write_text(json.dumps({**row, **change}))
        done = cli("bench", "check", "row.json")
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert says in done.err
    done = cli("bench", "check", "row.json", "--learner", "evil.py:Evil")
    assert (done.status, done.err) == (2, "vnetsim: evil.py:Evil: not the code that the row was made with.\n")
    os.mkfifo("waits.json")
    assert cli("bench", "table", "waits.json").err == "vnetsim: waits.json: no such file.\n"
    assert cli("bench", "table", "row.json").status == 0
    control = {**row, "control": "light", "learner": "evil.py:Evil", "settings": {"selection.name": "evil.py:Evil"}}
    Path("row.json").write_text(json.dumps(control))
    with pytest.raises(InputError, match="that this one was made with: none"):
        arm_of_row(*read_row(Path("row.json")), {"selection.name": "age"})
    cell = arm_of_row(*read_row(Path("row.json")), {}).plan([0]).cells[-1]
    assert (cell.arm, cell.experiment.learner) == (HOSTILE, toy.name)
    assert "evil" not in repr(cell.experiment)


def test_the_table_sorts_rows_and_keeps_their_names_text(row, cli):
    Path("rows").mkdir()
    Path("rows/one.json").write_text(json.dumps(row))
    better = [{**one, "row": {**one["row"], "final": 2.0}} for one in row["seeds"]]
    Path("rows/two.json").write_text(json.dumps({**row, "arm": "best", "seeds": better}))
    text = cli("bench", "table", "rows", status=0).out
    arms = re.findall(r"^\| (.*?) \| [\d.]", text, re.MULTILINE)
    assert [arm[:21] for arm in arms] == [
        "best", "&lt;/td&gt;&lt;script", "control: half of the ", "control: random initi",
    ]  # fmt: skip
    assert "| 2.00; +1.1 (" in text
    assert "<script" not in text
    assert re.search(r"(?<!\\)\[y\]", text) is None


@pytest.mark.usefixtures("tiny")
def test_a_row_is_checked_by_running_it_again(cli):
    made = vnetsim.bench("tiny", selection="age", progress=False)
    done = cli("bench", "check", made.path, "--seeds", "0,2")
    assert (done.status, done.out) == (0, "".join(f"seed {n}: as the row says, bit for bit.\n" for n in (0, 2)))
    row = row_of(made.path)
    row["seeds"][0]["row"]["final"] += 0.01
    Path("row.json").write_text(json.dumps(row))
    done = cli("bench", "check", "row.json", "--seeds", "0:2")
    assert done.status == 0, "another processor rounds otherwise"
    first, second, mean = done.out.splitlines()
    assert re.match(r"seed 0: not bit for bit, .*: final of the arm is \S+, not ", first)
    assert second == "seed 1: as the row says, bit for bit."
    assert re.match(r"final of the arm is \S+ in the mean, not \S+, at most 0.1 apart.", mean)
    row["seeds"][0]["baseline"]["final"] += 0.2
    Path("row.json").write_text(json.dumps(row))
    done = cli("bench", "check", "row.json", "--seeds", "0")
    assert done.status == 1
    assert "row.json: came out otherwise here: final of the baseline is" in done.err


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_check_holds_the_mean_of_the_metric_and_what_no_training_decides(cli):
    row = row_of(vnetsim.bench("tiny", selection="oort", progress=False).path)
    for seed, more in enumerate((0.15, -0.15)):
        row["seeds"][seed]["row"]["final"] += more
        row["seeds"][seed]["row"]["commits"] += 1
    Path("row.json").write_text(json.dumps(row))
    done = cli("bench", "check", "row.json", "--seeds", "0:2")
    assert done.status == 0, "Oort invites by losses, which another processor rounds otherwise"
    assert "commits of the arm is" in done.out
    done = cli("bench", "check", "row.json", "--seeds", "0")
    assert done.status == 1
    assert "final of the arm" in done.err
    assert "more than 0.1 apart" in done.err
    row["seeds"][0]["baseline"]["commits"] += 1
    Path("row.json").write_text(json.dumps(row))
    done = cli("bench", "check", "row.json", "--seeds", "0:2")
    assert done.status == 1, "the baseline's policy asks for no loss"


@pytest.fixture
def published(tiny) -> list[int]:
    """Commits of the baseline at each seed of the tiny track, which plays all of its traffic, in a shipped row."""
    traffic, rounds = {"end_s": 90, "repeat": False}, {"quorum": 4, "invited": 6}
    compute = {"median_flops": 1e8}  # slow, so that rounds are few
    tiny(settings={"rounds": 1000, "device": "cpu", "traffic": traffic, "round": rounds, "compute": compute})
    row = vnetsim.bench("tiny", progress=False).path
    Path("scenarios/bench/rows/tiny").mkdir(parents=True)
    row.rename("scenarios/bench/rows/tiny/small-random-walk-toy.json")
    return [
        one["baseline"]["commits"]
        for one in row_of(Path("scenarios/bench/rows/tiny/small-random-walk-toy.json"))["seeds"]
    ]


def replay(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script that comes with traces, in a Python that finds no package."""
    return subprocess.run([sys.executable, "-IS", folder / "replay.py"], capture_output=True, text=True, check=False)


def test_traces_without_vnetsim_have_the_commits_of_the_published_row(published, cli, tmp_path, monkeypatch):
    stopped = re.escape(shlex.quote("vnetsim.bench_traces('tiny', to='traces')"))
    with interrupted_at(vnetsim.study.cells, "_start_or_resume", 2), pytest.raises(KeyboardInterrupt, match=stopped):
        vnetsim.bench_traces("tiny", to="traces", progress=False)
    assert not Path("traces").exists()
    assert cli("bench", "traces", "tiny", "--to", "traces", status=0).out == "traces: traces\n"
    done = replay(tmp_path / "traces")
    lines = [f"tiny, seed {seed}: {n} commits, {n} published" for seed, n in enumerate(published)]
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (lines, "", 0)
    card = json.loads(Path("traces/croissant.json").read_text())
    files = {one["@id"]: one["sha256"] for one in card["distribution"]}
    assert files == {path.name: sha256_of(path) for path in Path("traces").iterdir() if path.suffix in SUFFIXES}
    run = vnetsim.load("bench/tiny-v0").runs["baseline", "", 1]
    for one in card["recordSet"]:
        (name,) = {field["source"]["fileObject"]["@id"] for field in one["field"]}
        table = (
            pl.read_parquet(f"traces/{name}")
            if name.endswith("parquet")
            else pl.read_csv(f"traces/{name}", infer_schema_length=None)
        )
        assert table.columns == [field["source"]["extract"]["column"] for field in one["field"]]
        if name in {"windows.csv", "rounds.csv", "participations.csv"}:
            mine = getattr(run, one["name"]).select(table.columns[2:])
            assert_frame_equal(table.filter(seed=1).select(mine.columns), mine, check_dtypes=False)
    altered = Path("traces/participations.csv")
    altered.write_text(altered.read_text().replace(",committed,", ",stale,", 1))
    assert replay(tmp_path / "traces").returncode == 1

    def stop_at_the_card(source: Path, target: Path) -> None:
        if target.name == "croissant.json":
            raise KeyboardInterrupt
        source.rename(target)

    monkeypatch.setattr(vnetsim.storage.disk, "replace", stop_at_the_card)
    with pytest.raises(KeyboardInterrupt):
        vnetsim.bench_traces("tiny", to="cut", progress=False)
    assert not any(Path("cut").iterdir())
    with interrupted_at(vnetsim.study.cells, "_start_or_resume", 0):  # the cells of rows are still there
        row = vnetsim.bench("tiny", progress=False).path
    assert [one["baseline"]["commits"] for one in row_of(row)["seeds"]] == published


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["tiny", "--to", "scenarios"], "scenarios: there is something already; name a new folder."),
        (["tiny", "--to", "bench/beside.txt"], "beside.txt: there is something already"),
        (["tyni", "--to", "new"], "unknown track 'tyni'. Available: tiny."),
    ],
)
@pytest.mark.usefixtures("tiny")
def test_traces_are_refused_before_anything_runs(cli, options, says):
    Path("bench").mkdir()
    Path("bench/beside.txt").touch()
    done = cli("bench", "traces", *options)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert says in done.err
    assert [path.name for path in Path("bench").iterdir()] == ["beside.txt"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("tiny")
def test_the_data_card_is_valid_croissant():
    mlcroissant = pytest.importorskip("mlcroissant")
    vnetsim.bench_traces("tiny", to="traces", progress=False)
    data = mlcroissant.Dataset("traces/croissant.json")
    assert not data.metadata.ctx.issues.errors
    for one in data.metadata.record_sets:
        assert next(iter(data.records(one.uuid)))


FROZEN = {
    "city v2": "89942704a9c2fee69e9b2876f103f06815b153dc7cb5423723451acaa0801711",
    "corridor v2": "6d195cb4893e53ea2af92e062bcc0ef1b2700d8ba0d5e1ad9c6895f6189b4040",
    "expressway v2": "526242d1b5bc419d7a386d42af65e677bf9a0980db9ab92611c5165270492dac",
    "intersection v2": "83bd6c8eaf0efd7d6cde82f337323f5f067acd1894105fab4118c531fbcd8ccc",
}
"""SHA-256 of the tracks, by name and version."""


@pytest.mark.parametrize("name", track_names())
def test_a_track_is_frozen(name):
    """After a change of ``scenarios/bench/TRACK.toml``, or of a file it lists:

    1. Raise its ``version``. Put the files' hashes (``sha256sum``) into it, and those of ten seeds of traffic:
       ``windows_digest(vnetsim.mobility(SCENARIO, traffic__seed=s, traffic__end_s=END, out=f"traffic/{s}").windows)``
       with ``END`` its ``settings.traffic.end_s``.
    2. Run its rows again, and put its new hash above.
    """
    track = load_track(name)
    assert FROZEN.get(f"{name} {track.version}") == track.sha256, (
        "something of this track changed: make a new version, and run its rows again"
    )
    asked_arm(track, {}).plan([0])  # refuses other files
    listed = {(SCENARIOS / "bench" / file).resolve() for file in track.files}
    configuration = (SCENARIOS / "bench" / track.scenario).resolve()
    inputs = ET.parse(configuration).getroot().iterfind("input/*")
    names = [file for one in inputs for file in one.attrib["value"].split(",")]
    assert len(names) >= 3
    assert {configuration, *((configuration.parent / file).resolve() for file in names)} <= listed


@pytest.mark.slow
@pytest.mark.parametrize("name", track_names())
def test_every_learner_policy_rule_and_control_is_an_arm_of_a_track(name):
    track = load_track(name)
    arms = [asked_arm(track, {"learner": learner}) for learner in LEARNERS.names()]
    arms += [asked_arm(track, {"selection.name": policy}) for policy in SELECTIONS.names()]
    arms += [asked_arm(track, {}, control.name) for control in track.controls]
    for arm in arms:
        (cell,) = arm.plan([0]).cells[-1:]
        assert cell.experiment.seed == 0
        assert cell.arm in {arm.row.arm, "baseline"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small-classification-signs-local-only", "small-contrastive-flsimco"])
def test_a_shipped_row_comes_out_again(name):
    path = SCENARIOS / "bench" / "rows" / "intersection" / f"{name}.json"
    assert vnetsim.bench_check(path, seeds=3, progress=False)
