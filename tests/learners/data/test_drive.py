"""What vehicles see on their paths: perspective, places of signs, blur by frame, held-out places and times."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from learners.data import load_images, load_steering
from learners.data.drive import Drive
from learners.data.driven import HELD_OUT, sample_frames
from learners.data.motion import motion_blur
from learners.data.sign_designs import DESIGNS
from learners.data.streets import Ground, hash_integers, place_signs, read_net
from learners.data.windscreen import CAMERA_M, FOCAL, HORIZON, Poses, daylight, find_visible_signs, render
from learners.tasks.classification import ClassificationSettings, ClassificationTask
from learners.tasks.steering import SteeringSettings, SteeringTask
from vnetsim.errors import InputError
from vnetsim.experiment import BlurSettings, DataSettings
from vnetsim.learning.drives import RecordedDrive, RecordedTraffic
from vnetsim.random_streams import Streams

WIDE_M = 6.0
NET = f"""<net>
  <edge id="east" from="a" to="b" priority="1">
    <lane id="east_0" index="0" speed="13.89" length="400" width="{WIDE_M}" shape="0,0 400,0"/></edge>
  <edge id="back" from="b" to="a" priority="1">
    <lane id="back_0" index="0" speed="8.33" length="400" width="{WIDE_M}" shape="400,60 0,60"/></edge>
  <junction id="a" type="priority" x="0" y="0"/><junction id="b" type="traffic_light" x="400" y="0"/></net>"""


@pytest.fixture
def net(tmp_path):
    (tmp_path / "small.net.xml").write_text(NET)
    return read_net(tmp_path / "small.net.xml")


def along(vehicle: str, silo: int, begin_s: float, speed_mps: float) -> RecordedDrive:
    time_s = np.arange(0, 380 / speed_mps, 0.5)
    same = np.ones(len(time_s))
    path = {"x_m": 5 + speed_mps * time_s, "y_m": 0 * same, "speed_mps": speed_mps * same}
    return RecordedDrive(vehicle_id=vehicle, silo=silo, time_s=begin_s + time_s, **path)


@pytest.fixture
def traffic(tmp_path):
    (tmp_path / "small.net.xml").write_text(NET)
    drives = [along(f"v{i}", i % 3, 25.0 * i, 8.0 + i) for i in range(12)]
    return RecordedTraffic(net=tmp_path / "small.net.xml", drives=drives)


def poses(*places: tuple[float, float, float], time_s: float = 0.0) -> Poses:
    return Poses(*np.array([(time_s, *place) for place in places]).T)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("radius_m", [15.0, 40.0, 200.0])
def test_on_an_arc_steering_angle_heading_and_place_have_a_closed_form(radius_m, side):
    time_s, speed_mps = np.arange(0, 30, 0.5), 8.0
    turned = speed_mps * time_s / radius_m
    path = {"x_m": radius_m * np.sin(turned), "y_m": side * radius_m * (np.cos(turned) - 1)}
    drive = RecordedDrive(vehicle_id="v", silo=0, time_s=time_s, speed_mps=3 + time_s, **path)
    frames = sample_frames(drive, every_s=0.3)
    ends = frames.time_s * speed_mps > 29.5 * speed_mps - 12
    assert frames.angle[~ends] == pytest.approx(side * np.arctan(2.7 / radius_m) / 0.25, abs=0.01)
    assert np.isnan(frames.angle[ends]).all()
    tangent = -side * speed_mps * frames.time_s / radius_m
    assert np.exp(1j * (frames.heading_rad - tangent)) == pytest.approx(1, abs=0.01)
    assert np.hypot(frames.x_m, frames.y_m + side * radius_m) == pytest.approx(radius_m, abs=0.05)
    assert frames.speed_mps == pytest.approx(3 + frames.time_s)


def test_a_vehicle_that_does_not_move_has_no_frames():
    standing = RecordedDrive(
        vehicle_id="v", silo=0, time_s=np.arange(9.0), x_m=np.ones(9), y_m=np.ones(9), speed_mps=np.zeros(9)
    )
    assert len(sample_frames(standing, 1.0).time_s) == 0


def test_the_road_is_as_wide_as_its_lane_in_perspective(net):
    """A lane of half width w covers f w / z pixels to each side of the axis at distance z."""
    side_px, at = 128, poses((100.0, 0.0, 0.0))
    ground = Ground(net, 3, np.array([[100.0, 0.0]]))
    frame = render(at, ground, place_signs(net, 3), side_px=side_px, noon_s=0, noise=np.random.default_rng(0))[0]
    for row in (62, 66, 72):
        ahead_m = FOCAL * side_px * CAMERA_M / (row + 0.5 - HORIZON * side_px)
        half_px = FOCAL * side_px * WIDE_M / 2 / ahead_m
        _, green, blue = frame[:, row].astype(int)
        (grass,) = np.nonzero(green - blue > 20)
        assert grass[grass < 64].max() + 1 == pytest.approx(64 - half_px, abs=2.5)
        assert grass[grass > 64].min() == pytest.approx(64 + half_px, abs=2.5)


def test_a_sign_is_seen_ahead_grows_and_passes_and_the_nearest_is_named(net):
    signs = place_signs(net, 3)
    places = signs.at_m[:, 0][signs.at_m[:, 1] < 0]
    assert set(places.round()) == set(range(398 - 30 * 13, 399, 30)), "one each 30 m from the junction on"
    assert {DESIGNS_OF[signs.label[i]] for i in np.flatnonzero(places == 398)} == {"pedestrian crossing"}
    first = signs.label[np.argmin(np.abs(signs.at_m[:, 0] - 8) + np.abs(signs.at_m[:, 1]))]
    assert DESIGNS_OF[first] == "speed limit"
    xs = np.arange(100.0, 160.0, 1.0)
    seen, ahead_m, right_m = find_visible_signs(poses(*((x, 0.0, 0.0) for x in xs)), signs)
    nearest = signs.at_m[seen[:, 0], 0]
    assert (seen[:, 0] >= 0).sum() > 30, "visible over most of the way"
    there = seen[:, 0] >= 0
    assert ahead_m[there, 0] == pytest.approx(nearest[there] - xs[there])
    assert right_m[there, 0] == pytest.approx(WIDE_M / 2 + 1.2)
    assert ahead_m[there, 0].min() >= (WIDE_M / 2 + 1.2) * FOCAL / 0.5, "nearer, it is beside the frame"
    back, _, _ = find_visible_signs(poses(*((x, 0.0, np.pi) for x in xs)), signs)
    assert (back < 0).all(), "signs face the traffic of their own street"


def test_the_first_sign_of_the_net_is_painted_too(net):
    signs = place_signs(net, 1)
    heading = signs.heading_rad[0]
    ahead, left = np.array([np.cos(heading), np.sin(heading)]), np.array([-np.sin(heading), np.cos(heading)])
    x, y = signs.at_m[0] - 14 * ahead + (WIDE_M / 2 + 1.2) * left
    here = poses((x, y, heading))
    assert find_visible_signs(here, signs)[0].tolist() == [[0, -1]]
    ground = Ground(net, 1, signs.at_m[:1])
    other = signs._replace(label=(signs.label + 1) % len(DESIGNS))
    frame = {"side_px": 32, "noon_s": 0.0}
    seen = [render(here, ground, some, **frame, noise=np.random.default_rng(0)) for some in (signs, other)]
    assert (seen[0] != seen[1]).any()


DESIGNS_OF = list(DESIGNS)


def test_a_street_looks_the_same_to_all_and_other_with_another_seed(net):
    at, signs = poses((100.0, 0.0, 0.0), (120.0, 0.0, 0.1)), place_signs(net, 3)

    def frames(seed: int, near: np.ndarray, time_s: float = 0.0, noon_s: float = 0.0) -> np.ndarray:
        now = at._replace(time_s=np.full(2, time_s))
        ground = Ground(net, seed, near)
        return render(now, ground, signs, side_px=32, noon_s=noon_s, noise=np.random.default_rng(0))

    near = np.column_stack([at.x_m, at.y_m])
    first = frames(3, near)
    assert np.array_equal(first, frames(3, np.vstack([near, [[300.0, 60.0]]]))), "whoever else drives elsewhere"
    assert not np.array_equal(first, frames(4, near))
    assert frames(3, near, time_s=43_200.0).mean() < 0.6 * first.mean(), "night"
    assert np.array_equal(first, frames(3, near, time_s=43_200.0, noon_s=43_200.0))
    assert daylight(np.array([0.0, 21_600.0, 43_200.0]), 0.0) == pytest.approx([1.0, 0.7, 0.4])
    assert hash_integers(1, np.arange(10_000)).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("load", [load_images, load_steering])
def test_test_frames_are_of_other_places_and_other_times(load, traffic):
    data = DataSettings(name="drive", partition="vehicle", train_images=150, test_images=5)
    found = load(data, streams=Streams(seed=0), settings=Drive(frame_s=0.5), traffic=traffic)
    again = load(data, streams=Streams(seed=0), settings=Drive(frame_s=0.5), traffic=traffic)
    dark = load(data, streams=Streams(seed=0), settings=Drive(frame_s=0.5), traffic=traffic, pictures=False)
    assert torch.equal(found.train, again.train)
    assert torch.equal(found.train_silos, dark.train_silos)
    assert dark.train.shape == found.train.shape == (150, 3 if load is load_images else 1, 32, 32)
    assert set(found.train_speeds_mps.tolist()) == {8.0 + i for i in range(11)}, "the last drove when tests are held"
    assert torch.equal(found.train_silos, (found.train_speeds_mps - 8).long() % 3)
    if load is load_steering:
        assert found.train_angles.abs().max() < 1e-3, "the road is straight"
        return
    assert torch.equal(found.train_labels, dark.train_labels)
    lasts_s = 25.0 * 11 + 20
    held_out = [(lasts_s * (part - 1) / 12, lasts_s * part / 12) for part in (HELD_OUT, 2 * HELD_OUT)]
    places: dict[str, set[int]] = {}
    for part in ("train", "test"):
        named = [name.split("@") for name in getattr(found, f"{part}_names")]
        times = np.array([float(time) for _, time in named])
        number = np.array([int(vehicle[1:]) for vehicle, _ in named])
        # the recorded time is that of the frames with a sign, a few seconds less
        grace_s = 3.0 if part == "train" else -3.0
        inside = np.any([(times > begin + grace_s) & (times < end - grace_s) for begin, end in held_out], axis=0)
        assert (inside == (part == "test")).all()
        x_m = 5 + (8 + number) * (times - 25 * number)
        places[part] = set(np.ceil((x_m + (WIDE_M / 2 + 1.2) * FOCAL / 0.5 - 8) / 30).astype(int).tolist())
    assert not places["train"] & places["test"]


@pytest.mark.parametrize(
    ("task", "settings"), [(ClassificationTask, ClassificationSettings), (SteeringTask, SteeringSettings)]
)
def test_each_frame_is_blurred_by_the_speed_at_its_instant(task, settings, new_context, traffic):
    data = DataSettings(name="drive", partition="vehicle", train_images=150, test_images=5, own={"frame_s": 0.5})
    made = task(
        new_context(
            data=data, data_set=Drive(frame_s=0.5), traffic=traffic, silos=3, blur=BlurSettings(threshold_kmh=36)
        ),
        settings(),
    )
    training = made.local_training(1, speed_mps=30.0, learning_rate=0.1, seed=0, steps=1)
    drawn = next(made.silos.draw(training, 10**6, torch.Generator().manual_seed(0)))
    speeds = made._data.train_speeds_mps[drawn["rows"]]
    assert set(speeds.tolist()) == {9.0, 12.0, 15.0, 18.0}, "the vehicles of silo 1"
    expected = torch.where(speeds > 10, 32 * speeds * 0.01 / 4.5, 0.0)  # S v H / W
    assert drawn["kernel_px"].tolist() == pytest.approx(expected.tolist())
    # and so are those that the report shows, and what it says of all
    data, where = made._data, made.describe({}).sights()
    assert where.kernel_px == pytest.approx(np.where(where.speed_mps > 10, 32 * where.speed_mps * 0.01 / 4.5, 0))
    assert where.speed_mps == pytest.approx(data.train_speeds_mps.numpy())
    assert where.x_m == pytest.approx(5 + where.speed_mps * (where.time_s - 25 * (where.speed_mps - 8)), abs=0.2)
    assert np.abs(where.y_m).max() < 0.1
    if task is ClassificationTask:
        assert where.label.tolist() == data.train_labels.tolist()
    assert np.nanmax(np.abs(where.angle)) < 1e-3, "the road is straight"
    shown = made.describe({}).path_frames(["v9", "v1", "v5", "no such"], 240.0)
    assert shown.vehicles.tolist() == ["v1", "v5", "v9"], "in order of entry"
    assert shown.mean_mps == pytest.approx([9.0, 13.0, 17.0])
    assert shown.speed_mps == pytest.approx(shown.mean_mps[shown.path])
    assert shown.kernel_px == pytest.approx(np.where(shown.speed_mps > 10, 32 * shown.speed_mps * 0.01 / 4.5, 0))
    sharp = torch.from_numpy(shown.images).permute(0, 3, 1, 2) / 255
    blurred = motion_blur(sharp, torch.from_numpy(shown.kernel_px)).mul(255).permute(0, 2, 3, 1)
    assert np.abs(blurred.numpy() - shown.blurred).max() <= 0.51
    for path, (begin_s, lasts_s) in enumerate([(25, 380 / 9), (125, 380 / 13), (225, 15)]):
        times = shown.time_s[shown.path == path]
        assert times[0] == begin_s
        assert np.diff(times) == pytest.approx(0.5), "few vehicles, so all frames"
        assert times[-1] == pytest.approx(begin_s + lasts_s, abs=1.1)
    if task is SteeringTask:
        return
    names = {name: row for row, name in enumerate(data.train_names)}
    of_frames = zip(shown.path, shown.time_s, strict=True)
    pairs = [(names.get(f"{shown.vehicles[p]}@{t:g}"), i) for i, (p, t) in enumerate(of_frames)]
    pairs = [(row, frame) for row, frame in pairs if row is not None]
    assert len(pairs) > 10
    for row, frame in pairs:
        assert shown.label[frame] == data.train_labels[row]
        trained = data.train[row].permute(1, 2, 0).numpy().astype(int)
        assert np.abs(trained - shown.images[frame]).mean() < 10, "the same but for the noise"
    assert -1 in shown.label, "no sign in view"


def test_a_film_is_thinned_by_the_way_and_a_standing_vehicle_has_few_frames(traffic, monkeypatch):
    time_s = np.arange(0, 400, 0.5)
    at_m = 5 + 10.0 * np.clip(time_s, 0, 10) + 10.0 * np.clip(time_s - 380, 0, None)  # stands from 10 to 380 s
    drive = RecordedDrive(
        vehicle_id="v", silo=0, time_s=time_s, x_m=at_m, y_m=0 * at_m, speed_mps=np.gradient(at_m, time_s)
    )
    data = DataSettings(name="drive", partition="vehicle", train_images=150, test_images=1)
    drives = [*traffic.drives, drive]
    found = load_images(
        data, streams=Streams(seed=0), settings=Drive(), traffic=RecordedTraffic(net=traffic.net, drives=drives)
    )
    whole = found.film(["v", "v3"], 1e9)
    assert (whole.path == 0).sum() == 35
    monkeypatch.setattr("learners.data.driven.FILM_PX", 100 * 32 * 32)
    thin = found.film(["v", "v3"], 1e9)
    assert 80 < len(thin.time_s) <= 102
    standing = (thin.time_s > 10) & (thin.time_s < 380) & (thin.path == thin.vehicles.index("v"))
    assert thin.mean_mps.tolist() == whole.mean_mps.tolist() == pytest.approx([11.0, 0.76], abs=0.03)
    assert standing.sum() == pytest.approx(48, abs=2), "of 1,550 m those 740"
    assert len(found.film([], 1e9).time_s) == len(found.film(["v"], -1.0).time_s) == 0


def test_a_film_spends_few_frames_on_a_gap_and_fits_in_a_browsers_row(traffic, monkeypatch):
    late = along("v3", 0, 9000.0, 11.0)
    twice = RecordedTraffic(net=traffic.net, drives=[*traffic.drives, late])
    data = DataSettings(name="drive", partition="vehicle", train_images=150, test_images=1)
    found = load_images(data, streams=Streams(seed=0), settings=Drive(frame_s=0.2), traffic=twice)
    monkeypatch.setattr("learners.data.driven.FILM_PX", 100 * 32 * 32)
    assert len(found.film(["v3"], 1e9).time_s) > 80, "the gap counts as 100 of about 1,000 m"
    monkeypatch.setattr("learners.data.driven.FILM_WIDTH_PX", 50 * 32)
    assert 40 < len(found.film(["v3"], 1e9).time_s) <= 51


def test_what_cannot_be_seen_is_refused(traffic, new_context):
    with pytest.raises(InputError, match=r"^data\.name: 'drive' is made of the traffic of a run"):
        load_images(DataSettings(name="drive"), streams=Streams(seed=0))
    with pytest.raises(
        InputError, match=r"^data\.train_images: 99999 frames with a visible sign asked for, the .* has .*; lower it, "
    ):
        load_images(DataSettings(name="drive", train_images=99_999), streams=Streams(seed=0), traffic=traffic)
    nobody = RecordedTraffic(net=traffic.net, drives=[])
    with pytest.raises(InputError, match="no vehicle moves in the RSUs' discs"):
        load_images(DataSettings(name="drive"), streams=Streams(seed=0), traffic=nobody)
    for end, words in (("4,0", "no frame has a visible sign"), ("nan,0", r"small\.net\.xml:3: .* has no finite size")):
        traffic.net.write_text(NET.replace("400,0", end))
        with pytest.raises(InputError, match=words):
            load_images(DataSettings(name="drive"), streams=Streams(seed=0), traffic=traffic)
    signs = DataSettings(name="signs", partition="vehicle", train_images=60, test_images=20)
    with pytest.raises(InputError, match=r"^data\.partition: 'vehicle' needs images that vehicles saw"):
        ClassificationTask(new_context(data=signs), ClassificationSettings())


def test_a_vehicle_has_what_its_silo_saw_until_it_trains_but_at_least_a_batch(new_context, traffic, participant):
    data = DataSettings(name="drive", partition="vehicle", train_images=150, test_images=5, own={"frame_s": 0.5})
    context = new_context(data=data, data_set=Drive(frame_s=0.5), traffic=traffic, silos=3)
    task = ClassificationTask(context, ClassificationSettings(batch=8))
    times_s = task._data.train_times_s[torch.from_numpy(np.sort(task.silos.rows[1]))]

    def drawn(start_s: float, earlier: tuple[tuple[int, float], ...] = ()) -> torch.Tensor:
        one = replace(participant(0, 1), start_s=start_s, download_s=20.0, silo=1, earlier=earlier)
        training = task.local_training_of(one)
        rows = next(task.silos.draw(training, 8, torch.Generator().manual_seed(0)))["rows"]
        assert len(rows) == 8
        more = [next(task.silos.draw(training, 8, torch.Generator().manual_seed(seed)))["rows"] for seed in range(60)]
        return task._data.train_times_s[torch.cat(more).unique()].sort().values

    assert (times_s <= 150).sum() > 8
    assert drawn(130.0).tolist() == times_s[times_s <= 150].sort().values.tolist()
    assert drawn(-20.0).tolist() == times_s.sort().values[:8].tolist()
    last_s = max(float(task._data.train_times_s[rows].sort().values[7]) for rows in task.silos.rows)
    assert f"(median, last silo at {last_s:.4g} s)" in task.describe({}).facts["First images"]
    assert len(drawn(math.inf)) == len(times_s)
    assert drawn(130.0, earlier=((2, 0.5),)).max() <= 150, "of an earlier silo too"
