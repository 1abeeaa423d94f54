"""Named streams: the name alone decides the numbers."""

import hashlib

import numpy as np
import pytest

from vnetsim.random_streams import Streams


def test_names_seeds_and_grouping_separate_streams():
    streams = Streams(seed=3)
    drawn = {
        streams.integer("radio", "v1"),
        streams.integer("radio", "v2"),
        streams.integer("v1", "radio"),
        streams.integer("radiov1"),
        streams.integer("radio"),
        Streams(seed=4).integer("radio", "v1"),
    }
    assert len(drawn) == 6


def test_a_known_value_never_changes():
    # recorded runs are repeated by later versions: a change here breaks every published seed
    assert Streams(seed=0).integer("radio") == 2772701637450635373
    assert Streams(seed=0).generator("traffic").integers(0, 1000, 3).tolist() == [213, 344, 588]


@pytest.mark.parametrize("seed", [0, 1, 5, 2**31, 2**32 - 1, 2**32, 2**53, 2**64 + 3, 2**128 - 1, 2**128, 2**160 + 7])
def test_a_stream_is_the_seed_sequence_of_the_seed_and_the_name(seed):
    key = np.frombuffer(hashlib.sha256(b"radio\x1fv1\x1f0").digest(), dtype="<u4")
    expected = np.random.SeedSequence(seed, spawn_key=tuple(key.tolist())).generate_state(8, np.uint64)
    found = Streams(seed=seed).child("radio").sequence("v1", 0).generate_state(8, np.uint64)
    assert found.tolist() == expected.tolist()
