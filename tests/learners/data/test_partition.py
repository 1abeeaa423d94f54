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


@given(case=cases(), districts=st.none() | st.integers(1, 9), share=st.floats(0, 1))
def test_each_silo_has_the_major_share_to_within_two_images(case, districts, share):
    labels, silos, seed = np.array(case[0]), case[1], case[2]
    kind = "district" if districts else "major-class"
    try:
        shards = deal(labels, silos, seed=seed, major_share=share, partition=kind, districts=districts or 1)
    except InputError:
        return
    dealt, classes = np.concatenate(shards), np.unique(labels, return_inverse=True)[1]
    assert len(np.unique(dealt)) == len(dealt)
    sizes = np.array([len(shard) for shard in shards])
    assert np.ptp(sizes) <= 1
    groups = min(districts or 9, classes.max() + 1)
    own = np.array([np.bincount(classes[shard] % groups, minlength=groups) for shard in shards])
    if groups == 1:
        assert len(dealt) == len(labels)
    elif districts:
        own = own[np.arange(silos), np.arange(silos) % districts % groups]
        assert np.abs(own - share * sizes).max() < 2
    else:
        assert (np.abs(own - share * sizes[:, None]) < 2).any(axis=1).all()


@pytest.mark.parametrize(("silos", "share", "images"), [(6, 0.8, 626), (6, 1.0, 500), (6, 0.6, 833), (95, 1.0, 50)])
def test_silos_are_as_large_as_the_major_share_allows(silos, share, images):
    """Of 500 images a class; who has one class alone cannot have more of it than there are for each of its silos."""
    labels = np.repeat(np.arange(10), 500)
    table = counts(labels, deal(labels, silos, partition="major-class", major_share=share))
    assert table[np.arange(silos), np.arange(silos) % 10] / table.sum(axis=1) == pytest.approx(share, abs=0.002)
    assert table.sum(axis=1).min() == images


def test_with_one_district_all_classes_are_its_own():
    labels = np.repeat(np.arange(3), [4000, 5000, 3000])
    assert np.ptp(counts(labels, deal(labels, 3, partition="district"), 3), axis=0).max() <= 1


def test_uneven_classes_are_the_major_ones_of_silos_in_proportion_to_their_images():
    sizes = np.geomspace(210, 2250, 43).astype(int)
    labels = np.repeat(np.arange(43), sizes)
    table = counts(labels, deal(labels, 95, partition="major-class"), 43)
    assert table.max(axis=1) / table.sum(axis=1) == pytest.approx(0.8, abs=0.005)
    assert np.bincount(table.argmax(axis=1), minlength=43) == pytest.approx(95 * sizes / sizes.sum(), abs=1.5)
    assert max(np.ptp(table[table.argmax(axis=1) == label], axis=0).max() for label in {*table.argmax(axis=1)}) < 5


@pytest.mark.parametrize(("districts", "majors"), [(10, 1), (5, 2), (2, 5), (20, 1)])
def test_the_classes_of_a_district_have_their_share_of_its_silos(districts, majors):
    silos = 20 * districts
    table = counts(CIFAR, deal(CIFAR, silos, partition="district", districts=districts, major_share=0.8))
    home = np.arange(10) % min(districts, 10) == np.arange(silos)[:, None] % districts % 10
    assert (home.sum(axis=1) == majors).all()
    shares = np.where(home, table, 0).sum(axis=1) / table.sum(axis=1)
    assert shares == pytest.approx(0.8, abs=0.005)


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
    assert shares == pytest.approx(share, abs=0.001)
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


def test_a_class_of_fewer_images_than_silos_that_shall_hold_it_is_refused_with_the_possible_share():
    """12 of 23 classes each in 20 silos: about 10 silos a class, of which the last has 4 images."""
    labels = np.repeat(np.arange(23), [*[40] * 22, 4])
    with pytest.raises(InputError, match=r"data\.unseen_share: .* the smallest class has 4 images;.* to 0\.864"):
        deal(labels, 20, partition="label-skew")
    table = counts(labels, deal(labels, 20, partition="label-skew", unseen_share=0.864), 23)
    assert (np.count_nonzero(table, axis=1) == 4).all()
    with pytest.raises(InputError, match=r"has 1 images; lower silos\.count"):
        deal([0, 0, 0, 1], 4, partition="label-skew")


@pytest.mark.parametrize("kind", ["drive", "block", "sign"])
def test_partitions_of_frames_do_not_fit_classes(kind):
    with pytest.raises(
        InputError, match=rf"data\.partition: '{kind}' needs frames .* iid, dirichlet, approach, label-"
    ):
        deal(CIFAR, 5, partition=kind)
