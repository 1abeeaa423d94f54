"""Choosing a data set by name, and what choosing one costs."""

import subprocess
import sys

import pytest
import torch

from learners.data import WITH_ANGLES, WITH_CLASSES, ImageSet, load_images, load_steering
from learners.data.sets import channel_statistics
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def test_unknown_set_lists_those_there_are():
    with pytest.raises(
        InputError, match=r"unknown data set 'sings'\. Did you mean 'signs'\? Available: cifar10, folder, npz, signs\."
    ):
        load_images(DataSettings(name="sings"), streams=Streams(seed=0))
    with pytest.raises(
        InputError,
        match=r"unknown data set 'raod'\. Did you mean 'road'\? Available: driving-log, road, steering-npz\.",
    ):
        load_steering(DataSettings(name="raod"), streams=Streams(seed=0))


@pytest.mark.parametrize("name", WITH_ANGLES)
def test_steering_angles_do_not_fit_a_learner_of_classes(name):
    with pytest.raises(
        InputError, match=rf"data\.name: the images of '{name}' have steering angles, .* needs classes: signs, cifar10"
    ):
        load_images(DataSettings(name=name), streams=Streams(seed=0))


@pytest.mark.parametrize("name", WITH_CLASSES)
def test_classes_do_not_fit_a_learner_of_steering_angles(name):
    with pytest.raises(
        InputError,
        match=rf"data\.name: the images of '{name}' have classes, .* needs steering angles: road, driving-log",
    ):
        load_steering(DataSettings(name=name), streams=Streams(seed=0))


@pytest.mark.parametrize(
    ("load", "name", "what"),
    [
        (load_images, "npz", "an .npz archive"),
        (load_images, "folder", "a folder with one folder of images per class"),
        (load_steering, "driving-log", "a driving_log.csv or the folder in which it lies"),
        (load_steering, "steering-npz", "an .npz archive or a folder of them"),
    ],
)
def test_a_root_that_is_not_given_or_missing(load, name, what):
    for root, fault in (
        ("", f"data.root: {name} needs {what}: --data-root PATH."),
        ("absent", f"data.root: 'absent' does not exist; {name} needs {what}."),
    ):
        with pytest.raises(InputError) as told:
            load(DataSettings(name=name, root=root), streams=Streams(seed=0))
        assert str(told.value) == fault


@pytest.mark.parametrize(("load", "name"), [("load_images", "signs"), ("load_steering", "road")])
def test_the_built_in_sets_need_no_torchvision(load, name):
    code = (
        "import sys\n"
        f"from learners.data import {load}\n"
        "from vnetsim.experiment import DataSettings\n"
        "from vnetsim.random_streams import Streams\n"
        f"{load}(DataSettings(name='{name}', train_images=20, test_images=20), streams=Streams(seed=0))\n"
        "sys.exit('torchvision' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_constant_channel_cannot_be_normalised():
    with pytest.raises(InputError, match="channel 0 has one value in all 4 training images"):
        channel_statistics(torch.zeros(4, 3, 8, 8, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(4, 8, 8, 3, dtype=torch.uint8), r"torch.uint8 of shape \(4, 8, 8, 3\), expected .*\(N, 3, H, W\)"),
        (torch.zeros(4, 3, 8, 8), r"images are torch.float32 of shape .*, expected torch.uint8 \(0 to 255\)"),
    ],
)
def test_images_in_another_layout_or_type_are_told(images, words):
    labels = torch.zeros(4, dtype=torch.int64)
    half = (0.5, 0.5, 0.5)
    parts = {"train": images, "train_labels": labels, "test": images, "test_labels": labels}
    with pytest.raises(ValueError, match=words):
        ImageSet(name="x", **parts, class_names=("a", "b"), mean=half, std=half)
    with pytest.raises(ValueError, match=words):
        channel_statistics(images)
