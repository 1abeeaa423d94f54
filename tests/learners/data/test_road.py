"""The procedural drives: seeded, held-out drives for the test, angles that follow from what the frame shows."""

import numpy as np
import pytest
import torch

from learners.data import load_steering, road
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def load(seed=0, train=340, test=60, **settings):
    data = DataSettings(name="road", train_images=train, test_images=test, **settings)
    return load_steering(data, streams=Streams(seed=seed))


def course(*, offset_m=0.0, heading_error_rad=0.0, curvature=0.0):
    """One frame on a road of constant curvature."""
    offset_m = offset_m + heading_error_rad * road.GRID_M * np.arange(300)
    return road.Course(frames=1, step_m=1.5, curvature=np.full(300, curvature), offset_m=offset_m)


def test_shapes_types_and_default_sizes():
    frames = load_steering(DataSettings(name="road"), streams=Streams(seed=0))
    assert frames.name == "road"
    assert frames.train.shape == (3300, 1, 64, 64)
    assert frames.test.shape == (600, 1, 64, 64)
    assert frames.train.dtype == frames.test.dtype == torch.uint8
    assert frames.train_angles.dtype == frames.test_angles.dtype == torch.float32
    assert frames.train_drives.dtype == frames.train_blocks.dtype == torch.int64
    assert frames.train_drives.tolist() == [frame // 300 for frame in range(3300)]
    assert frames.train_blocks.tolist() == [frame // 50 for frame in range(3300)]


def test_test_drives_are_their_own_and_do_not_depend_on_the_training_drives():
    frames = load(train=11 * 10, test=road.TEST_DRIVES * 10)
    everything = torch.cat([frames.train, frames.test]).flatten(1)
    assert len(torch.unique(everything, dim=0)) == len(everything)
    assert torch.equal(frames.test, load(train=30, test=road.TEST_DRIVES * 10).test)


def test_angle_of_pure_pursuit():
    """On a circle of radius R about the middle of the road the angle is arctan(B / R), whatever the look-ahead."""
    radius_m = 20.0
    aside_m = radius_m - np.sqrt(radius_m**2 - road.LOOK_AHEAD_M**2)
    wide, full = (np.arctan(road.WHEELBASE_M / radius) / road.FULL_LOCK_RAD for radius in (radius_m, 12))
    assert road.steering_angle(np.array([aside_m, -aside_m, 0.0])) == pytest.approx(np.array([wide, -wide, 0]))
    assert road.steering_angle(np.array([12.0, -12.0])) == pytest.approx(np.array([full, -full]))


def test_middle_of_the_road_follows_offset_heading_and_curvature():
    ahead = np.array([[5.0, 10.0, 20.0]])
    assert course(offset_m=0.7).middle_m(ahead)[0] == pytest.approx([-0.7, -0.7, -0.7])
    assert course(heading_error_rad=0.1).middle_m(ahead)[0] == pytest.approx([-0.5, -1.0, -2.0])
    assert course(curvature=0.02).middle_m(ahead)[0] == pytest.approx([0.25, 1.0, 4.0])


def test_the_road_is_seen_where_the_course_says():
    """The middle of a road much brighter than its verges lies where a pinhole camera has it."""
    world = road.World(np.random.default_rng(0))
    world.road, world.verges = 0.9, np.full_like(world.verges, 0.1)
    world.edge_line, world.dashes, world.shadow = 0.0, 0.0, 0.0
    world.camera = world.camera._replace(noise=0.0, gamma=1.0)
    world.visibility_m, world.half_width_m = 1e9, 1.5
    for aside_m in (-2.0, 0.0, 2.0):
        seen = road.render(world, course(offset_m=-aside_m), np.random.default_rng(1), side_px=128)[0].astype(float)
        row = round(128 * (world.camera.horizon + road.FOCAL * world.camera.height_m / road.LOOK_AHEAD_M))
        weight = np.clip(seen[row] - seen[row].min() - 0.5 * np.ptp(seen[row]), 0, None)
        column = (weight * (np.arange(128) + 0.5)).sum() / weight.sum()
        assert column == pytest.approx(64 + 128 * road.FOCAL * aside_m / road.LOOK_AHEAD_M, abs=1.5)


def test_a_gaussian_process_has_unit_variance_and_the_stated_correlation():
    noise = road.gaussian_process(np.random.default_rng(0), 200_000, 5.0)
    assert noise.var() == pytest.approx(1, abs=0.05)
    assert (noise[5:] * noise[:-5]).mean() == pytest.approx(np.exp(-0.25), abs=0.05)
