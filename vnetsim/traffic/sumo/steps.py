"""One pass through a scenario in SUMO: read step by step into coverage events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.tracker import Tracker
from vnetsim.coverage.windows import CoverageEvent
from vnetsim.errors import RunError
from vnetsim.traffic.sumo.net import anchor, shared_place
from vnetsim.traffic.sumo.session import SumoSession
from vnetsim.traffic.sumo.stream import SumoStream
from vnetsim.traffic.vehicle_types import TypeFilter

Result = TypeVar("Result")

_STEPS, _BYTES, _WAIT_S = 64, 1 << 23, 2.0
"""Steps are looked at together: at most so many, until they have so many bytes or took so long."""


class Pass:
    """One pass through the scenario."""

    def __init__(
        self,
        session: SumoSession,
        rsus: tuple[Rsu, ...],
        radii_m: list[float],
        suffix: str,
        *,
        warmup_s: float,
        types: TypeFilter,
    ) -> None:
        self._session = session
        self._warmup_ms = round(warmup_s * 1000)
        self._rsus = rsus
        self.duration_s = 0.0
        api = session.api
        each = [(anchor(api, rsu, index), radii_m[index]) for index, rsu in enumerate(rsus)]
        shared = shared_place(api, rsus, each)
        simulation = api.simulation
        self._begin_s, self._end_s, self._step_s = (
            simulation.getTime(),
            simulation.getEndTime(),
            simulation.getDeltaT(),
        )
        self._stream = SumoStream(api, each if shared is None else [shared], types, suffix)

    def batches(self, shift_s: float) -> Iterator[tuple[float, list[CoverageEvent]]]:
        """Yield, for some steps at a time, the last time on FCD's clock plus ``shift_s``, and what is certain."""
        stream, end_s = self._stream, self._end_s
        begin_ms, step_ms = round(self._begin_s * 1000), round(self._step_s * 1000)
        tracker = Tracker(self._rsus)
        steps = kept = 0
        since_s = time.monotonic()
        going_on = True
        try:
            self._trying(stream.request)
            while going_on:
                # After a step SUMO's clock is at the step's end; FCD labels it with its start.
                time_s = (begin_ms + steps * step_ms) / 1000 + shift_s
                warm = steps * step_ms >= self._warmup_ms
                try:
                    size = self._trying(partial(stream.receive, time_s if warm else None))
                except RunError:  # what was read before the failure is played first
                    if kept:
                        yield time_s, tracker.advance(stream.frames(), stream)
                    raise
                # As SUMO itself does: at least one step, then until the end or, without one, until nobody is expected.
                going_on = stream.time_s < end_s if end_s >= 0 else stream.expected > 0
                steps += 1
                kept += warm
                late = kept >= _STEPS or size >= _BYTES or time.monotonic() - since_s >= _WAIT_S
                due = kept and (late or not going_on)
                if due:
                    self._trying(stream.settle)
                if going_on:
                    self._trying(stream.request)
                if due:
                    frames = self._trying(stream.frames)
                    yield time_s, tracker.advance(frames, stream)
                    kept, since_s = 0, time.monotonic()
        except GeneratorExit:  # enough was read: SUMO ends in order
            with suppress(OSError):
                stream.drain()
            raise
        except BaseException:  # Ctrl-C may have swallowed a part of an answer: nothing more to be understood
            self._session.kill()
            raise
        self.duration_s = steps * step_ms / 1000
        yield time_s, tracker.finish(stream)

    def _trying(self, action: Callable[[], Result]) -> Result:
        try:
            return action()
        except Exception as error:  # traci's exceptions share no class but Exception
            raise self._session.failed(error) from error
