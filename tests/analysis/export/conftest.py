"""A small comparison of two learners, by the program itself."""

from pathlib import Path

import pytest
from small_runs import UNDRAWN, figures

import vnetsim

TINY = {"silos.count": 10, "data.train_images": 400, "data.test_images": 50, "learning.steps": 1, "traffic.end_s": 60,
        "learning.linear_probe": "never", "cost.model": "trained", "learning.batch": 8}  # fmt: skip


@pytest.fixture(scope="session")
def small_comparison(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("comparison") / "made"
    with figures(UNDRAWN):
        vnetsim.compare("gaussian", learners=["flsimco", "fedavg"], seeds=range(2), rounds=2, out=folder, settings=TINY)
    return folder
