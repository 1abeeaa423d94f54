"""Traffic of a user's own source: what it raises names the source, and what it returns is checked."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import VnetsimError
from vnetsim.traffic.sources import OwnTraffic

RSU = Rsu(id="a", x_m=0.0, y_m=0.0, range_m=100.0)
ASTRAY: Any = SimpleNamespace(path=SimpleNamespace(vehicle_id="v", rsu_id="a", x_m=[0.0, math.nan], y_m=[0.0, 1.0]))


def fail() -> Any:
    raise ValueError("no file")


@pytest.mark.parametrize(
    ("parts", "use", "words"),
    [
        ({"rsus": ()}, lambda _: None, "'mine': it has no RSU"),
        ({"rsus": ("a",)}, lambda _: None, "'mine': its rsus must be vnetsim"),
        ({"info": 3}, lambda own: own.info, "'mine' failed in info: AttributeError: "),
        ({"time_s": "late"}, lambda own: own.time_s, "'mine' failed in time_s: ValueError: "),
        ({"close": fail}, lambda own: own.close(), r"'mine' failed in close: ValueError: no file\."),
        ({"events": fail}, lambda own: list(own.events()), r"'mine' failed in events: ValueError: no file\."),
        ({"events": lambda: [3]}, lambda own: list(own.events()), "'mine' failed in events: AttributeError: "),
        ({"events": lambda: [ASTRAY]}, lambda own: list(own.events()), "path of v leads nan m away from RSU 'a'"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(parts, use, words):
    stream: Any = SimpleNamespace(**{"rsus": (RSU,), **parts})
    with pytest.raises(VnetsimError, match=words):
        use(OwnTraffic(stream, {"name": "mine"}, "gaussian"))
