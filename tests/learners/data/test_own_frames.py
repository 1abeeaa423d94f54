"""Frames of one's own in place of drawn ones: edges by position, the example's pictures, and views that are wrong."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from own_frames import COLOURS, PLUGIN, SCENARIOS, own_frames

from learners.data import load_images, load_steering
from learners.data.driven import Driven, Seen
from learners.data.streets import find_edges, read_net
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import DataSettings
from vnetsim.learning.drives import RecordedDrive, RecordedTraffic
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.random_streams import Streams

__all__ = ["own_frames"]
NET = SCENARIOS / "intersection" / "intersection.net.xml"


@pytest.fixture(scope="module")
def lanes():
    streets = [lane for lane in read_net(NET).lanes if not (lane.function or lane.paved or lane.number)]
    return sorted(streets, key=lambda lane: -np.hypot(*np.diff(lane.shape, axis=0).T).sum())[:8]


@pytest.fixture(scope="module")
def traffic(lanes):
    drives = []
    for number in range(90):
        shape, speed_mps = lanes[number % 8].shape, 6.0 + number % 5
        gone_m = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(shape, axis=0).T))])
        time_s = np.arange(0, gone_m[-1] / speed_mps, 0.5)
        x_m, y_m = (np.interp(speed_mps * time_s, gone_m, shape[:, axis]) for axis in (0, 1))
        drives.append(
            RecordedDrive(
                vehicle_id=f"v{number}", silo=number % 6, time_s=5.0 * number + time_s, x_m=x_m, y_m=y_m,
                speed_mps=np.full(len(time_s), speed_mps),
            )
        )  # fmt: skip
    return RecordedTraffic(net=NET, drives=drives)


def test_the_edge_is_that_of_the_nearest_lane_in_the_vehicles_direction(lanes):
    net = read_net(NET)
    for lane in lanes:
        start, end = lane.shape[:2]
        length_m = np.hypot(*(end - start))
        ahead = (end - start) / length_m
        at_m = np.linspace(0.2, 0.9, 7) * length_m
        beside = 1.0 * np.array([ahead[1], -ahead[0]])
        x_m, y_m = (start + at_m[:, None] * ahead + beside).T
        heading = np.full(7, np.arctan2(ahead[1], ahead[0]))
        edges, found_m = find_edges(net, x_m, y_m, heading + 0.3)
        assert edges.tolist() == [lane.edge] * 7
        assert found_m == pytest.approx(at_m, abs=1e-6)
        back, _ = find_edges(net, x_m, y_m, heading + np.pi)
        assert lane.edge not in back.tolist()
    nowhere, found_m = find_edges(net, x_m + 1e5, y_m, heading)
    assert (nowhere.tolist(), found_m.tolist()) == ([""] * 7, [0.0] * 7)


def test_a_vehicle_sees_the_nearest_picture_of_its_edge_and_tests_are_of_other_pictures(traffic, own_frames):
    settings = DATA_SETS.find(PLUGIN)(file=str(own_frames), frame_s=0.5)
    data = DataSettings(name="own-frames", image_px=8, train_images=400, test_images=20)
    found = load_images(data, streams=Streams(seed=0), settings=settings, traffic=traffic)
    assert found.class_names == tuple(sorted(COLOURS))
    rows = [line.split(",") for line in own_frames.read_text().splitlines()[1:]]
    pictures = {}
    for part in ("train", "test"):
        images, labels = getattr(found, part), getattr(found, f"{part}_labels")
        number = 256 * images[:, 0, 0, 0].long() + images[:, 1, 0, 0]
        assert (images[:, 2, 0, 0] == 7).all()
        assert [found.class_names[label] for label in labels] == [rows[one][3] for one in number]
        colours = torch.tensor([COLOURS[found.class_names[label]] for label in labels], dtype=torch.uint8)
        assert torch.equal(images[:, :, 4, 4], colours)
        pictures[part] = set(number.tolist())
        for name, one in zip(getattr(found, f"{part}_names"), number.tolist(), strict=True):
            vehicle, time_s = name[1:].split("@")
            at_m = (6 + int(vehicle) % 5) * (float(time_s) - 5 * int(vehicle))
            assert abs(at_m - float(rows[one][2])) <= 7.5 + 0.5, "the nearest is half a distance away at most"
    assert not pictures["train"] & pictures["test"]
    assert len(pictures["test"]) > 3
    far = DATA_SETS.find(PLUGIN)(file=str(own_frames), frame_s=0.5, reach_m=0.1)
    with pytest.raises(InputError, match=r"^data\.train_images: 400 frames with a picture of a class asked for"):
        load_images(data, streams=Streams(seed=0), settings=far, traffic=traffic)
    grey = load_steering(data, streams=Streams(seed=0), settings=settings, traffic=traffic)
    assert grey.train.shape == (400, 1, 8, 8)


def test_an_edge_that_the_net_lacks_is_refused(traffic, tmp_path):
    (tmp_path / "index.csv").write_text("file,edge,pos_m,label\na.png,nowhere,5,red\n")
    settings = DATA_SETS.find(PLUGIN)(file=str(tmp_path / "index.csv"))
    with pytest.raises(
        InputError, match=r"^data\.file: .*index\.csv names the edge 'nowhere', which is not in the net"
    ):
        load_images(DataSettings(name="own-frames"), streams=Streams(seed=0), settings=settings, traffic=traffic)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "index.csv lists no picture"),
        ("file,edge,pos_m\na.png,E,5\n", "index.csv: KeyError: 'label'"),
        ("file,edge,pos_m,label\na.png,E,5,red\na.png,E,far,red\n", "index.csv: ValueError: could not convert"),
        ("file,edge,pos_m,label\na.png,E,nan,red\n", "'a.png' has no label or no finite pos_m"),
        ("file,edge,pos_m,label\na.png,E,5\n", "'a.png' has no label or no finite pos_m"),
        ("file,edge,pos_m,label\na.png,E,5,\xe9".encode("latin-1"), "index.csv: UnicodeDecodeError"),
        (None, "index.csv: FileNotFoundError"),
    ],
)
def test_a_list_of_pictures_that_cannot_be_read_is_refused_in_one_line(text, words, traffic, tmp_path):
    if text is not None:
        (tmp_path / "index.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    settings = DATA_SETS.find(PLUGIN)(file=str(tmp_path / "index.csv"))
    with pytest.raises(InputError, match=rf"^data\.file: .*{words}") as refused:
        load_images(DataSettings(name="own-frames"), streams=Streams(seed=0), settings=settings, traffic=traffic)
    assert len(str(refused.value).splitlines()) == 1


def test_a_picture_that_cannot_be_read_names_the_setting(traffic, tmp_path):
    net_edges = sorted({lane.edge for lane in read_net(NET).lanes if not lane.function})
    rows = [f"a.png,{edge},{at_m},{('red', 'blue')[at_m % 2]}" for edge in net_edges for at_m in range(0, 200, 5)]
    (tmp_path / "index.csv").write_text("\n".join(["file,edge,pos_m,label", *rows]))
    settings = DATA_SETS.find(PLUGIN)(file=str(tmp_path / "index.csv"))
    data = DataSettings(name="own-frames", train_images=20, test_images=1)
    with pytest.raises(InputError, match=r"^data\.file: \d+ of \d+ images cannot be read"):
        load_images(data, streams=Streams(seed=0), settings=settings, traffic=traffic)


@dataclass(frozen=True, kw_only=True)
class Wrong(Driven):
    name, source = "wrong", "a test"
    fault: str = ""
    class_names = ("a", "b")

    def view(self, *_):
        return self

    def see(self, frames):
        count = len(frames.time_s)
        labels = np.arange(count) % (3 if self.fault == "label" else 2)
        return Seen(labels, np.arange(count + (self.fault == "places")))

    def pictures(self, _, places, side_px, *, grey):  # noqa: ARG002 - always in colour
        return np.zeros((len(places), 1 if self.fault == "pictures" else 3, side_px, side_px), dtype=np.uint8)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("places", "see returned places of int64 and shape"),
        ("label", "see returned the label 2, but there are 2 class_names"),
        ("pictures", r"pictures returned uint8 of shape \(120, 1, 32, 32\), expected uint8 of \(120, 3, 32, 32\)"),
    ],
)
def test_what_a_view_returns_wrongly_is_one_line(fault, words, traffic):
    data = DataSettings(name="wrong", train_images=100, test_images=20)
    with pytest.raises(RunError, match=rf"^data set 'wrong' failed in load_driven: ValueError: {words}"):
        load_images(data, streams=Streams(seed=0), settings=Wrong(fault=fault), traffic=traffic)


def test_a_view_is_not_asked_about_no_frames_and_returns_arrays_of_any_layout(traffic):
    class Asked(Wrong):
        def see(self, frames):
            assert len(frames.time_s) > 0
            return super().see(frames)

        def pictures(self, _, places, side_px, *, grey):  # noqa: ARG002
            ramp = np.arange(len(places) * side_px * side_px * 3).astype(np.uint8)
            return ramp.reshape(len(places), side_px, side_px, 3)[:, ::-1].transpose(0, 3, 1, 2)

    data = DataSettings(name="wrong", image_px=8, train_images=100, test_images=20)
    found = load_images(data, streams=Streams(seed=0), settings=Asked(), traffic=traffic)
    assert len(found.film([], 1e9).images) == 0
    assert len(found.film(["v1"], 1e9).images) > 10
