"""Dealing images to silos: nothing lost or doubled, the minimum kept, the limits of the Dirichlet split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.data.partition import log_dirichlet, partition
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings

CIFAR = np.repeat(np.arange(10), 5000)


def deal(labels, silos, *, approaches=1, seed=0, **settings):
    how = {name: settings.pop(name) for name in ("districts", "groups") if name in settings}
    how |= {"silos": silos, "approaches": approaches, "settings": DataSettings(**settings)}
    return partition(np.asarray(labels), generator=np.random.default_rng(seed), **how)


def counts(labels, shards, classes=10):
    return np.stack([np.bincount(np.asarray(labels)[shard], minlength=classes) for shard in shards])


@st.composite
def cases(draw):
    labels = draw(st.lists(st.integers(0, 6), min_size=1, max_size=120))
    return labels, draw(st.integers(1, len(labels))), draw(st.integers(0, 2**32))


@given(case=cases())
def test_iid_uses_every_image_once_and_spreads_every_class(case):
    labels, silos, seed = case
    shards = deal(labels, silos, seed=seed)
    assert sorted(np.concatenate(shards)) == list(range(len(labels)))
    table = counts(labels, shards, 7)
    assert np.ptp(table, axis=0).max() <= 1
    assert np.ptp(table.sum(axis=1)) <= 1


@given(case=cases(), exponent=st.floats(-9, 9))
def test_dirichlet_uses_every_image_once_in_even_silos_for_any_alpha(case, exponent):
    labels, silos, seed = case
    shards = deal(labels, silos, seed=seed, partition="dirichlet", alpha=min(max(10.0**exponent, 1e-9), 1e9))
    assert sorted(np.concatenate(shards)) == list(range(len(labels)))
    assert np.ptp([len(shard) for shard in shards]) <= 1


def test_dirichlet_tends_to_iid_for_large_alpha_with_uneven_classes():
    labels = np.repeat(np.arange(3), [6000, 3000, 1000])
    table = counts(labels, deal(labels, 20, partition="dirichlet", alpha=1e9), 3)
    assert np.abs(table - [300, 150, 50]).max() <= 1


@given(case=cases(), districts=st.integers(1, 9), share=st.floats(0, 1))
def test_districts_use_every_image_once_in_even_silos(case, districts, share):
    labels, silos, seed = case
    shards = deal(labels, silos, seed=seed, partition="district", districts=districts, major_share=share)
    assert sorted(np.concatenate(shards)) == list(range(len(labels)))
    assert np.ptp([len(shard) for shard in shards]) <= 1


@pytest.mark.parametrize(("districts", "majors"), [(10, 1), (5, 2), (2, 5), (20, 1)])
def test_the_classes_of_a_district_have_their_share_of_its_silos(districts, majors):
    """To a thousandth on average, and the others alike; silos served last get what is left."""
    silos = 20 * districts
    table = counts(CIFAR, deal(CIFAR, silos, partition="district", districts=districts, major_share=0.8))
    home = np.arange(10) % min(districts, 10) == np.arange(silos)[:, None] % districts % 10
    assert (home.sum(axis=1) == majors).all()
    shares = np.where(home, table, 0).sum(axis=1) / table.sum(axis=1)
    assert np.median(shares) == pytest.approx(0.8, abs=0.01)
    assert shares.mean() == pytest.approx(0.8, abs=0.02)


def test_classes_beside_the_major_one_are_in_proportion_to_their_frequency():
    """Of 400 images 240, where they suffice."""
    labels = np.repeat(np.arange(3), [4000, 5000, 3000])
    assert np.ptp(counts(labels, deal(labels, 3, partition="district"), 3), axis=0).max() <= 1, "all are one district"
    table = counts(labels, deal(labels, 30, partition="major-class", major_share=0.4), 3)
    expected = [[160, 240 * 5 / 8, 240 * 3 / 8], [240 * 4 / 7, 160, 240 * 3 / 7], [240 * 4 / 9, 240 * 5 / 9, 160]]
    for label in range(3):
        assert np.median(table[label::3], axis=0) == pytest.approx(expected[label], abs=1)


def test_groups_of_a_class_that_no_silo_holds_are_nobodys():
    labels = np.repeat(np.arange(3), 20)
    shards = deal(labels, 2, groups=np.arange(60) // 2, partition="label-skew", unseen_share=1.0)
    assert [len(shard) for shard in shards] == [20, 20]


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_a_silo_has_one_major_class_and_the_others_alike(share):
    """Silo i that of class i mod 10, whatever the districts, and silos are even."""
    table = counts(CIFAR, deal(CIFAR, 100, partition="major-class", districts=3, major_share=share))
    assert np.ptp(table.sum(axis=1)) <= 1
    assert sum(table.sum(axis=1)) == len(CIFAR)
    shares = table[np.arange(100), np.arange(100) % 10] / table.sum(axis=1)
    assert shares == pytest.approx(share, abs=0.05), "the last ones get what is left"
    minor = np.where(np.arange(10) == np.arange(100)[:, None] % 10, 0, table).mean(axis=0)
    assert np.ptp(minor) <= 0.03 * table.sum(axis=1).mean()


@pytest.mark.parametrize("alpha", [1e-9, 1e-6])
def test_dirichlet_tends_to_one_class_for_small_alpha(alpha):
    """A silo of k classes used up k - 1 of them, so at most silos + classes - 1 pairs of silo and class occur."""
    table = counts(CIFAR, deal(CIFAR, 95, partition="dirichlet", alpha=alpha))
    assert np.count_nonzero(table) <= 95 + 10 - 1
    assert np.count_nonzero(table.max(axis=1) == table.sum(axis=1)) >= 95 - 9


def test_dirichlet_shares_have_the_moments_of_the_distribution():
    concentration = np.array([0.5, 1.0, 2.5])
    shares = np.exp(log_dirichlet(concentration, 20000, np.random.default_rng(0)))
    shares /= shares.sum(axis=1, keepdims=True)
    mean = concentration / 4
    assert shares.mean(axis=0) == pytest.approx(mean, abs=0.01)
    assert shares.var(axis=0) == pytest.approx(mean * (1 - mean) / 5, rel=0.05)


@pytest.mark.parametrize("scale", [1e-6, 1e-100, 1e-300])
def test_dirichlet_shares_keep_their_order_where_they_underflow(scale):
    """The largest share is class c with probability proportional to its concentration, and no two are equal."""
    draws = log_dirichlet(scale * np.array([1.0, 3.0]), 4000, np.random.default_rng(0))
    assert np.isfinite(draws).all()
    assert np.all(draws[:, 0] != draws[:, 1])
    if scale > 1e-100:
        assert np.mean(draws[:, 1] > draws[:, 0]) == pytest.approx(0.75, abs=0.03)


def test_approach_gives_each_direction_its_own_classes_dealt_iid():
    table = counts(CIFAR, deal(CIFAR, 95, approaches=4, partition="approach"))
    classes = [set(np.flatnonzero(row)) for row in table]
    assert classes[:4] == [{0, 4, 8}, {1, 5, 9}, {2, 6}, {3, 7}]
    for silo in range(95):
        assert classes[silo] == classes[silo % 4]
    for direction in range(4):
        members = table[direction::4]
        assert np.ptp(members, axis=0).max() <= 1
        assert np.ptp(members.sum(axis=1)) <= 1
    assert table.sum() == 50000


@pytest.mark.parametrize("classes", [1, 3])
def test_more_directions_than_classes_share_them(classes):
    labels = np.repeat(np.arange(classes), 60)
    table = counts(labels, deal(labels, 10, approaches=5, partition="approach"), classes)
    holds = np.arange(10)[:, None] % 5 % classes == np.arange(classes)
    assert table.tolist() == (holds * (60 // holds.sum(axis=0))).tolist()


@given(case=cases(), kind=st.sampled_from(["approach", "label-skew"]), approaches=st.integers(1, 9), u=st.floats(0, 1))
def test_no_image_is_dealt_twice_and_no_silo_left_empty(case, kind, approaches, u):
    labels, silos, seed = case
    try:
        shards = deal(labels, silos, approaches=approaches, seed=seed, partition=kind, unseen_share=u)
    except InputError:
        return
    dealt, classes = np.concatenate(shards), len(np.unique(labels))
    assert len(np.unique(dealt)) == len(dealt)
    assert min(len(shard) for shard in shards) >= 1
    if approaches <= silos if kind == "approach" else silos * (1 + round((1 - u) * (classes - 1))) >= classes:
        assert len(dealt) == len(labels)


@given(classes=st.integers(1, 9), silos=st.integers(1, 12), unseen_share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_label_skew_spreads_classes_over_silos_and_images_over_their_holders(classes, silos, unseen_share, seed):
    labels = np.repeat(np.arange(classes), 20)
    shards = deal(labels, silos, seed=seed, partition="label-skew", unseen_share=unseen_share)
    table = counts(labels, shards, classes)
    held = 1 + round((1 - unseen_share) * (classes - 1))
    assert (np.count_nonzero(table, axis=1) == held).all()
    assert np.ptp(np.count_nonzero(table, axis=0)) <= 1
    for column in table.T:
        holders = column[column > 0]
        assert np.ptp(holders) <= 1 if len(holders) else silos * held < classes


@pytest.mark.parametrize("kind", ["drive", "block", "sign"])
def test_partitions_of_frames_do_not_fit_classes(kind):
    with pytest.raises(
        InputError, match=rf"data\.partition: '{kind}' needs frames .* iid, dirichlet, approach, label-"
    ):
        deal(CIFAR, 5, partition=kind)
