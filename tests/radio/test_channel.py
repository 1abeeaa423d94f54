import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from vnetsim.radio.channel import Channel, Transfer


def constant(rate_bps: float) -> Callable[[float], float]:
    return lambda _: rate_bps


def at(env: simpy.Environment, time_s: float, action: Callable[[], object]) -> None:
    env.timeout(time_s - env.now).callbacks.append(lambda _: action())


def test_a_transfer_says_whether_its_end_moved():
    rates = iter([80.0, 80.0, 0.0, 0.0, 160.0])
    transfer = Transfer(100, lambda _: next(rates), lambda: None)
    told = [(transfer.update_rate(virtual_s, 0.0), transfer.due_s) for virtual_s in (1.0, 2.0, 3.0, 4.0, 5.0)]
    assert told == [(True, 11.0), (False, 11.0), (True, math.inf), (False, math.inf), (True, 9.0)]


def test_a_leave_speeds_the_others_up_and_its_bytes_are_booked():
    env = simpy.Environment()
    channel, done = Channel(env), []
    leaver = channel.send(1000, constant(8000.0), lambda: done.append("leaver"))
    channel.send(1000, constant(8000.0), lambda: done.append(env.now))
    moved = []
    at(env, 1.0, lambda: moved.append(channel.abort(leaver)))
    env.run()
    # half the airtime for 1 s, then all of it for the other 500 B
    assert moved == [500.0]
    assert done == [1.5]
    assert channel.carried_bytes == 1500.0
    assert channel.abort(leaver) == 500.0  # a second abort changes nothing
    assert channel.carried_bytes == 1500.0


def test_rates_follow_the_function_at_the_update_instants_only():
    env = simpy.Environment()
    channel, done, asked = Channel(env), [], []

    def rate_bps(time_s: float) -> float:
        asked.append(time_s)
        return 8.0 * (1 + time_s)

    # 1 B/s for 2 s, then 3 B/s for 2 s, then 5 B/s: 2 + 6 + 5 B at 5 s
    channel.send(13, rate_bps, lambda: done.append(env.now), update_s=2.0)
    env.run()
    assert done == [5.0]
    assert asked == [0.0, 2.0, 4.0]


def test_a_constant_rate_makes_no_events_while_time_passes():
    env = simpy.Environment()
    channel = Channel(env)
    channel.send(1e9, constant(8.0), lambda: None)
    steps = 0
    while env.peek() < math.inf:
        env.step()
        steps += 1
    assert steps == 1
    assert env.now == 1e9


def test_nothing_moves_at_rate_zero_until_the_rate_rises():
    env = simpy.Environment()
    channel, done = Channel(env), []
    channel.send(10, lambda t: 0.0 if t < 3 else 80.0, lambda: done.append(env.now), update_s=1.0)
    env.run(until=10)
    assert done == [4.0]


def test_an_empty_transfer_ends_at_once():
    env = simpy.Environment(initial_time=2.0)
    channel, done = Channel(env), []
    channel.send(0, constant(8.0), lambda: done.append(env.now))
    env.run()
    assert done == [2.0]


def test_transfers_that_end_together_may_abort_each_other():
    env = simpy.Environment()
    channel, done = Channel(env), []
    transfers: list[Transfer] = []

    def first() -> None:
        done.append("first")
        assert channel.abort(transfers[1]) == 100  # all of it arrived at this very instant

    transfers.append(channel.send(100, constant(8.0), first))
    transfers.append(channel.send(100, constant(8.0), lambda: done.append("second")))
    env.run()
    assert done == ["first"]
    assert channel.carried_bytes == 200


def test_a_callback_may_send_on_the_same_channel():
    env = simpy.Environment()
    channel, done = Channel(env), []
    channel.send(1, constant(8e9), lambda: channel.send(2, constant(8e9), lambda: done.append(env.now)))
    env.run()
    assert done == [pytest.approx(3e-9, rel=1e-12, abs=0)]


def test_no_drift_over_a_long_busy_time():
    # A slow transfer shares the channel with 20 000 short ones, one after the other: each second airtime is halved.
    env = simpy.Environment()
    channel, done = Channel(env), []
    channel.send(10_000, constant(8.0), lambda: done.append(env.now))

    def next_one() -> None:
        if env.now < 20_000 - 0.5:
            channel.send(0.5, constant(8.0), next_one)

    next_one()
    env.run()
    assert done[0] == pytest.approx(20_000, rel=1e-9)
    assert channel.carried_bytes == pytest.approx(20_000, rel=1e-9)


@dataclass(frozen=True)
class Plan:
    start_s: float
    size_bytes: float
    rates: tuple[float, ...]  # bytes/s in turn, one each update_s
    update_s: float
    abort_s: float | None  # after the start

    def rate_bytes(self, updates: int) -> float:
        return self.rates[min(updates, len(self.rates) - 1)]

    def rate_bps(self, time_s: float) -> float:
        return 8 * self.rate_bytes(round((time_s - self.start_s) / self.update_s))


plans = st.lists(
    st.builds(
        Plan,
        start_s=st.floats(0, 20),
        size_bytes=st.floats(1, 1000),
        rates=st.lists(st.floats(1, 1000), min_size=1, max_size=4).map(tuple),
        update_s=st.floats(0.1, 2),
        abort_s=st.none() | st.floats(0.01, 5),
    ),
    min_size=1,
    max_size=6,
)


def play(scenario: list[Plan]) -> tuple[Channel, list[float], list[float]]:
    """Return the channel, when each transfer ended and how many bytes it moved."""
    env = simpy.Environment()
    channel = Channel(env)
    end_s, moved = [math.nan] * len(scenario), [math.nan] * len(scenario)

    def done(i: int) -> None:
        end_s[i], moved[i] = env.now, scenario[i].size_bytes

    def abort(i: int, transfer: Transfer) -> None:
        if math.isnan(end_s[i]):
            end_s[i], moved[i] = env.now, channel.abort(transfer)

    def start(i: int) -> None:
        plan = scenario[i]
        transfer = channel.send(plan.size_bytes, plan.rate_bps, partial(done, i), update_s=plan.update_s)
        if plan.abort_s is not None:
            at(env, env.now + plan.abort_s, partial(abort, i, transfer))

    for i, plan in enumerate(scenario):
        at(env, plan.start_s, partial(start, i))
    env.run()
    return channel, end_s, moved


def exact(scenario: list[Plan]) -> tuple[list[Fraction], list[Fraction]]:
    """Integrate in rational numbers from one change of anything to the next: no rounding at all."""
    n = len(scenario)
    start = [Fraction(plan.start_s) for plan in scenario]
    left = [Fraction(plan.size_bytes) for plan in scenario]
    end: list[Fraction | None] = [None] * n
    updates = [0] * n
    now = Fraction(0)
    while any(e is None for e in end):
        active = [i for i in range(n) if end[i] is None and start[i] <= now]
        rate = {i: Fraction(scenario[i].rate_bytes(updates[i])) / len(active) for i in active}
        changes = [start[i] for i in range(n) if start[i] > now]
        changes += [now + left[i] / rate[i] for i in active]
        changes += [start[i] + (updates[i] + 1) * Fraction(scenario[i].update_s) for i in active]
        changes += [start[i] + Fraction(a) for i in active if (a := scenario[i].abort_s) is not None]
        then = min(changes)
        for i in active:
            left[i] -= rate[i] * (then - now)
            abort_s = scenario[i].abort_s
            if left[i] == 0 or (abort_s is not None and start[i] + Fraction(abort_s) == then):
                end[i] = then
            if start[i] + (updates[i] + 1) * Fraction(scenario[i].update_s) == then:
                updates[i] += 1
        now = then
    return [e for e in end if e is not None], [Fraction(p.size_bytes) - b for p, b in zip(scenario, left, strict=True)]


@given(scenario=plans)
@settings(max_examples=50)
def test_equals_exact_integration(scenario):
    channel, end_s, moved = play(scenario)
    expected_end, expected_moved = exact(scenario)
    assert end_s == pytest.approx([float(e) for e in expected_end], rel=1e-9, abs=1e-9)
    assert moved == pytest.approx([float(m) for m in expected_moved], rel=1e-8, abs=1e-8)
    assert channel.carried_bytes == pytest.approx(math.fsum(moved), rel=1e-12)
    # The channel is busy exactly while some transfer is between its start and its end.
    busy_s, until_s = 0.0, -math.inf
    for start_s, stop_s in sorted((p.start_s, e) for p, e in zip(scenario, end_s, strict=True)):
        busy_s += max(0.0, stop_s - max(start_s, until_s))
        until_s = max(until_s, stop_s)
    assert channel.busy_s == pytest.approx(busy_s, rel=1e-9, abs=1e-9)
