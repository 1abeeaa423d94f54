"""GTSRB in torchvision's layout: a small stand-in folder, signs that stay together, and every fault."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import GTSRB

from learners.data import load_images
from learners.data.partition_file import divide_among_silos
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

CLASSES, TRACKS, FRAMES = 3, 8, 5
PARTITIONS = ["iid", "dirichlet", "approach", "label-skew", "major-class", "district"]


def load(root, seed=0, **settings):
    return load_images(DataSettings(name="gtsrb", root=str(root), **settings), streams=Streams(seed=seed))


def write(path: Path, random: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = random.integers(15, 40, size=2)
    Image.fromarray(random.integers(0, 256, size=(*size, 3), dtype=np.uint8)).save(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three classes of eight signs with five frames each; the track 00003 of class 2 is among the test images too."""
    base, random = tmp_path_factory.mktemp("gtsrb"), np.random.default_rng(0)
    training, final = base / "gtsrb" / "GTSRB" / "Training", base / "gtsrb" / "GTSRB" / "Final_Test" / "Images"
    for number in range(CLASSES * TRACKS * FRAMES):
        label, track, frame = number // (TRACKS * FRAMES), number // FRAMES % TRACKS, number % FRAMES
        write(training / f"{label:05}" / f"{track:05}_{frame:05}.ppm", random)
    rows = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for number in range(12):
        write(final / f"{number:05}.ppm", random)
        rows.append(f"{number:05}.ppm;20;20;1;1;19;19;{number % CLASSES}")
    shutil.copy(training / "00002" / "00003_00001.ppm", final / "00011.ppm")
    (base / "gtsrb" / "GT-final_test.csv").write_text("\n".join(rows) + "\n")
    return base


@pytest.fixture
def root(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "data"))


def sign(name: str) -> str:
    return name[: name.rindex("_")]


def test_every_image_is_torchvisions_with_its_label(root):
    images = load(root, image_px=16)
    ours = {name: (images.train[row], int(images.train_labels[row])) for row, name in enumerate(images.train_names)}
    ours |= {name: (images.test[row], int(images.test_labels[row])) for row, name in enumerate(images.test_names)}
    for split in ("train", "test"):
        known = GTSRB(root=str(root), split=split)
        for (path, _), (image, label) in zip(known._samples, known, strict=True):
            name = Path(path).relative_to(root / "gtsrb").as_posix()
            if name.startswith("GTSRB/Training/00002/00003_"):
                assert name not in ours
                continue
            pixels = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
            assert np.array_equal(ours[name][0], pixels)
            assert ours[name][1] == label
    assert (len(images.train), len(images.test)) == ((CLASSES * TRACKS - 1) * FRAMES, 12)
    assert len(images.class_names) == 43


def kaggle(root: Path, to: Path) -> Path:
    """The same images in Kaggle's layout, images after each other in the order of torchvision's files."""
    for split, name in (("train", "Train"), ("test", "Test")):
        rows = ["Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path"]
        for file, label in GTSRB(root=str(root), split=split)._samples:
            stem = Path(file).stem
            path = f"Train/{label}/{label:05}_{stem}.png" if split == "train" else f"Test/{stem}.png"
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            Image.open(file).save(to / path)
            rows.append(f"27,26,5,5,22,20,{label},{path}")
        (to / f"{name}.csv").write_text("\r\n".join(rows))
    return to


def test_kaggles_layout_has_the_same_images_signs_and_classes(root, tmp_path):
    ours, theirs = load(root), load(kaggle(root, tmp_path / "kaggle"))
    assert torch.equal(ours.train, theirs.train)
    assert torch.equal(ours.test, theirs.test)
    assert torch.equal(ours.train_labels, theirs.train_labels)
    assert torch.equal(ours.test_labels, theirs.test_labels)
    assert torch.equal(ours.train_groups, theirs.train_groups)
    assert ours.facts == theirs.facts
    assert theirs.train_names[0].startswith("Train/")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("Train.csv", "ClassId,Path\n1,Train/2/00002_00001_00000.png\n", r"Train\.csv:2: .* with the class '1' is not"),
        ("Train.csv", "ClassId,Path\n1,../00001_00001_00000.png\n", r"Train\.csv:2: .*fetch it again"),
        ("Train.csv", "ClassId,Path\n", r"0 training images .* are of no class"),
        ("Train.csv", "version https://git-lfs.github.com/spec/v1\n", r"Train\.csv: it lacks .*`git lfs pull`"),
        ("Test.csv", "ClassId,Path\n43,Test/00001.png\n", r"Test\.csv:2: .* with the class '43'"),
        ("Test.csv", "\0", r"Test\.csv: (cannot be read|it lacks)"),
        ("Test.csv", "ClassId,Path\n4\n", r"Test\.csv:2: the image 'None' with the class '4'"),
    ],
)
def test_faults_of_kaggles_layout_are_one_line(file, content, said, root, tmp_path):
    folder = kaggle(root, tmp_path / "kaggle")
    (folder / file).write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_sign_among_the_test_images_is_trained_on_in_no_frame(root):
    images = load(root)
    assert len(Counter(map(sign, images.train_names))) == CLASSES * TRACKS - 1
    assert images.facts == {"Left out": "signs among the test images: 1, of 5 training images"}
    (root / "gtsrb" / "GTSRB" / "Final_Test" / "Images" / "00011.ppm").write_bytes(b"P6 1 1 255\n\0\0\0")
    assert len(load(root).train) == CLASSES * TRACKS * FRAMES
    assert load(root).facts == {}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_frames_of_one_sign_are_in_one_silo(partition, root):
    images, settings = load(root), DataSettings(partition=partition, alpha=0.5)
    assert images.train.shape[1:] == (3, 32, 32)
    silos = divide_among_silos(
        images, silos=4, approaches=2, settings=settings, generator=np.random.default_rng(0), districts=2
    )
    where = {}
    for silo, rows in enumerate(silos):
        for row in rows:
            assert where.setdefault(sign(images.train_names[row]), silo) == silo
    held = sorted(row for rows in silos for row in rows)
    if partition == "district":  # 15 signs of one district and 8 of the other
        assert len(set(held)) == len(held) > 0.6 * len(images.train)
    else:
        assert held == list(range(len(images.train)))
    if partition in ("iid", "dirichlet", "major-class", "district"):
        signs = [len({sign(images.train_names[row]) for row in rows}) for rows in silos]
        assert max(signs) - min(signs) <= 1
    assert all(list(rows) != sorted(rows) for rows in silos), "in random order"


def test_too_few_signs_or_frames_for_the_silos(root):
    images, random = load(root), np.random.default_rng(0)
    common = {"approaches": 1, "generator": random}
    with pytest.raises(
        InputError, match=r"23 groups of images that stay together.* leave a silo with 0, and 1 are needed"
    ):
        divide_among_silos(images, silos=24, settings=DataSettings(), **common)
    with pytest.raises(InputError, match="leave a silo with 5, and 6 are needed"):
        divide_among_silos(images, silos=23, settings=DataSettings(min_images=6), **common)


def test_some_images_are_a_draw_of_all(root):
    few, again = (load(root, train_images=40, test_images=4) for _ in range(2))
    assert (len(few.train), len(few.test)) == (40, 4)
    assert len(Counter(map(sign, few.train_names))) > 10
    assert few.train_names == again.train_names
    assert few.train_names != load(root, seed=1, train_images=40).train_names
    assert torch.equal(few.train, load(root).train[:40])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: shutil.rmtree(g / "GTSRB" / "Training"), r"does not hold GTSRB .* fetch it with --data-download"),
        (lambda g: (g / "GT-final_test.csv").unlink(), r"does not hold GTSRB .*No such .*GT-final_test.csv"),
        (lambda g: (g / "GT-final_test.csv").write_bytes(b"\xff\n"), r"does not hold GTSRB .*'utf-8'"),
        (lambda g: (g / "GT-final_test.csv").write_text("Filename;ClassId\n../a.ppm;1\n"), "'a.ppm' with the class 1"),
        (lambda g: (g / "GT-final_test.csv").write_text("Filename;ClassId\n0.ppm;43\n"), "'0.ppm' with the class 43"),
        (lambda g: (g / "GTSRB/Final_Test/Images/00003.ppm").unlink(), r"1 of 127 images cannot be read: .*00003"),
        (
            lambda g: (g / "GT-final_test.csv").write_text(
                "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
            ),
            r"does not hold GTSRB .*'GT-final_test\.csv' is a pointer of git-lfs: .*`git lfs pull`",
        ),
        (lambda g: (g / "GTSRB/Training/00001/a.ppm").touch(), r"00001/a\.ppm' is not named as in GTSRB"),
        (lambda g: (g / "GTSRB/Training/00001").rename(g / "GTSRB/Training/00043"), r"is not named as in GTSRB"),
    ],
)
def test_faults_are_one_line(change, said, root):
    change(root / "gtsrb")
    with pytest.raises(InputError, match=said) as caught:
        load(root)
    assert "\n" not in str(caught.value)
