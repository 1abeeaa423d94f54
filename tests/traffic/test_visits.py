"""Movement without roads: the chain that papers assume, and logs of who was where."""

import math
from collections import Counter

import numpy as np
import pytest

from vnetsim.coverage.windows import Left, Window
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.traffic import open_traffic

LOG = """vehicle,rsu,enter_s,exit_s
late,south,40,50.5
taxi 1,north,0,30
taxi 1,south,20,60
taxi 2,north,5,10
taxi 1,north,30,31
"""


def windows_of(scenario: str, seed: int = 0, **source: object) -> list[Window]:
    traffic = open_traffic(Experiment(scenario=scenario, seed=seed, source=source))
    windows = [event.window for event in traffic.events() if isinstance(event, Left)]
    again = [event.window for event in traffic.events() if isinstance(event, Left)]
    assert [(one.vehicle_id, one.enter_s) for one in windows] == [(one.vehicle_id, one.enter_s) for one in again]
    traffic.close()
    return windows


@pytest.mark.parametrize(
    ("moves", "lambda_2"),
    [("ring", 1 - 0.4 * (1 - math.cos(2 * math.pi / 6))), ("uniform", 1 - 0.4 * 6 / 5)],
)
def test_the_chain_of_jumps_has_the_second_eigenvalue_of_the_closed_form(moves, lambda_2):
    """Counted from the windows alone: who is where at each step."""
    windows = windows_of("jumps", rsus=6, vehicles=60, moves=moves, probability=0.4, step_s=1.0, duration_s=400.0)
    at = np.full((60, 400), -1)
    for one in windows:
        vehicle, place = (int(name.rpartition("_")[2]) for name in (one.vehicle_id, one.rsu_id))
        at[vehicle, math.ceil(one.enter_s) : math.floor(one.exit_s)] = place
    assert (at >= 0).all(), "nobody is ever nowhere"
    counts = np.zeros((6, 6))
    np.add.at(counts, (at[:, :-1].ravel(), at[:, 1:].ravel()), 1)
    chain = counts / counts.sum(axis=1, keepdims=True)
    eigenvalues = np.sort(np.linalg.eigvals(chain).real)
    assert eigenvalues[-1] == pytest.approx(1)
    assert eigenvalues[-2] == pytest.approx(lambda_2, abs=0.03)  # 24,000 moves: three standard errors


def test_who_never_jumps_stays_and_the_seed_decides_who_jumps():
    still = windows_of("jumps", rsus=4, vehicles=10, probability=0.0, duration_s=300.0)
    assert Counter(one.rsu_id for one in still) == {"rsu_0": 3, "rsu_1": 3, "rsu_2": 2, "rsu_3": 2}
    assert {(one.enter_s, one.exit_s, one.exit_cause) for one in still} == {(0.0, 300.0, "end")}
    always = windows_of("jumps", rsus=4, vehicles=10, probability=1.0, step_s=10.0, duration_s=95.0)
    assert Counter(one.vehicle_id for one in always) == {f"vehicle_{number}": 10 for number in range(10)}
    first, other = (windows_of("jumps", seed=seed, duration_s=600.0) for seed in (1, 2))
    assert [one.rsu_id for one in first] != [one.rsu_id for one in other]


def test_a_log_is_played_as_it_stands(tmp_path):
    (tmp_path / "log.csv").write_text(LOG, encoding="utf-8")
    found = {
        (one.vehicle_id, one.rsu_id, one.enter_s): (one.exit_s, one.exit_cause)
        for one in windows_of("access-log", file=str(tmp_path / "log.csv"), speed_kmh=36.0)
    }
    assert found == {
        ("taxi 1", "north", 0): (30.0, "crossing"),
        ("taxi 2", "north", 5): (10.0, "crossing"),
        ("taxi 1", "south", 20): (60.0, "end"),
        ("taxi 1", "north", 30): (31.0, "crossing"),
        ("late", "south", 40): (50.5, "crossing"),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("vehicle,rsu,enter_s\nv,r,0\n", 'unable to find column "exit_s"'),
        ("vehicle,rsu,enter_s,exit_s\nv,r,0,soon\n", "could not parse `soon`"),
        ("vehicle,rsu,enter_s,exit_s\nv,r,0,1\nv,r,5,5\n", "line 3: "),
        ("vehicle,rsu,enter_s,exit_s\nv,r,9,20\nv,q,0,1\nv,r,1,10\n", "line 2: "),
        ("vehicle,rsu,enter_s,exit_s\nv,,0,1\n", "line 2: "),
        ("vehicle,rsu,enter_s,exit_s\nv,r,0,1e308\n", "line 2: .* beyond 1e10 s|1e\\+10 s"),
        ("vehicle,rsu,enter_s,exit_s\n", "without rows"),
        (None, "No such file"),
    ],
)
def test_a_log_that_is_none_is_refused_in_one_line(tmp_path, text, says):
    file = tmp_path / "log.csv"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=says) as caught:
        windows_of("access-log", file=str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_the_name_of_a_log_is_no_pattern(tmp_path):
    (tmp_path / "log[1].csv").write_text("vehicle,rsu,enter_s,exit_s\nright,r,0,1\n")
    (tmp_path / "log1.csv").write_text("vehicle,rsu,enter_s,exit_s\nwrong,r,0,1\n")
    assert [one.vehicle_id for one in windows_of("access-log", file=str(tmp_path / "log[1].csv"))] == ["right"]
