"""Choosing a data set by name, and what choosing one costs."""

from dataclasses import replace

import pytest
import torch
from torchvision.datasets import CIFAR10, GTSRB

from learners.data import ImageSet, load_images, load_steering
from learners.data.sets import channel_statistics
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import DataSettings
from vnetsim.learner_facts import NOT_READ
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.random_streams import Streams


def test_unknown_set_lists_those_there_are():
    with pytest.raises(InputError, match=r"unknown data set 'sings'\. Did you mean 'signs'\? Available: cifar10, "):
        load_images(DataSettings(name="sings"), streams=Streams(seed=0))


@pytest.mark.parametrize("kind", [CIFAR10, GTSRB])
def test_a_failed_download_is_a_failed_run(kind, tmp_path, monkeypatch):
    def refuse(_):
        raise OSError("no route\nto host")

    monkeypatch.setattr(kind, "download", refuse)
    settings = DataSettings(name=kind.__name__.lower(), root=str(tmp_path), download=True)
    with pytest.raises(RunError, match=rf"data\.download: {kind.__name__} could not be .*: no route to host\."):
        load_images(settings, streams=Streams(seed=0))


@pytest.mark.parametrize("name", [name for name in DATA_SETS.built_in if name != "drive"])  # which has both
def test_a_set_that_does_not_fit_the_learner_is_refused(name):
    angles = name in {"road", "driving-log", "steering-npz"}
    load, has, needs, others = (
        (load_images, "steering angles", "classes", "signs, cifar10, gtsrb, npz, folder, drive")
        if angles
        else (load_steering, "classes", "steering angles", "road, driving-log, steering-npz, drive")
    )
    with pytest.raises(InputError) as refused:
        load(DataSettings(name=name), streams=Streams(seed=0))
    assert str(refused.value) == (
        f"data.name: the images of '{name}' have {has}, and this learner needs {needs}: {others}."
    )


@pytest.mark.parametrize(
    ("load", "name", "what"),
    [
        (load_images, "cifar10", "the folder of its files, into which --data-download fetches them"),
        (load_images, "npz", "an .npz archive"),
        (load_images, "folder", "a folder with one folder of images per class"),
        (load_steering, "driving-log", "a driving_log.csv or the folder in which it lies"),
        (load_steering, "steering-npz", "an .npz archive or a folder of them"),
    ],
)
def test_a_root_that_is_not_given_or_missing(load, name, what):
    no_folder = [(__file__, f"data.root: '{__file__}' is not a folder; {name} needs {what}.")]
    for root, fault in (
        ("", f"data.root: {name} needs {what}: --data-root PATH."),
        ("absent", f"data.root: 'absent' does not exist; {name} needs {what}."),
        *(no_folder if what.startswith(("a folder", "the folder")) else []),
    ):
        with pytest.raises(InputError) as refused:
            load(DataSettings(name=name, root=root), streams=Streams(seed=0))
        assert str(refused.value) == fault


def test_a_constant_channel_cannot_be_normalised_and_the_least_difference_can():
    black_and_next = torch.tensor([0, 1], dtype=torch.uint8).expand(1, 3, 1, 2)
    assert channel_statistics(black_and_next) == ((0.5 / 255,) * 3, (0.5 / 255,) * 3)
    with pytest.raises(InputError, match="channel 0 has one value in all 4 training images"):
        channel_statistics(torch.zeros(4, 3, 8, 8, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(4, 8, 8, 3, dtype=torch.uint8), r"torch.uint8 of shape \(4, 8, 8, 3\), expected .*\(N, 3, H, W\)"),
        (torch.zeros(4, 3, 8, 8), r"images are torch.float32 of shape .*, expected torch.uint8 \(0 to 255\)"),
    ],
)
def test_images_in_another_layout_or_type_are_refused(images, words):
    labels = torch.zeros(4, dtype=torch.int64)
    half = (0.5, 0.5, 0.5)
    parts = {"train": images, "train_labels": labels, "test": images, "test_labels": labels}
    with pytest.raises(ValueError, match=words):
        ImageSet(name="x", **parts, class_names=("a", "b"), mean=half, std=half)
    with pytest.raises(ValueError, match=words):
        channel_statistics(images)


@pytest.mark.parametrize(
    ("name", "train", "test", "kinds", "px"),
    [
        ("cifar10", 50_000, 10_000, 10, 32),
        ("gtsrb", 39_209, 12_630, 43, 48),
        ("folder", 10_000, 2_000, 10, 48),
        ("npz", 10_000, 2_000, 10, 48),
        ("driving-log", 3_300, 600, 11, 48),
        ("steering-npz", 3_300, 600, 11, 48),
    ],
)
def test_images_of_files_need_not_be_there_where_nobody_looks_at_them(name, train, test, kinds, px):
    load, of = (load_images, "train_labels") if kinds != 11 else (load_steering, "train_drives")
    data = DataSettings(name=name, image_px=48)
    found = load(data, streams=Streams(seed=0), pictures=False)
    assert (found.train.shape[0], found.test.shape[0], found.train.shape[2]) == (train, test, px)
    assert getattr(found, of).unique().tolist() == list(range(kinds))
    assert f"no image of {name} was read" in found.facts[NOT_READ]
    with pytest.raises(InputError, match=r"data\.root"):
        load(data, streams=Streams(seed=0))
    with pytest.raises(InputError, match="does not exist"):
        load(replace(data, root="nowhere"), streams=Streams(seed=0), pictures=False)


def test_gtsrb_that_was_not_read_has_signs_of_one_class_and_up_to_30_images():
    found = load_images(DataSettings(name="gtsrb"), streams=Streams(seed=0), pictures=False)
    signs, images = found.train_groups.unique(return_counts=True)
    assert (len(signs), int(images.max()), int(images.min())) == (1307, 30, 29)
    few = load_images(DataSettings(name="gtsrb", train_images=1000), streams=Streams(seed=0), pictures=False)
    assert len(few.train_labels.unique()) == 43
    assert len({*zip(found.train_groups.tolist(), found.train_labels.tolist(), strict=True)}) == len(signs)
