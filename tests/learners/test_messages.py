"""What a message says, to the last word: what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device_checks.tiny_data import tiny_roads

from learners.data.cifar10 import Cifar10
from learners.data.image_files import read_images
from learners.data.partition import partition, partition_steering
from learners.data.splits import split_by_class
from learners.encoders.precision import set_precision
from learners.encoders.resnet8 import create_resnet8
from learners.engines.silo_images import SiloImages
from learners.mathematics import robust, weights
from learners.mathematics.mixing import metropolis_hastings
from learners.mathematics.transport import solve
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

FEW = "; lower silos.count or data.min_images, or raise data.train_images."
FLAT = torch.ones(1, 2, 2)
ROW = torch.tensor([[0.5, 0.5]])


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


ROWS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: metropolis_hastings(np.array([[False, True], [False, False]])),
        "Metropolis-Hastings weights need an undirected graph",
    ),
    (lambda: weights.weighted_mean([{}], [0.0]), "no state has a positive weight"),
    (lambda: robust.combine([{}], [0.0], robust.AveragingSettings()), "no state has a positive weight"),
    (lambda: solve(FLAT, ROW, 2 * ROW), "1 of 1 transport problems have a marginal whose total is not 1"),
    (
        lambda: set_precision(create_resnet8((1, 16, 24), seed=0), "bfloat16", (1, 16, 24)),
        (
            "learning.precision = bfloat16: images of 24 x 16 pixels are too small for it with this network: a "
            "convolution of stride 2 would see a single pixel, where gradients come out wrong; take "
            "float32 or larger images."
        ),
    ),
    (
        lambda: create_resnet8((1, 2, 24), seed=0),
        "images of 24 x 2 pixels are too small for ResNet-8: it takes 5 x 5 at least; raise data.image_px.",
    ),
    (
        lambda: SiloImages(torch.zeros(3, 1, 4, 4), [np.arange(2), np.arange(2, 3)], device=torch.device("cpu")),
        "silo 1 holds 1 images and needs at least 2: raise data.min_images or data.train_images, or lower silos.count.",
    ),
    (
        lambda: partition(
            np.arange(6) % 2, silos=4, approaches=1, settings=DataSettings(min_images=2), generator=generator()
        ),
        f"data: 4 silos of at least 2 images need 8, but there are 6 training images{FEW}",
    ),
    (
        lambda: partition_steering(
            tiny_roads(), silos=97, settings=DataSettings(partition="iid"), generator=generator()
        ),
        f"data: partition 'iid' of 96 training frames leaves a silo of 97 with 0, and 1 are needed{FEW}",
    ),
    (
        lambda: split_by_class(np.arange(3), 0.5, generator()),
        "data.root: no class has two images, so that none can be held out for the test.",
    ),
    (
        lambda: Cifar10().load(DataSettings(name="cifar10", root="absent"), Streams(seed=0)),
        (
            "data.root: 'absent' does not exist; cifar10 needs the folder of its files, into which "
            "--data-download fetches them."
        ),
    ),
]


@pytest.mark.parametrize(("call", "message"), ROWS)
def test_a_message_says_what_is_wrong_and_what_to_do(
    call: Callable[[], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as caught:
        call()
    assert str(caught.value) == message


def test_images_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    path.write_bytes(b"no image")
    with pytest.raises(Exception, match=r"1 of 1 images cannot be read: .*; replace them or leave them out\.$"):
        read_images([path], grey=False, side_px=8)
