"""What ``tests/gpu_check.py`` and the benchmarks measure; needs torch, torchvision, scipy, numpy and safetensors alone.

On the path as ``device_checks``: pytest puts ``tests/`` there, as does a script that lies in it.
"""

from __future__ import annotations

import importlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@cache
def registered() -> dict[str, str]:
    """Return the learners of this repository: module and class by name; nothing has to be installed."""
    learners: dict[str, str] = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["vnetsim.learners"]
    return learners


def learner_class(name: str) -> Any:
    """Return the class of one of this repository's learners."""
    module, _, attribute = registered()[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
