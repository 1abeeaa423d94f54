"""Choosing a data set by name, and what choosing one costs."""

import subprocess
import sys

import pytest
import torch

from learners.data import load_images
from learners.data.image_set import channel_statistics
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def test_unknown_set_lists_those_there_are():
    with pytest.raises(
        InputError, match=r"data\.name: unknown data set 'sings'\. Did you mean 'signs'\? Available: cifar10, signs\."
    ):
        load_images(DataSettings(name="sings"), streams=Streams(seed=0))


def test_the_default_set_needs_no_torchvision():
    code = (
        "import sys\n"
        "from learners.data import load_images\n"
        "from vnetsim.experiment import DataSettings\n"
        "from vnetsim.random_streams import Streams\n"
        "load_images(DataSettings(train_images=20, test_images=20), streams=Streams(seed=0))\n"
        "sys.exit('torchvision' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_constant_channel_cannot_be_normalised():
    with pytest.raises(InputError, match="channel 0 has one value in all 4 training images"):
        channel_statistics(torch.zeros(4, 3, 8, 8, dtype=torch.uint8))
