"""Robust rules and attacks against ByzFL: its outputs in ``byzfl.json``, and itself where it is installed.

Definitions differ. ByzFL's Krum and multi-Krum sum over n - f - 1 neighbours, the paper's over n - f - 2, so its f is
one more for the same Krum; both multi-Krums average n - f uploads, the same ones where f are far away. Its ALIE adds
tau sample deviations to the mean, ours takes z population deviations off. It flips the sign of the honest mean, ours
that of each upload.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learners.conducts import Alie, Ipm, SignFlip
from learners.mathematics.robust import AveragingSettings, combine, used_weights, weigh_by_distance
from vnetsim.learning.conduct import Hostile, HostileRound

TABLE = json.loads(Path(__file__).with_name("byzfl.json").read_text())
Z, EPSILON, TRIM_EXCESS = 1.2, 0.7, 1e-3
"""Deviations of ALIE, the factor of IPM, and how much less than f / n ``trim`` is: f is rounded up."""


def theirs(rows: Any, f: int) -> dict[str, list[float]]:
    """Return what ByzFL makes of uploads of which the first f are hostile; made ``byzfl.json``."""
    byzfl, honest = pytest.importorskip("byzfl"), rows[f:]
    made = {
        "median": byzfl.Median()(rows),
        "trimmed-mean": byzfl.TrMean(f)(rows),
        "krum": byzfl.Krum(f + 1)(rows),
        "multi-krum": byzfl.MultiKrum(f)(rows),
        "geometric-median": byzfl.GeometricMedian(nu=1e-6, T=500)(rows),
        "alie": byzfl.ALittleIsEnough(-Z * math.sqrt(1 - 1 / len(honest)))(honest),
        "ipm": byzfl.InnerProductManipulation(EPSILON)(honest),
        "sign-flip": byzfl.SignFlipping()(rows[:1]),
    }
    return {name: vector.round(9).tolist() for name, vector in made.items()}


def ours(rows: Any, f: int) -> dict[str, list[float]]:
    """Return the same by the shipped rules and conducts."""
    states = [{"w": torch.tensor(row)} for row in rows]
    found = {}
    for name in ("median", "trimmed-mean", "krum", "multi-krum", "geometric-median"):
        settings = AveragingSettings(aggregation=name, trim=f / len(rows) - TRIM_EXCESS)  # type: ignore[arg-type]
        weights = weigh_by_distance(states, used_weights(np.ones(len(rows)), settings), settings)
        found[name] = combine(states, weights, settings)["w"].tolist()
    given = HostileRound(
        hostile=[Hostile(vehicle_id="v", change=states[0], memory={}, draws=torch.Generator())], honest=states[f:]
    )
    for conduct in (Alie(deviations=Z), Ipm(factor=EPSILON), SignFlip()):
        found[conduct.name] = conduct.send(given)[0].change["w"].tolist()
    return found


def agree(found: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    assert found.keys() == expected.keys()
    for name, vector in expected.items():
        tolerance = 1e-4 if name == "geometric-median" else 1e-8  # both stop before the limit
        np.testing.assert_allclose(found[name], vector, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: f"{len(case['uploads'])}-{case['hostile']}")
def test_rules_and_attacks_are_byzfls(case: dict[str, Any]) -> None:
    agree(ours(np.array(case["uploads"]), case["hostile"]), case["made"])


def test_the_table_is_what_byzfl_makes() -> None:
    pytest.importorskip("byzfl")
    draws = np.random.default_rng(0)
    cases = [(np.array(case["uploads"]), case["hostile"]) for case in TABLE["cases"]]
    for case, (rows, f) in zip(TABLE["cases"], cases, strict=True):
        agree(theirs(rows, f), case["made"])
    for _ in range(20):
        f = int(draws.integers(1, 4))
        rows = draws.normal(size=(int(draws.integers(2 * f + 3, 14)), int(draws.integers(2, 9))))
        rows[:f] += 10
        agree(ours(rows, f), theirs(rows, f))
