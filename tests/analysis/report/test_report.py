import base64
import dataclasses
import re
import shutil
from hashlib import sha256
from html.parser import HTMLParser
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from received import reseal
from small_runs import write_table

from analysis.formatting import number, si
from analysis.loading import curves, load, moved_bytes
from analysis.plots.seen import framed_paths
from analysis.report.headline import _backhaul_rows, finding, headline
from analysis.report.notices import notices
from analysis.report.page import build_report
from analysis.report.record import record
from analysis.statistics.participation import fluctuation
from analysis.statistics.windows import entries
from vnetsim.learner_facts import CLOUD
from vnetsim.storage.records import ComputerEntry
from vnetsim.storage.run_directory import RunDirectory

TRAFFIC = ["map", "occupancy", "speeds", "dwell", "blur-level"]
LEARNING = ["timeline", "outcomes", "weights", "spent", "learning-training-loss", "learning-knn-accuracy", "silos"]
HOSTILE = "<script>alert({})</script>../$x^2$&\"'\x07\u6f22'DejaVu Sans'; url(http://evil.example/)"


class Page(HTMLParser):
    """What a page holds: elements by id, everything it would load, all its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.drawn, self.sentences, self.loads, self.text = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        if tag == "figure" and attrs.get("id", "").startswith("figure-"):
            self.drawn.append(attrs["id"].removeprefix("figure-"))
        if attrs.get("class") == "missing":
            self.sentences.append(attrs["id"].removeprefix("figure-"))
        self.loads += [v for k, v in attrs.items() if k in {"src", "href", "xlink:href", "action", "data", "srcset"}]
        assert not any(name.startswith("on") for name in attrs)

    def handle_data(self, data):
        self.text.append(data)


def read(run):
    text = (run / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


def figure_files(run):
    return {path.stem for path in (run / "figures").glob("*.svg")}


def test_learning_report_is_whole(learning_run):
    _, page = read(learning_run)
    assert sorted(page.drawn) == sorted([*TRAFFIC, *LEARNING, "samples"])
    assert page.sentences == []
    against = {f"{name}-{what}" for name in LEARNING if name.startswith("learning-") for what in ("time", "bytes")}
    assert figure_files(learning_run) == {*TRAFFIC, *LEARNING, *against}
    assert "By vehicle type" in page.text
    assert "By RSU" not in page.text


def test_the_page_stands_alone_and_lets_nothing_in(learning_run):
    text, page = read(learning_run)
    assert page.loads
    assert all(load.startswith(("#", "data:image/png;base64,")) for load in page.loads)
    assert not {"link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert "@import" not in text
    assert text.count("url(") == text.count("url(#") > 0
    (policy,) = re.findall(r"<meta http-equiv=.*", text)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:;" in policy
    data, code = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert data[0] == ' type="application/octet-stream"'
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", data[1])
    allowed = base64.b64encode(sha256(code[1].encode()).digest()).decode()
    assert (code[0], re.findall(r"script-src ([^;]*);", policy)) == ("", [f"'sha256-{allowed}'"])


def test_every_section_has_a_link_and_every_id_is_its_own(learning_run):
    text, _ = read(learning_run)
    assert re.findall(r'<a href="#([^"]+)">', text) == re.findall(r'<section id="([^"]+)">', text)
    ids = re.findall(r'<[^>]* id="([^"]*)"', text)
    assert len(ids) == len(set(ids)) > 50


def test_the_result_comes_first_and_no_means_of_learning_among_the_tiles(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=60)
    directory = RunDirectory(run)
    manifest = directory.manifest()
    extra = [
        {"name": "lr", "label": "Learning rate", "unit": "", "caption": "", "result": False},
        {"name": "rmse_constant", "label": "Constant predictor", "unit": "RMSE", "caption": "", "result": False},
    ]
    manifest["series"] += extra
    directory.write_json("manifest.json", manifest)
    metrics = directory.read("metrics")
    columns = metrics.columns
    rows = [{"round": r, "name": one["name"], "value": 0.1, "aggregator": "single"} for one in extra for r in (1, 2)]
    added = pl.DataFrame([{**dict.fromkeys(columns), **row} for row in rows], schema=metrics.schema)
    write_table(directory, "metrics", pl.concat([metrics, added]).rows())
    labels = [label for label, _ in build_report(run).headline]
    assert labels[:2] == ["kNN accuracy", "Linear-probe accuracy"]
    assert not {"Learning rate", "Constant predictor"} & set(labels)
    text, _ = read(run)
    lists = re.findall(r"<dl class=\"tiles.*?</dl>", text, re.DOTALL)
    large, small = (re.findall(r"<dt>([^<]*)</dt>", part) for part in lists)
    assert large == ["kNN accuracy", "Linear-probe accuracy", "Training loss", "Committed"]
    assert set(large) | set(small) == set(labels) - {"Wall time"}
    assert "Learning rate" in text, "it is drawn"


def test_every_figure_has_text_and_a_caption_with_units(learning_run):
    text, page = read(learning_run)
    words = " ".join(page.text)
    for label in ("speed at entry (km/h)", "dwell time (s)", "simulated time (min)", "data (MB)", "x in the net (m)"):
        assert label in words
    assert text.count("<figcaption>") == len(TRAFFIC) + len(LEARNING) + 1
    assert "<figcaption></figcaption>" not in text
    for path in (learning_run / "figures").glob("*.svg"):
        assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.fixture(scope="module")
def moved(learning_run, tmp_path_factory):
    """A copy of the run elsewhere, and what building its report returns."""
    copy = shutil.copytree(learning_run, tmp_path_factory.mktemp("moved") / "elsewhere")
    return copy, build_report(copy)


def test_same_directory_same_bytes_wherever_it_lies(moved, learning_run):
    copy, _ = moved
    files = [
        path.relative_to(learning_run) for path in (learning_run / "report.html", *learning_run.glob("figures/*.svg"))
    ]
    assert len(files) > 10
    assert all((copy / path).read_bytes() == (learning_run / path).read_bytes() for path in files)


def test_headline(moved):
    copy, result = moved
    numbers = {label: value.replace("\u202f", " ") for label, value in result.headline}
    assert result.path == copy / "report.html"
    assert numbers["Rounds"] == "25 of 25"
    assert numbers["Vehicles in coverage"] == "420 (420 windows)"
    assert numbers["Linear-probe accuracy"] == "76.3 %"
    assert numbers["kNN accuracy"].endswith("(first 31.0 %)")
    assert numbers["Wall time"] == "65.2 s"
    run = load(copy)
    steady = f"{number(fluctuation(run.rounds), 2)} (from round to round, trend removed)"
    assert numbers["Fluctuation of the loss"] == steady
    short = dataclasses.replace(run, rounds=run.rounds.head(4))
    assert dict(headline(short))["Fluctuation of the loss"].startswith(
        "\u2013 (needs 10 rounds of one aggregator, here 4"
    )
    committed = (run.participations["outcome"] == "committed").sum()
    assert numbers["Committed"].startswith(f"{committed} of {run.invited.height} (")
    speed = float(entries(run.windows)["entry_speed_mps"].median())
    assert numbers["Median blur level"] == f"{number(run.experiment.camera.level_px(speed))} px (on the sensor)"
    assert numbers["Median motion kernel"] == f"{number(run.experiment.camera.kernel_px(speed, 32))} px (of 32 px)"


def test_the_page_begins_with_what_came_out(learning_run, tmp_path, make_run):
    run = load(learning_run)
    ended = run.invited["outcome"].value_counts(sort=True).rows()
    done, total = dict(ended)["committed"], run.invited.height
    words = finding(run).replace("\u202f", " ")
    assert words.startswith(f"{run.windows['vehicle_id'].n_unique()} vehicles drove past, in range for ")
    assert f"Of {total} invitations {100 * done / total:.0f} % ended in a committed update, " in words
    late = sum(n for name, n in ended if name in ("deadline", "stale"))
    assert f"{100 * late / total:.0f} % were ended by a rule of the round" in words
    assert " kNN accuracy went from 31.0 % to " in words
    assert " in 25 rounds. The images of " in words
    slow = dataclasses.replace(run, participations=run.participations.with_columns(speed_mps=pl.lit(1.0)))
    assert finding(slow).endswith("The images of all committed updates were sharp.")
    assert f'<p class="finding">{finding(run)}</p>' in (learning_run / "report.html").read_text(encoding="utf-8")
    passed = load(make_run(tmp_path / "mobility", kind="mobility", vehicles=30))
    assert finding(passed).startswith("30 vehicles drove past, in range for ")
    assert finding(load(make_run(tmp_path / "empty", vehicles=0))) == ""


def test_curves_stand_against_rounds_time_and_data_of_what_had_ended(learning_run):
    run = load(learning_run)
    (knn,) = [curve for curve in curves(run) if curve.label == "kNN accuracy"]
    assert knn.time_s.tolist() == [36.0 * r for r in knn.round]
    parts = run.participations.filter(pl.col("end_s") <= 360.0)
    by_hand = parts.select(pl.col("download_bytes") + pl.col("upload_bytes")).sum().item()
    assert moved_bytes(run.spent, np.array([0.0, 360.0])).tolist() == [0.0, pytest.approx(by_hand)]
    text, _ = read(learning_run)
    learning = text.split('<section id="learning">')[1].split("</section>")[0]
    assert re.findall(r'<input type="radio" class="to-(\w+)"', learning) == ["rounds", "time", "bytes"]
    for what, label in (("time", "simulated time (min)"), ("bytes", "data over the air so far (MB)")):
        assert learning.count(f'<div class="drawing by-{what}"') == 2
        assert label in learning
    assert f".to-{what}:checked ~ .panels :is(" in text


def test_every_figure_has_a_card_of_equation_source_and_validity(learning_run):
    text, page = read(learning_run)
    for name in page.drawn:
        figure = text.split(f'id="figure-{name}">')[1].split("</figure>")[0]
        if name != "samples":
            assert all(f"<dt>{what}</dt>" in figure for what in ("Equation", "Source", "Holds")), name
    assert "<details><summary>Details</summary><p>n = 420" in text.replace("\u202f", " ")


def test_energy_is_added_up_where_the_computers_power_is_known_and_not_told_elsewhere(learning_run):
    run = load(learning_run)
    assert "Energy on board" not in dict(headline(run)), "of no computer is it known"
    assert "Computers" not in [facts.title for facts in record(run)]
    joules = {"download_j": 1.0, "train_j": 90.0, "upload_j": 4.0, "wait_j": 5.0, "exchange_j": 0.0}
    invited = pl.col("outcome") != "not_selected"
    columns = {name: pl.when(invited).then(value) for name, value in joules.items()}
    parts = run.participations.with_columns(**columns)
    commits, total = parts.filter(outcome="committed").height, 100 * run.invited.height
    shown = dict(headline(dataclasses.replace(run, participations=parts)))["Energy on board"]
    assert shown == f"{si(total, 'J')} ({si(total / commits, 'J')} a commit, 90\u202f% of it for training)"
    # a fleet of which one computer's power is not known
    one = run.invited["participation"][0]
    some = parts.with_columns(pl.when(pl.col("participation") != one).then(pl.col(name)).alias(name) for name in joules)
    shown = dict(headline(dataclasses.replace(run, participations=some)))["Energy on board"]
    height = run.invited.height
    assert shown.startswith(f"{si(total - 100, 'J')} (of {height - 1} of {height} participations, 90")
    fleet = [
        ComputerEntry(preset="agx-xavier", share=0.3, median_flops=5e11, watts=30),
        ComputerEntry(preset="ecu", share=0.7, median_flops=1e9, by_hand=True),
    ]
    told = dataclasses.replace(run.manifest, computers=fleet, radio_unit_w={"sending": 2.0, "receiving": 1.0})
    (computers,) = [f for f in record(dataclasses.replace(run, manifest=told)) if f.title == "Computers"]
    unknown = "power not known, no energy reckoned"
    assert [(name, value.replace("\u202f", " ")) for name, value, _ in computers.rows] == [
        ("agx-xavier", "30 % of the vehicles, 500 GFLOP/s in the median, 30 W while it trains"),
        ("ecu", "70 % of the vehicles, 1.00 GFLOP/s in the median (given by hand), " + unknown),
        ("radio unit", "2 W sending, 1 W receiving, both assumed"),
    ]


@pytest.mark.parametrize(
    ("took_s", "busiest"), [(599.0, "2.00 MB in 9 min 59 s"), (864.0, "6.00 GB in 30 days, if it")]
)
def test_a_month_is_extrapolated_from_ten_minutes_alone(took_s, busiest):
    sent = pl.DataFrame({"down_bytes": [1.5e6, 1e6], "up_bytes": [5e5, 0.0]})
    ((_, words),) = _backhaul_rows(SimpleNamespace(backhaul=sent, simulated_s=took_s))
    assert f"(busiest RSU: {busiest}" in words.replace("\u202f", " ")


def test_mobility_alone_has_traffic_and_blur_only(tmp_path, make_run):
    run = make_run(tmp_path / "run", kind="mobility", vehicles=60)
    assert not (run / "rounds.parquet").exists()
    result = build_report(run)
    _, page = read(run)
    assert page.drawn == ["map", "occupancy", "speeds", "dwell", "blur-level"]
    assert page.sentences == []
    assert "Rounds" not in dict(result.headline)
    shown = (run / "report.html").read_text().partition("</main>")[0]
    shown = re.sub("(?s)<script.*?</script>|<style.*?</style>|<svg.*?</svg>|<pre.*?</pre>", "", shown)
    for word in ("invited", "commit", "download", "participat", "Round", "a round"):
        assert word not in shown, word


def test_rsu_without_traffic_gives_sentences(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=0)
    result = build_report(run)
    _, page = read(run)
    assert page.drawn == ["map", "silos"]
    assert set(page.sentences) == {*TRAFFIC, *LEARNING} - {"map", "learning-training-loss", "silos"}
    assert "Measured once: 31.0\u202f% before training" in " ".join(page.text)
    assert "RSU centre had no traffic" in " ".join(page.text)
    assert dict(result.headline)["Vehicles in coverage"] == "none"


def test_neither_traffic_nor_net_and_figures_of_an_earlier_report_go(tmp_path, make_run):
    run = make_run(tmp_path / "run", kind="mobility", vehicles=20)
    (run / "figures").mkdir()
    for name in ("series-1", "series-2-bytes", "learning-loss", "mine"):  # of an older vnetsim, or of the user
        (run / "figures" / f"{name}.svg").write_text("<svg/>")
    build_report(run)
    assert figure_files(run) == {*TRAFFIC, "mine"}
    (run / "figures" / "mine.svg").unlink()
    write_table(RunDirectory(run), "windows", [])
    write_table(RunDirectory(run), "map", [])
    build_report(run)
    _, page = read(run)
    assert (page.drawn, page.sentences, figure_files(run)) == ([], TRAFFIC, set())


def test_interrupted_before_the_first_round(tmp_path, make_run):
    run = make_run(tmp_path / "run", status="interrupted", vehicles=30)
    for name in ("participations", "rounds", "metrics", "silos"):
        (run / f"{name}.parquet").unlink()
    (run / "samples.npz").unlink()
    reseal(run)
    build_report(run)
    _, page = read(run)
    assert "was interrupted" in " ".join(page.text)
    assert set(page.sentences) == {"timeline", "outcomes", "weights", "spent", "learning", "silos"}


def test_hostile_names_are_harmless(tmp_path, make_run):
    run = make_run(
        tmp_path / "run", vehicles=40, vehicle_name=HOSTILE, note=HOSTILE,
        rsus=(("<img src=x onerror=alert(1)>\"'", 500.0, 500.0, 250.0),),
    )  # fmt: skip
    build_report(run)
    text, page = read(run)
    assert page.tags.count("script") == 2  # what is played, and the script that plays it
    assert set(page.loads) <= {load for load in page.loads if load.startswith(("#", "data:image/png;base64,"))}
    assert "<script>alert(" in " ".join(page.text)
    assert "\x07" not in text
    assert sorted(page.drawn) == sorted([*TRAFFIC, *LEARNING, "samples"])
    for path in (run / "figures").glob("*.svg"):
        tags = {element.tag.rpartition("}")[2] for element in ET.parse(path).iter()}
        assert "script" not in tags
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_the_page_says_how_unlike_classes_of_silos_are_and_not_ranges_of_angles(learning_run, exchange_run):
    assert "classes in all. The silos are as unlike as a Dirichlet draw with alpha = 1.1." in read(learning_run)[0]
    assert "ranges of the steering angle in all.<" in read(exchange_run)[0]


@pytest.mark.parametrize(("task", "target"), [("classification", "class {}"), ("steering", "steers 0.00")])
def test_frames_along_paths_say_when_how_fast_and_what(task, target, seeing_run):
    text, page = read(seeing_run(task)[0])
    assert page.drawn[-1] == "paths"
    figure = text.split('id="figure-paths">')[1].split("</figure>")[0].replace("\u202f", " ")
    assert figure.count("<img") == 18, "at most eight of a path"
    assert "&lt;b&gt;5&lt;/b&gt;: 18.0 km/h on average, first frame at 30.0 s" in figure
    assert f"+2.5 s<br>72 km/h<br>{target.format(7)}</li>" in figure


def test_a_path_with_hardly_a_frame_is_not_shown(seeing_run):
    run = load(seeing_run("classification")[0])
    of = run.samples.paths
    more = {
        name: np.append(of[name], of[name][-1:], axis=0) for name in of if name not in ("vehicles", "mean_mps", "path")
    }
    more |= {"vehicles": np.append(of["vehicles"], "late"), "mean_mps": np.append(of["mean_mps"], 11.0)}
    samples = dataclasses.replace(run.samples, paths=more | {"path": np.append(of["path"], 3)})
    shown = framed_paths(dataclasses.replace(run, samples=samples))
    assert [len(path.frames) for path in shown] == [8, 8, 2]


@pytest.mark.parametrize("task", ["classification", "steering"])
def test_the_page_says_what_was_seen_where_and_how_fast(task, seeing_run):
    text, page = read(seeing_run(task)[0])
    assert "seen" in page.drawn
    words = text.replace("\u202f", " ").replace("\u2212", "-")
    figure = words.split('id="figure-seen">')[1].split("</figure>")[0]
    if task == "classification":
        assert "100 % of the images are of the class most often seen in the other images from their square;" in figure
        assert "50 % are of class 3" in figure or "50 % are of class 5" in figure
        assert ">class 3<" in figure, "legend"
    else:
        assert "Mean steering angle, right positive, of the 400 training images from each square of 30 m." in figure
    assert "rank correlation -1.0 (Spearman)" in words, "fast is straight"
    assert "place (squares) explains 75 %, time (minutes) " in words
    assert ">7 to 36 km/h<" in words


def test_a_learner_declares_its_own_series(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=60)
    directory = RunDirectory(run)
    manifest = directory.manifest()
    manifest["series"] = [
        {"name": "rmse", "label": "steering error", "unit": "rad", "caption": "Pooled RMSE."},
        {"name": "mae", "label": "mean error", "unit": "rad", "caption": "Pooled MAE."},
        {"name": "absent", "label": "never measured", "unit": "m", "caption": ""},
    ]
    directory.write_json("manifest.json", manifest)
    write_table(
        directory, "metrics", [(r, 0.0, name, 0.3 / (r + 1), "single") for r in range(3) for name in ("rmse", "mae")]
    )
    result = build_report(run)
    words = " ".join(read(run)[1].text)
    assert "value (rad)" in words
    assert "training loss" in words  # from the rounds, as no series is called so
    assert "never measured" not in words
    assert "Training loss" in dict(result.headline)
    assert dict(result.headline)["Steering error"].replace("\u202f", " ") == "0.100 rad (first 0.300 rad)"


def with_radio(run, radio, **more):
    """Return what notices and record say of a radio."""
    directory = RunDirectory(run)
    directory.write_json("manifest.json", {**directory.manifest(), "radio": radio, **more})
    data = load(run)
    return " ".join([*notices(data), *(f"{name} {value}" for table in record(data) for name, value, _ in table.rows)])


def test_it_says_when_a_link_never_leaves_its_cap(tmp_path, make_run):
    run = make_run(tmp_path / "run", kind="run", vehicles=6, rounds=1)
    assert "at the cap" not in with_radio(run, {})
    links, none = {"looked_up": 1234, "capped": 1234}, {"looked_up": 0, "capped": 0}
    words = with_radio(run, {"cap_bps": 50e6, "links": links, "sidelinks": none})
    assert "No link between RSU and vehicles ever left its cap: all 1\u202f234 rates were 50.0\u202fMbit/s" in words
    assert "100.0\u202f% of 1\u202f234 at the cap of 50.0\u202fMbit/s" in words
    assert "rates between vehicles" not in words
    assert "radio.bandwidth_hz times" in words
    own = {"radio": {"name": "rate-map", "source": "", "settings": {}}}
    words = with_radio(run, {"cap_bps": 50e6, "links": links, "sidelinks": none}, plugins=own)
    assert "ever left its cap: all 1\u202f234 rates were 50.0\u202fMbit/s. Distance" in words, "no key of another model"
    words = with_radio(run, {"cap_bps": 50e6, "links": {**links, "capped": 617}, "sidelinks": {**links, "capped": 0}})
    assert "ever left its cap" not in words
    assert "50.0\u202f% of 1\u202f234 at the cap" in words
    assert "0.0\u202f% of 1\u202f234 at the cap" in words


def test_models_of_several_aggregators_are_shown_by_their_mean(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=40, rounds=3)
    directory, alone = RunDirectory(run), load(run)
    rounds, metrics = alone.rounds, directory.read("metrics")
    first, second = (pl.lit(name).alias("aggregator") for name in ("rsu0", "rsu1"))
    write_table(directory, "rounds", pl.concat([rounds.with_columns(first), rounds.with_columns(second)]).rows())
    higher = metrics.with_columns(second, value=pl.col("value") + 0.2)
    write_table(directory, "metrics", pl.concat([metrics.with_columns(first), higher]).rows())
    both = load(run)
    expected = alone.metrics.sort("round", "name")["value"]
    for column, more in (("low", 0.0), ("value", 0.1), ("high", 0.2)):
        assert both.metrics.sort("round", "name")[column].to_list() == pytest.approx((expected + more).to_list())
    assert dict(headline(both))["Rounds"] == "6 of 6"
    assert "2 RSUs aggregate by themselves, each its own model: what was measured" in notices(both)[0]
    cloud = metrics.with_columns(aggregator=pl.lit(CLOUD), value=pl.col("value") + 1.0)
    write_table(directory, "metrics", pl.concat([metrics.with_columns(first), cloud, higher]).rows())
    assert load(run).metrics.select(cloud.columns).equals(cloud), "of a hierarchy the cloud's alone"
