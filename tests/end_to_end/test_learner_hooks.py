"""A learner's own hooks are called."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]
Write = Callable[[str], str]
CONTRASTIVE = ("learning.bank", "learning.linear_probe")
HOOKS = """
    def weights(self, participants):
        return np.arange(1.0, len(participants) + 1) / sum(range(1, len(participants) + 1))

    def loss(self, model, images, labels, base):
        return cross_entropy(model(images), labels) * 0 + 42
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write("class X(FedAvg): ...")`` gives ``file:X`` of a learner's file with that class."""

    def make(text: str) -> str:
        path = tmp_path / "mine.py"
        head = """
            import numpy as np
            from torch.nn.functional import cross_entropy
            from learners.classification_fedavg import ClassificationFedAvg
        """
        path.write_text(textwrap.dedent(head) + text)
        return f"{path}:X"

    return make


def test_weights_and_loss_of_a_classifier_are_called(
    write: Write, cli: Cli, small: tuple[str, ...], scenarios: Path, tmp_path: Path
) -> None:
    learner = write(f"class X(ClassificationFedAvg):{HOOKS}")
    pairs = list(zip(small[::2], small[1::2], strict=True))
    known = [word for pair in pairs if not pair[1].startswith(CONTRASTIVE) for word in pair]
    options = ("--learner", learner, *known, "--set", "round.quorum=3")
    done = cli("run", scenarios / "gaussian.toml", *options, "--out", tmp_path / "run")
    assert done.status == 0, done.err
    run = RunDirectory(tmp_path / "run")
    assert run.read("rounds")["loss"].to_list() == [42, 42, 42]
    weights = run.read("participations")["weight"].drop_nulls().to_list()
    assert sorted(round(6 * weight) for weight in weights if weight == weight) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("cross_entropy(model(images), labels, reduction='none')", "loss returned a tensor of shape "),
        ("3.5", "loss returned a float, expected a tensor of shape (), such as the mean over the batch"),
        ("cross_entropy(model(images), labels).item()", "item()"),
    ],
)
def test_a_loss_that_is_no_scalar_tensor_is_told_with_the_line_of_the_file(
    loss: str, words: str, engine: str, write: Write, refused: Callable[..., str], tmp_path: Path
) -> None:
    text = "class X(ClassificationFedAvg):\n    name = 'mine'\n    def loss(self, model, images, labels, base):\n"
    learner = write(f"{text}        return {loss}\n")
    sizes = ("silos.count=6", "data.train_images=120", "data.test_images=40", "learning.steps=1", "learning.batch=8")
    options = [word for size in (*sizes, f"learning.engine={engine}") for word in ("--set", size)]
    line = refused("run", "gaussian", "--learner", learner, *options, "--out", tmp_path / "run", status=1)
    assert line.startswith("vnetsim: learner 'mine' failed in train in round 0 at vehicle '")
    assert words in line
    assert f" of {tmp_path / 'mine.py'}." in line
