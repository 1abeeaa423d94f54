"""Every setting of data, blur and camera changes what it says of the silos' images, by the amount, and nothing else."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learners.tasks.classification import ClassificationSettings, ClassificationTask
from learners.tasks.steering import SteeringSettings, SteeringTask
from vnetsim.errors import InputError
from vnetsim.experiment import BlurSettings, DataSettings
from vnetsim.experiment.camera import Camera

TRAIN, LABELS, TEST, DEALT, BLUR = "training images", "their labels", "test images", "silos", "blur"
ALL = {TRAIN, LABELS, TEST, DEALT}
SIGNS = DataSettings(train_images=120, test_images=40)
ROADS = DataSettings(name="road", train_images=120, test_images=40, image_px=32)
FILES = DataSettings(name="npz", root="first.npz")
Found = dict[str, Any]


def sizes(found: Found) -> list[int]:
    return [len(rows) for rows in found[DEALT]]


def classes_held(found: Found) -> list[int]:
    return [len(set(np.asarray(found[LABELS])[rows].tolist())) for rows in found[DEALT]]


def shares(found: Found) -> np.ndarray:
    labels = np.asarray(found[LABELS])
    return np.stack([np.bincount(labels[rows], minlength=10) / len(rows) for rows in found[DEALT]])


@dataclass(frozen=True)
class Change:
    """Another value of a setting, what it changes beside what base, and what that amounts to."""

    name: str
    value: Any
    base: DataSettings
    changes: set[str]
    amounts_to: Callable[[Found, Found], bool] = lambda _, __: True


CHANGES = [
    Change("name", "npz", replace(SIGNS, root="first.npz", train_images=90, test_images=20), ALL),
    Change("root", "second.npz", FILES, {TRAIN, TEST}, lambda a, b: (b[TRAIN] == 255 - a[TRAIN]).all()),
    Change("train_images", 90, SIGNS, {TRAIN, LABELS, DEALT}, lambda _, b: len(b[TRAIN]) == sum(sizes(b)) == 90),
    Change("train_images", 90, ROADS, ALL - {TEST}, lambda _, b: len(b[TRAIN]) == sum(sizes(b)) == 90),
    Change("test_images", 10, SIGNS, {TEST}, lambda _, b: len(b[TEST]) == 10),
    Change("test_images", 10, ROADS, {TEST}, lambda _, b: len(b[TEST]) == 10),
    Change("image_px", 24, FILES, {TRAIN, TEST, BLUR}, lambda a, b: (a[TRAIN].shape[3], b[TRAIN].shape[3]) == (32, 24)),
    Change("image_px", 64, ROADS, {TRAIN, TEST, BLUR}, lambda _, b: b[TRAIN].shape[3] == b[TEST].shape[2] == 64),
    Change("partition", "dirichlet", SIGNS, {DEALT}, lambda a, b: shares(a).var() < 0.001 < 0.02 < shares(b).var()),
    Change("partition", "label-skew", SIGNS, {DEALT}, lambda _, b: set(classes_held(b)) == {5}),
    Change("partition", "approach", SIGNS, {DEALT}, lambda _, b: classes_held(b) == [3, 3, 2, 2, 3, 3]),
    Change("partition", "drive", ROADS, {DEALT}),
    Change("partition", "block", ROADS, {DEALT}),
    Change("partition", "sign", ROADS, {DEALT}),
    Change(
        "alpha",
        30.0,
        replace(SIGNS, partition="dirichlet", train_images=2000),
        {DEALT},
        lambda a, b: a[DEALT] != b[DEALT] and shares(a).var() == pytest.approx(0.09 / 2, rel=0.5)
        and shares(b).var() == pytest.approx(0.09 / 301, rel=0.5),
    ),
    Change("unseen_share", 1.0, replace(SIGNS, partition="label-skew"), {DEALT}, lambda _, b: max(classes_held(b)) < 2),
    Change("min_images", 20, SIGNS, set()),
]  # fmt: skip
ELSEWHERE = {
    "download": "test_a_failed_download_is_a_failed_run",
    "major_share": "test_the_classes_of_a_district_have_their_share_of_its_silos",
}
"""Tests of other modules."""


@pytest.fixture
def observe(tmp_path, new_context, monkeypatch) -> Callable[..., Found]:
    """Return what a learner's task has of the data."""
    labels = np.arange(150) % 3
    images = np.random.default_rng(0).integers(0, 256, size=(150, 32, 32), dtype=np.uint8)
    np.savez(tmp_path / "first.npz", images=images, labels=labels)
    np.savez(tmp_path / "second.npz", images=255 - images, labels=labels)
    monkeypatch.chdir(tmp_path)

    def run(data: DataSettings, **more: Any) -> Found:
        context = new_context(data=data, **more)
        task: Any
        if data.name == "road":
            task = SteeringTask(context, SteeringSettings())
            targets = task._data.train_angles
        else:
            task = ClassificationTask(context, ClassificationSettings())
            targets = task._data.train_labels
        training = task.local_training(0, speed_mps=30.0, learning_rate=0.1, seed=0, steps=1)
        blurred = next(task.silos.draw(training, 10**6, torch.Generator().manual_seed(0)))["kernel_px"]
        return {
            TRAIN: task._data.train.numpy(),
            LABELS: targets.tolist(),
            TEST: task._data.test.numpy(),
            DEALT: [rows.tolist() for rows in task.silos._indices],
            BLUR: sorted(blurred[blurred > 0].unique().tolist()),
        }

    return run


def same(a: Any, b: Any) -> bool:
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def test_every_setting_is_looked_at():
    assert {one.name for one in fields(DataSettings) if not one.metadata} == {
        one.name for one in CHANGES
    } | ELSEWHERE.keys()
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for name in ELSEWHERE.values():
        assert re.search(rf"^def {name}\(", here, flags=re.MULTILINE), name


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: f"{one.base.name} {one.name} {one.value}")
def test_a_setting_changes_what_it_is_for(change, observe):
    before, after = observe(change.base), observe(replace(change.base, **{change.name: change.value}))
    assert {what for what in before if not same(before[what], after[what])} == change.changes
    assert change.amounts_to(before, after)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "approach", "label-skew", "drive", "block", "sign"])
def test_every_partition_keeps_the_minimum_or_says_that_it_cannot(kind, observe):
    base = replace(ROADS if kind in {"drive", "block", "sign"} else SIGNS, partition=kind)
    least = min(sizes(observe(base)))
    assert min(sizes(observe(replace(base, min_images=least)))) == least
    with pytest.raises(InputError, match=rf"data: .*\b{least + 1}\b"):
        observe(replace(base, min_images=least + 1))


BLURS: list[tuple[str, BlurSettings, Camera, list[float], float]] = [
    # 32 px x 30 m/s x 0.01 s / 4.5 m, whatever the depth
    ("as it is", BlurSettings(), Camera(), [32 * 30 * 0.01 / 4.5], 1.0),
    ("threshold_kmh", BlurSettings(threshold_kmh=108.1), Camera(), [], 0.0),
    ("threshold_kmh", BlurSettings(threshold_kmh=107.9), Camera(), [32 * 30 * 0.01 / 4.5], 1.0),
    ("fraction", BlurSettings(fraction=0.25), Camera(), [32 * 30 * 0.01 / 4.5], 0.25),
    ("fraction", BlurSettings(fraction=0.0), Camera(), [], 0.0),
    ("exposure_s", BlurSettings(), Camera(exposure_s=0.02), [32 * 30 * 0.02 / 4.5], 1.0),
    ("scene_width_m", BlurSettings(), Camera(scene_width_m=9.0), [32 * 30 * 0.01 / 9.0], 1.0),
]


def test_every_setting_of_the_blur_is_looked_at():
    named = {one.name for kind in (BlurSettings, Camera) for one in fields(kind)}
    assert named == {name for name, *_ in BLURS[1:]}


@pytest.mark.parametrize(("name", "blur", "camera", "kernels_px", "share"), BLURS)
def test_images_blur_by_what_blur_and_camera_say(name, blur, camera, kernels_px, share, new_context):  # noqa: ARG001  names the test
    """A vehicle of 108 km/h blurs the first so many images of its silo, all alike."""
    task = ClassificationTask(new_context(data=SIGNS, blur=blur, camera=camera), ClassificationSettings())
    training = task.local_training(0, speed_mps=30.0, learning_rate=0.1, seed=0, steps=1)
    drawn = next(task.silos.draw(training, 10**6, torch.Generator().manual_seed(0)))
    blurred = drawn["kernel_px"] > 0
    assert drawn["kernel_px"][blurred].unique().tolist() == pytest.approx(kernels_px)
    first = set(task.silos._indices[0][: round(share * 20)].tolist())
    assert set(drawn["rows"][blurred].tolist()) == first
