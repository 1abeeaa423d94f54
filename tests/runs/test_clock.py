"""Wall time by stage: nothing is counted twice, nothing is lost."""

import time

import pytest

from vnetsim.runs.clock import Clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that clocks read; tests set it."""
    time_s = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: time_s[0])
    return time_s


def test_parts_do_not_count_for_the_stage_around_them(now: list[float]) -> None:
    clock = Clock()
    now[0] += 2
    clock.mark("imports")
    for _ in range(3):
        now[0] += 1
        with clock.part("training"):
            now[0] += 10
    clock.mark("simulation")
    assert clock.stages == {"imports": 2.0, "training": 30.0, "simulation": 3.0}


def test_reading_is_told_from_what_is_done_with_it(now: list[float]) -> None:
    def items():  # type: ignore[no-untyped-def]
        for i in range(3):
            now[0] += 5
            yield i
        now[0] += 1

    clock, seen = Clock(), []
    for item in clock.while_reading(items(), "traffic"):
        now[0] += 7
        seen.append(item)
    clock.mark("simulation")
    assert seen == [0, 1, 2]
    assert clock.stages == {"traffic": 16.0, "simulation": 21.0}
