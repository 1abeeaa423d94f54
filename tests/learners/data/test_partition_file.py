"""The file that says which silo holds which image: written, read back to the same bits, and every fault by its line."""

from dataclasses import replace

import numpy as np
import pytest

from learners.data import load_images, load_steering
from learners.data.partition import partition_steering
from learners.data.partition_file import COLUMNS, divide_among_silos, partition_csv
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SIGNS = DataSettings(train_images=60, test_images=10, partition="dirichlet")
HEAD = ",".join(COLUMNS)


def deal(images, settings, silos=4):
    return divide_among_silos(images, silos=silos, approaches=1, settings=settings, generator=np.random.default_rng(0))


@pytest.fixture(scope="module")
def images():
    return load_images(SIGNS, streams=Streams(seed=0))


@pytest.fixture
def file(images, tmp_path):
    path = tmp_path / "partition.csv"
    path.write_bytes(partition_csv(images, deal(images, SIGNS)))
    return path


def test_what_is_written_is_read_back_in_its_order(images, file):
    again = deal(images, replace(SIGNS, partition=str(file)))
    assert [rows.tolist() for rows in again] == [rows.tolist() for rows in deal(images, SIGNS)]
    assert partition_csv(images, again) == file.read_bytes()


def test_all_images_stand_in_it_once(images, file):
    rows = [line.split(",") for line in file.read_text().splitlines()]
    assert tuple(rows[0]) == COLUMNS
    assert sorted(int(row[1]) for row in rows[1:] if row[0] == "train") == list(range(60))
    assert [(int(row[1]), row[4]) for row in rows[1:] if row[0] == "test"] == [(n, "") for n in range(10)]
    for split, number, label, name, _ in rows[1:]:
        labels = images.train_labels if split == "train" else images.test_labels
        assert (int(label), name) == (labels[int(number)], images.class_names[int(label)])


def test_images_that_no_row_has_are_nobodys(images, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(f"{HEAD}\ntrain,7,,,1\ntrain,3,,,0\ntrain,5,,,1\ntrain,9,,,\n")
    assert [rows.tolist() for rows in deal(images, DataSettings(partition=str(path)), silos=2)] == [[3], [7, 5]]
    written = partition_csv(images, [np.array([3]), np.array([7, 5])]).decode().splitlines()
    assert [line.split(",")[1::3] for line in written[1:4]] == [["3", "0"], ["7", "1"], ["5", "1"]]
    assert sum(line.startswith("train") and line.endswith(",") for line in written) == 57


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image,silo\n", r":1: expected the columns split,image,label,class,silo, got 'image,silo'\."),
        ("", r":1: expected the columns"),
        (f"{HEAD}\ntrain,0,,,0\ntrain,1,0\n", r":3: expected 5 values, got 3\."),
        (f"{HEAD}\nvalid,0,,,0\n", r":2: split is 'valid', expected train or test\."),
        (f"{HEAD}\ntest,0,,,0\n", r":2: a test image is held by a silo; leave its silo empty\."),
        (f"{HEAD}\ntrain,60,,,0\n", r":2: '60' is none of the 60 training images of this run, such as '0'\."),
        (f"{HEAD}\ntrain,-1,,,0\n", r":2: '-1' is none"),
        (f"{HEAD}\ntrain,0,,,0\ntrain,0,,,1\n", r":3: image '0' is already in line 2\."),
        (f"{HEAD}\ntrain,0,,,4\n", r":2: silo is '4', expected 0 to 3 \(silos\.count is 4\)\."),
        (f"{HEAD}\ntrain,0,,,-1\n", r":2: silo is '-1', expected"),
        (f"{HEAD}\ntrain,0,,,1.0\n", r":2: silo is '1\.0', expected"),
        (f"{HEAD}\ntrain,0,,,{'9' * 5000}\n", r":2: silo is '9{40}', expected"),
        (f"{HEAD}\ntrain,0,99,,0\n", r":2: label is '99', but the image '0' of this run has \d+: it is another set\."),
        (f"{HEAD}\ntrain,0,,,0\n", r": silo 1 has 0 training images and needs 1; silos\.count is 4\."),
        (f'{HEAD}\n"train\n', r":2: expected 5 values, got 1\."),
        (f"{HEAD}\n{'x' * 200000}\n", r": cannot be read: field larger"),
        (f"{HEAD}\ntrain,\0,,,0\n", r"own\.csv"),
    ],
)
def test_faults_are_one_line_with_the_number_of_the_line(text, said, images, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        deal(images, DataSettings(partition=str(path)))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read(images, tmp_path):
    (tmp_path / "own.csv").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.csv").mkdir()
    for name, said in (("own", "utf-8"), ("gone", "No such file"), ("folder", "Is a directory")):
        with pytest.raises(InputError, match=rf"{name}\.csv: cannot be read: .*{said}"):
            deal(images, DataSettings(partition=str(tmp_path / f"{name}.csv")))


def test_frames_with_angles_take_no_file():
    frames = load_steering(DataSettings(name="road", train_images=20, test_images=5), streams=Streams(seed=0))
    settings = DataSettings(name="road", partition="own.csv")
    with pytest.raises(InputError, match=r"'own\.csv' needs images with classes; frames with steering angles are"):
        partition_steering(frames, silos=2, settings=settings, generator=np.random.default_rng(0))


def test_an_unknown_name_is_refused_at_once():
    with pytest.raises(InputError, match=r"data\.partition: unknown partition 'dirichelt'\. Did you mean 'dirichlet'"):
        DataSettings(partition="dirichelt")
