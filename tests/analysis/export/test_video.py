"""Videos: what the page plays, with its colours, in the formats that Pillow and ffmpeg write."""

import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import analysis
import vnetsim
from analysis.export import video
from analysis.loading import load
from analysis.report import playback
from analysis.style import BLUE, GREEN, ORANGE, SKY, VERMILION, styled
from vnetsim.display import progress_display

FAKE = """#!{python}
import pathlib, sys
sent = sys.stdin.buffer.read()
if "{fails}":
    sys.exit("no encoder\\nfor this")
width = int(sys.argv[sys.argv.index("-s") + 1].split("x")[0])
clock = b"".join(sent[4 * (width * row + width // 2) : 4 * width * (row + 1) : 4] for row in range(32))
pathlib.Path(sys.argv[-1]).write_text(f"{{len(sent)}} {{min(clock)}} " + " ".join(sys.argv[1:-1]))
"""


@pytest.fixture
def run(make_run, tmp_path, monkeypatch) -> Path:
    """A run of 6 vehicles, shown in 3 frames."""
    monkeypatch.setattr(video, "LONGEST_S", 2)
    monkeypatch.setattr(video, "FRAMES_PER_S", dict.fromkeys(video.FRAMES_PER_S, 1))
    return make_run(tmp_path / "run", vehicles=6, span_s=60.0, rounds=3, rsus=(("$\\frac{<b>", 500.0, 500.0, 250.0),))


@pytest.fixture
def ffmpeg(tmp_path, monkeypatch):
    """A function that puts a program of that name on the PATH; it writes the number of bytes and the darkest clock."""

    def put(*, fails: bool = False) -> None:
        program = tmp_path / "bin" / "ffmpeg"
        program.parent.mkdir(exist_ok=True)
        program.write_text(FAKE.format(python=sys.executable, fails="yes" if fails else ""))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))

    return put


def test_an_animation_has_the_whole_run(run, tmp_path):
    (made,) = vnetsim.export(run, video=tmp_path / "made.gif", progress=False)
    with Image.open(made) as picture:
        assert picture.n_frames == 3
        pictures = []
        for k in range(3):
            picture.seek(k)
            picture.load()
            assert picture.info["duration"] == 1000
            pictures.append(np.asarray(picture.convert("RGB"), int))
        assert picture.width == 800
    for colour in (ORANGE, BLUE, SKY, GREEN, VERMILION):
        off = np.abs(pictures[0] - np.multiply(255, to_rgb(colour))).max(axis=-1)
        assert (off < 24).sum() > 20, "symbols are small, and so are those of the legend"
    assert all((one != two).any() for one, two in itertools.pairwise(pictures))


def test_ffmpeg_gets_every_frame(run, ffmpeg, tmp_path):
    ffmpeg()
    (made,) = vnetsim.export(run, video=tmp_path / "made.mp4", progress=False)
    sent, darkest, *arguments = made.read_text().split()
    width, height = map(int, arguments[arguments.index("-s") + 1].split("x"))
    assert int(sent) == 3 * width * height * 4
    assert int(darkest) < 99, "the time"
    assert width % 2 == height % 2 == 0, "as H.264 wants"
    assert "yuv420p" in arguments, "which browsers play"


def test_a_failed_ffmpeg_is_one_line(run, ffmpeg, tmp_path):
    ffmpeg(fails=True)
    with pytest.raises(vnetsim.RunError, match=r"made\.mp4: ffmpeg failed: .*no encoder for this"):
        vnetsim.export(run, video=tmp_path / "made.mp4", progress=False)
    assert not (tmp_path / "made.mp4").exists()


def test_what_cannot_be_shown_is_refused(run, make_run, small_comparison, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "old.gif").touch()
    empty = make_run(tmp_path / "empty", vehicles=0)
    for folder, name, words in (
        (run, "made.avi", r"made\.avi: expected a file that ends in \.mp4, \.gif"),
        (run, "old.gif", "old.gif: is there already"),
        (run, "made.mp4", "needs the program ffmpeg, which is not on the PATH"),
        (empty, "made.gif", "empty: no vehicle was in coverage"),
        (tmp_path, "made.gif", "no manifest.json"),
        (small_comparison, "made.gif", "is a comparison; --fcd and --video take one of its runs, in .*cells"),
    ):
        with pytest.raises(vnetsim.InputError, match=words):
            vnetsim.export(folder, video=tmp_path / name, progress=False)


def frames_of(run: Path, per_s: int) -> video._Frames:
    with styled(), progress_display(False) as display:
        return video._Frames(load(run), per_s, display)


def test_a_vehicle_that_trains_is_orange_where_it_was(make_run, tmp_path):
    run = make_run(tmp_path / "run", vehicles=6, span_s=300.0, rounds=3)
    frames = frames_of(run, 100)
    table = vnetsim.load(run)
    found = 0
    for row in table.participations.filter(outcome="committed").iter_rows(named=True):
        time_s = row["start_s"] + row["download_s"] + row["train_s"] / 2
        k = round((time_s - frames._motion.begin_s) / video.SLOWEST * 100)
        window = table.windows.filter(vehicle_id=row["vehicle_id"]).row(0, named=True)
        path = [np.interp(time_s, window["path_time_s"], window[f"path_{axis}_m"]) for axis in "xy"]
        x, y = frames.figure.axes[0].transData.transform(path)
        picture = frames.draw(k)
        assert picture.getpixel((int(x), int(picture.height - y))) == tuple(round(255 * one) for one in to_rgb(ORANGE))
        found += 1
    assert found >= 2


def test_a_handover_is_an_arc_between_the_rsus(make_run, tmp_path, monkeypatch):
    rsus = (("west", 500.0, 500.0, 250.0), ("east", 900.0, 500.0, 250.0))
    run = make_run(tmp_path / "run", vehicles=6, span_s=60.0, rounds=3, rsus=rsus)
    at_s = 30.0
    handovers = [[0, at_s, 0, 1, 0.5, 0.0, "training", "carry"], [1, at_s, 1, 0, 0.0, None, "training", "drop"]]
    monkeypatch.setattr(video, "handovers_of", lambda *_: handovers)
    frames = frames_of(run, 10)
    at = round(at_s - frames._motion.begin_s)  # a frame shows a second
    frames.move_artists(at - 1)
    assert not frames._arcs.get_segments()
    frames.move_artists(at + 2)
    (arc,) = frames._arcs.get_segments()
    np.testing.assert_allclose(arc[[0, -1]], [(500, 500), (900, 500)])
    assert [frames._find_serving_rsu(0, 0, 0.0, at_s + one) for one in (-1, 1)] == [0, 1]
    assert "handed over" in [text.get_text() for text in frames.figure.legends[0].get_texts()]


def test_a_long_run_is_shown_faster(run):
    frames = frames_of(run, 1)
    frames._run = replace(frames._run, every=3)
    frames.move_artists(0)
    assert frames._clock.get_text().endswith("x as fast, 1 in 3 vehicles")
    assert len(frames) <= video.LONGEST_S + 1
    assert frames._speed % video.SLOWEST == 0
    for k, words in ((0, "0 of 3 rounds closed, 0 committed"), (len(frames) - 1, "3 of 3 rounds closed, 15 committed")):
        frames.move_artists(k)
        assert f"{frames._speed} x as fast" in frames._clock.get_text()
        assert frames._counts.get_text().startswith(words)


def test_colours_and_words_are_those_of_the_page():
    script = (Path(analysis.__file__).parent / "templates" / "playback.js").read_text(encoding="utf-8")
    (stages,) = re.findall(r"const STAGES = \[(.*?)\];", script, re.DOTALL)
    assert re.findall(r'\["(.*?)", "(.*?)"\]', stages) == [(word, colour.lower()) for word, colour, *_ in video.STAGES]
    assert len(video.STAGES) == len(playback.STAGES)


def test_a_frame_says_of_how_many_vehicles_it_shows_one(make_run, tmp_path, monkeypatch):
    path = make_run(tmp_path / "run", kind="mobility", vehicles=60)
    monkeypatch.setattr(analysis.loading, "MOST_WINDOWS", 30)
    monkeypatch.setattr(video, "MOST_WINDOWS", 10)
    frames = frames_of(path, 1)
    frames.move_artists(0)
    k = 2 * -(-load(path).windows.height // 10)
    assert frames._clock.get_text().endswith(f"x as fast, 1 in {k} vehicles")
