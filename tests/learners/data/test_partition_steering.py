"""Dealing frames to silos: nothing lost or doubled, few drives or blocks or signs in each, sizes even, faults named."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learners.data.partition import partition_steering
from learners.data.sets import SteeringSet
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings

KINDS = ("iid", "drive", "block", "sign")


def frames_of(lengths, block=10, seed=0):
    """Frames without content: drives of these lengths in blocks, angles of all signs."""
    drives = np.repeat(np.arange(len(lengths)), lengths)
    pairs = np.stack([drives, np.concatenate([np.arange(length) // block for length in lengths])], axis=1)
    count = len(drives)
    angles = np.random.default_rng(seed).choice([-0.5, -0.06, 0.0, 0.05, 0.3], size=count).astype(np.float32)
    return SteeringSet(
        name="made up",
        train=torch.zeros(count, 1, 1, 1, dtype=torch.uint8),
        train_angles=torch.from_numpy(angles),
        train_drives=torch.from_numpy(drives),
        train_blocks=torch.from_numpy(np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)),
        test=torch.zeros(0, 1, 1, 1, dtype=torch.uint8),
        test_angles=torch.zeros(0),
    )


def deal(frames, silos, seed=0, **settings):
    generator = np.random.default_rng(seed)
    return partition_steering(frames, silos=silos, settings=DataSettings(**settings), generator=generator)


def signs_of(frames):
    angles = frames.train_angles.numpy()
    return np.where(np.abs(angles) <= np.float32(0.05), 0, np.sign(angles))


@pytest.mark.parametrize("kind", ["drive", "sign"])
def test_a_drive_or_sign_that_silos_share_is_cut_at_random(kind):
    assert all(np.ptp(shard) > 300 for shard in deal(frames_of([400]), 12, partition=kind))


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    silos=st.integers(1, 12),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
)
def test_every_frame_goes_to_one_silo(lengths, silos, kind, seed):
    frames = frames_of(lengths)
    try:
        shards = deal(frames, silos, seed, partition=kind)
    except InputError:
        assert kind != "iid" or sum(lengths) < silos
        return
    assert len(shards) == silos
    assert all(shard.dtype == np.int64 for shard in shards)
    assert sorted(np.concatenate(shards)) == list(range(sum(lengths)))
    assert min(len(shard) for shard in shards) >= 1


@pytest.mark.parametrize("silos", [1, 7, 95])
def test_iid_is_even_and_mixes_drives(silos):
    frames = frames_of([300] * 11)
    shards = deal(frames, silos)
    assert np.ptp([len(shard) for shard in shards]) <= 1
    assert min(len(np.unique(frames.train_drives[shard])) for shard in shards) >= 8


@pytest.mark.parametrize(("kind", "of"), [("drive", "train_drives"), ("block", "train_blocks")])
def test_a_silo_holds_one_drive_or_block_when_silos_are_enough(kind, of):
    frames = frames_of([100, 200, 300])
    units = getattr(frames, of).numpy()
    for silos in (len(np.unique(units)), 100):
        shards = deal(frames, silos, partition=kind)
        assert all(len(np.unique(units[shard])) == 1 for shard in shards)
        assert max(len(shard) for shard in shards) <= {3: 300, 60: 10, 100: 10}[silos]
    assert [len(shard) for shard in deal(frames, 60, partition="drive")] == [10] * 60
    assert {len(deal(frames, 3, seed, partition="drive")[0]) for seed in range(9)} == {100, 200, 300}


def test_drives_go_whole_to_silos_when_silos_are_few():
    frames = frames_of([50, 40, 30, 20, 10])
    shards = deal(frames, 3, partition="drive")
    assert sorted(len(shard) for shard in shards) == [50, 50, 50]
    held = [set(frames.train_drives[shard].tolist()) for shard in shards]
    assert sum(len(drives) for drives in held) == 5


def test_a_block_is_cut_in_order_of_time():
    frames = frames_of([100, 100], block=50)
    shards = deal(frames, 12, partition="block")
    for shard in shards:
        assert np.ptp(shard) == len(shard) - 1
    assert {len(shard) for shard in shards} == {16, 17}


def test_silos_specialise_in_left_straight_and_right():
    frames = frames_of([3000])
    signs = signs_of(frames)
    shards = deal(frames, 30, partition="sign")
    assert all(len(np.unique(signs[shard])) == 1 for shard in shards)
    assert {signs[shard][0] for shard in shards} == {-1, 0, 1}
    assert max(len(shard) for shard in shards) - min(len(shard) for shard in shards) < 20
    assert [len(np.unique(signs[shard])) for shard in deal(frames, 1, partition="sign")] == [3]


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_silos_in_random_order(kind):
    frames = frames_of([200] * 4)
    one, two, other = (deal(frames, 5, seed, partition=kind) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(np.any(np.diff(shard) < 0) for shard in one)


@pytest.mark.parametrize("kind", ["dirichlet", "approach", "label-skew"])
def test_partitions_of_classes_do_not_fit_frames(kind):
    with pytest.raises(
        InputError, match=rf"data\.partition: '{kind}' needs images with classes; .* iid, drive, block, sign\."
    ):
        deal(frames_of([100]), 2, partition=kind)
