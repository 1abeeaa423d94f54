"""Activities: what they wait for, how they are interrupted, and how they end."""

import pytest
import simpy

from vnetsim.simulation.tasks import Activity, Deadline, Interrupt, Signal, Task, until


def test_an_interrupt_takes_effect_at_once_and_the_old_event_resumes_nobody():
    env, seen = simpy.Environment(), []

    def activity() -> Activity:
        try:
            yield env.timeout(2.0)
        except Interrupt:
            seen.append(("interrupted", env.now))
        yield env.timeout(3.0)
        seen.append(("done", env.now))

    task = Task(activity())
    env.run(until=1.0)
    task.interrupt(Interrupt())
    assert seen == [("interrupted", 1.0)]
    env.run()
    assert seen[1:] == [("done", 4.0)]
    assert task.fired


def test_a_stopped_task_never_resumes_and_never_fires():
    env = simpy.Environment()

    def activity() -> Activity:
        yield env.timeout(1.0)
        pytest.fail("it was stopped")

    task = Task(activity())
    task.stop()
    env.run()
    assert not task.fired


def test_a_signal_resumes_at_once_in_order_and_late_comers_do_not_wait():
    signal, seen = Signal(), []

    def wait(name: str) -> Activity:
        yield from until(signal)
        seen.append(name)

    first, second = Task(wait("first")), Task(wait("second"))
    assert not seen
    signal()
    Task(wait("late"))
    assert seen == ["first", "second", "late"]
    assert first.fired
    assert second.fired


def test_a_deadline_that_is_put_off_or_cancelled_calls_nothing_at_its_old_time():
    env, seen = simpy.Environment(), []
    deadline = Deadline(env)
    deadline.cancel()
    deadline.set(1.0, lambda: pytest.fail("it was put off"))
    deadline.set(3.0, lambda: seen.append(env.now))
    env.run()
    assert seen == [3.0]
    deadline.set(1.0, lambda: pytest.fail("it was cancelled"))
    deadline.cancel()
    env.run()
