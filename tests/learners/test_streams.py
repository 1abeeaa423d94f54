"""Every draw of a learner comes from the stream of its name: by another name the same seed is another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_checks.schedule import learner_class, registered
from PIL import Image

from learners.data import load_images, load_steering
from learners.data.sets import ImageSet, SteeringSet
from vnetsim.experiment import DataSettings
from vnetsim.learning.protocol import LearnerContext, Participant
from vnetsim.random_streams import Streams

TASKS = {
    "contrastive": {"silos", "initial model", "bank"},
    "classification": {"silos", "initial model", "local test"},
    "steering": {"silos", "initial model", "batchnorm"},
}
OWN = {"fedco": {"queue"}}
TRAININGS = {f"training/1/vehicle {i}" for i in range(2)}
OVERSEAS = {"overseas/1/vehicle 0/vehicle 1", "overseas/1/vehicle 1/vehicle 0"}
SIMILARITY = {f"similarity/1/vehicle {i}" for i in range(2)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of streams that are asked for from now on."""
    names: set[str] = set()
    sequence = Streams.sequence

    def noted(streams: Streams, *rest: object) -> Any:
        names.add("/".join((*streams.path, *map(str, rest))))
        return sequence(streams, *rest)

    monkeypatch.setattr(Streams, "sequence", noted)
    return names


@pytest.mark.parametrize("name", sorted(registered()))
def test_streams_of_a_learner(
    name: str,
    tiny: ImageSet,  # noqa: ARG001  the images
    on_tiny_roads: SteeringSet,  # noqa: ARG001  the frames
    new_context: Callable[..., LearnerContext],
    group: Callable[..., list[Participant]],
    asked: set[str],
) -> None:
    cls: Any = learner_class(name)
    # the data are made up here, and so is who holds the frames
    context = new_context(streams=Streams(seed=1, path=("learner",)))
    learner = cls.create(context, cls.Settings(batch=4, steps=1, engine="sequential"))
    assert asked == {f"learner/{one}" for one in TASKS[cls.task] | OWN.get(name, set())}
    learner.aggregate([])
    asked.clear()
    learner.train(group(1, 2))
    expected = TRAININGS | (OVERSEAS | SIMILARITY if name == "fedefm" else set())
    assert asked == {f"learner/{one}" for one in expected}
    asked.clear()
    learner.evaluate(final=True)
    assert not asked


@pytest.mark.parametrize(
    ("load", "name", "expected"),
    [
        (load_images, "signs", {"data/signs/train", "data/signs/test"}),
        (
            load_steering,
            "road",
            {f"data/road/{part}/{number}" for part, count in (("train", 11), ("test", 6)) for number in range(count)},
        ),
    ],
)
def test_streams_of_built_in_data(load: Any, name: str, expected: set[str], asked: set[str]) -> None:
    """A stream for each drive, whatever the number of frames."""
    load(DataSettings(name=name, train_images=22, test_images=12), streams=Streams(seed=1, path=("data",)))
    assert asked == expected


@pytest.mark.parametrize(
    ("load", "name", "stream"),
    [
        (load_images, "npz", "test images"),
        (load_images, "folder", "test images"),
        (load_steering, "steering-npz", "test blocks"),
        (load_steering, "driving-log", "test blocks"),
    ],
)
def test_streams_of_data_in_files(load: Any, name: str, stream: str, asked: set[str], tmp_path: Path) -> None:
    """What is held out for the test is drawn from a stream of the data set's own."""
    pictures = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "npz", images=pictures, labels=np.arange(40) % 2)
    np.savez(tmp_path / "steering-npz", imgs=pictures, ground_truths=np.linspace(-1, 1, 40))
    rows = []
    for i, picture in enumerate(pictures):
        path = tmp_path / "folder" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
        rows.append(f"{path},{path},{path},0.1,0,0,1")
    (tmp_path / "driving-log").write_text("\n".join(rows))
    root = tmp_path / (f"{name}.npz" if name.endswith("npz") else name)
    data = DataSettings(name=name, root=str(root), image_px=8)
    load(data, streams=Streams(seed=1, path=("data",)))
    assert asked == {f"data/{name}/{stream}"}
