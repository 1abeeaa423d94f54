"""A learner's own hooks are called, or the run is refused before it begins."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vnetsim.errors import InputError
from vnetsim.learning.hooks import ignored_method
from vnetsim.learning.registry import LEARNERS as KIND
from vnetsim.learning.registry import find_learner, learner_names
from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]
Write = Callable[[str], str]
CONTRASTIVE = ("learning.bank", "learning.knn_k", "learning.linear_probe")
METHODS = [part for part in KIND.parts if part not in ("name", "task", "paper", "Settings")]
LEARNERS = ["Cdl", "ClassificationFedAvg", "FedAvg", "FedAvgSteering", "FedCo", "FedEFM"]
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
            from learners.cdl import Cdl
            from learners.classification_fedavg import ClassificationFedAvg
            from learners.contrastive import ContrastiveLearner
            from learners.fedavg import FedAvg
            from learners.fedco import FedCo
            from learners.fedefm import FedEFM
            from learners.steering_baselines import FedAvgSteering
            from vnetsim.learning import Learner
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


@pytest.mark.parametrize(
    ("base", "method"), [("FedCo", "keys"), ("Cdl", "divergence"), ("FedAvg", "los"), ("FedEFM", "weigths")]
)
def test_what_would_never_be_called_is_refused(
    write: Write, refused: Callable[..., str], tmp_path: Path, base: str, method: str
) -> None:
    learner = write(f"class X({base}):\n    def {method}(self, *a):\n        return super().{method}(*a)\n")
    line = refused("run", "gaussian", "--learner", learner, "--out", tmp_path / "run")
    assert f"mine.py:X: its method '{method}' would never be called: {base} has none of that name." in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (
                f"class X({base}):\n    def {method}(self, *a): ...\n",
                f"its '{method}' overrides what is final in {base}",
            )
            for base, method in [
                *((base, name) for base in LEARNERS for name in ("aggregate", "cost", "evaluate", "train", "series")),
                ("Cdl", "job"),
                ("FedAvgSteering", "own_series"),
                ("FedAvg", "_update"),
            ]
        ),
        ("class X(FedAvg):\n    @classmethod\n    def create(cls, *a): ...\n", "its 'create' overrides what is final"),
        (
            "class Y:\n    def cost(self, silo): ...\nclass X(Y, FedCo): ...\n",
            "its 'cost' overrides what is final in FedCo",
        ),
        ("class X(FedAvg):\n    weights = 3\n", "its 'weights' is no method, and FedAvg calls it as one."),
        ("class X(FedAvg):\n    @property\n    def loss(self): ...\n", "its 'loss' is no method"),
        (
            "class Y:\n    def loss(self, *a): ...\nclass X(FedAvg, Y): ...\n",
            "'loss' would never be called: FedAvg stands before",
        ),
        ("class X(FedAvg):\n    def _loss(self, *a): ...\n", "FedAvg has none of that name. Did you mean 'loss'?"),
    ],
)
def test_overriding_in_vain_is_refused(write: Write, text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        find_learner(write(text))
    assert message in str(refused.value)
    assert str(refused.value).endswith("calls and a subclass can override: loss, weights.")


@pytest.mark.parametrize("name", learner_names())
def test_hooks_of_shipped_learners_are_the_same(write: Write, name: str) -> None:
    base = find_learner(name)
    head = f"from {base.__module__} import {base.__name__} as Base\n"
    with pytest.raises(InputError, match=r"a subclass can override: loss, weights\.$"):
        find_learner(write(f"{head}class X(Base):\n    def nothing(self): ...\n"))


@pytest.mark.parametrize(
    "text",
    [
        "class X(FedAvg):\n    def _weights(self): ...\n    def weights(self, p):\n        return self._weights()\n",
        "def loss(self, *a): ...\nclass X(FedAvg):\n    loss = staticmethod(loss)\n    weights = FedCo.weights\n",
        "class X(Learner):\n    name = task = paper = 'x'\n    Settings = FedAvg.Settings\n    def tell(self): ...\n"
        + "".join(f"    def {part}(self): ...\n" for part in METHODS),
        "class X(FedAvg):\n    def weights(self, p):\n        self.helper(p)\n    def helper(self, p): ...\n",
        "class X(FedCo):\n    def _helper(self): ...\n",
        "class Y:\n    def shared(self): ...\nclass X(Y, FedAvg):\n    def weights(self, p):\n        self.shared()\n",
        "class X(FedAvg):\n    @property\n    def limit(self): ...\ndef use(x):\n    return getattr(x, 'limit')\n",
    ],
)
def test_helpers_are_no_hooks(write: Write, text: str) -> None:
    find_learner(write(text))


def test_an_unused_method_of_a_mixin_is_found(write: Write, refused: Callable[..., str]) -> None:
    learner = write("class Y:\n    def shared(self): ...\nclass X(Y, FedAvg):\n    pass\n")
    assert "its method 'shared' would never be called: FedAvg has none" in refused("learners", learner)


def test_shipped_learners_have_no_such_method() -> None:
    assert all(ignored_method(find_learner(name)) == "" for name in learner_names())
