"""One pass through a scenario in SUMO: a thread reads its steps while coverage events are made from earlier ones.

vnetsim only watches the traffic. So the next step is requested before the last one is answered, and SUMO never waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, Queue

from vnetsim.coverage.frames import Frames
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.tracker import Tracker
from vnetsim.coverage.windows import CoverageEvent
from vnetsim.errors import RunError
from vnetsim.traffic.sumo.net import add_rsu_pois, shared_place
from vnetsim.traffic.sumo.session import EXIT_S, SumoSession
from vnetsim.traffic.sumo.stream import Answer, SumoFrames, SumoSteps
from vnetsim.traffic.vehicle_types import TypeFilter

_WAKE_S = 2.0
"""Time (s) between two looks for signals while waiting for SUMO."""
_STEPS, _BYTES, _WAIT_S = 64, 1 << 23, 5.0
"""Limits on the steps that are processed together: their number, their bytes, and their wall time."""

_AHEAD = 2
"""Number of steps requested at a time. With three, a vehicle could arrive in a disc after two steps, with a window in
between, before SUMO is asked for its type."""
_MANY = 100
"""More vehicles than arrive in one step: while SUMO expects more, there is certainly another step."""


class Pass:
    """One pass through the scenario; ``duration_s`` is its length (s), set when it is over."""

    def __init__(
        self,
        session: SumoSession,
        rsus: tuple[Rsu, ...],
        radii_m: list[float],
        suffix: str,
        *,
        warmup_s: float,
        types: TypeFilter,
        glimpsed: Counter[str],
    ) -> None:
        self._session = session
        self._warmup_ms = round(warmup_s * 1000)
        # SUMO reports teleports; without internal lanes a vehicle may drive far in a step
        self._tracker = Tracker(rsus, infers_jumps=False, glimpsed=glimpsed)
        self.duration_s = 0.0
        api = session.api
        each = list(zip(add_rsu_pois(api, rsus), radii_m, strict=True))
        shared = shared_place(api, rsus, each)
        simulation = api.simulation
        self._begin_ms, self._step_ms = round(simulation.getTime() * 1000), round(simulation.getDeltaT() * 1000)
        self._end_s: float = simulation.getEndTime()
        self._steps = SumoSteps(api, each if shared is None else [shared])
        self._frames = SumoFrames(self._steps, types, suffix)
        self._stopped = False
        self._reader: threading.Thread | None = None
        # lists of answers, at last an error that ended the reading, or None
        self._parts: Queue[list[Answer] | Exception | None] = Queue(1)

    def batches(self, shift_s: float) -> Iterator[tuple[float, list[CoverageEvent]]]:
        """Yield, for some steps at a time, the time of the last step plus ``shift_s`` (s) and the new events.

        The time is the start of the step, as in FCD. The last yield has the events at the end of the pass; its time is
        minus infinity if there was no step after the warm-up. Starts the reading thread; can be called once. RunError
        if SUMO failed; the events of all steps received before are yielded first.
        """
        tracker, time_s = self._tracker, -math.inf
        self._reader = threading.Thread(target=self._read_steps, args=(shift_s,), daemon=True)
        self._reader.start()
        try:
            while (part := self._next_part()) is not None:
                frames = self._make_frames(part)
                time_s = float(frames.time_s[-1])
                yield time_s, tracker.advance(frames, self._frames)
        except GeneratorExit:  # the caller has read enough
            raise
        except BaseException:  # Ctrl-C does not wait for SUMO
            self._session.kill()
            raise
        finally:
            self.stop()
        yield time_s, tracker.finish(self._frames)

    def stop(self) -> None:
        """End the reading thread; kill SUMO if a step takes longer than 10 s. Reading on then raises RunError."""
        self._stopped = True
        with suppress(Empty):
            self._parts.get_nowait()  # the reader may wait for the free place
        if self._reader is not None:
            self._reader.join(EXIT_S)
            if self._reader.is_alive():  # SUMO does not answer during a long step
                self._session.kill()
                self._reader.join()
        with suppress(Empty):
            self._parts.get_nowait()  # put by the reader meanwhile, or by an earlier call
        self._parts.put(RunError("this traffic was closed; open it again."))  # raised if somebody reads on

    def _next_part(self) -> list[Answer] | Exception | None:
        """Wait for the next part: answers, the error that ended reading, or None at the end; let signals interrupt."""
        while True:
            with suppress(Empty):  # wake up regularly: a signal may wake only the other thread
                return self._parts.get(timeout=_WAKE_S)

    def _make_frames(self, part: list[Answer] | Exception) -> Frames:
        """Return the frames of answers; RunError if they are faulty, or ``part`` is the error that ended reading."""
        if isinstance(part, RunError):
            raise part
        if isinstance(part, Exception):
            raise self._session.make_run_error(part) from part
        try:
            return self._frames.make_frames(part)
        except Exception as error:
            raise self._session.make_run_error(error) from error

    def _read_steps(self, shift_s: float) -> None:
        """Thread: put SUMO's answers into ``_parts``, then None or the error that ended reading; set ``duration_s``."""
        steps, part = self._steps, list[Answer]()
        kept = size = requested = answered = 0
        since_s = time.monotonic()
        ended: Exception | None = None
        try:
            while True:
                while steps.awaited_steps < _AHEAD and self._has_next_step(requested):
                    steps.request()
                    requested += 1
                if not steps.awaited_steps:
                    break
                # after a step SUMO's clock is at the end of the step; FCD uses the start
                time_s = (self._begin_ms + answered * self._step_ms) / 1000 + shift_s
                warm = answered * self._step_ms >= self._warmup_ms
                part.append(steps.receive(time_s if warm else None))
                answered += 1
                kept += warm
                size += len(part[-1].data)
                late = kept >= _STEPS or size >= _BYTES or time.monotonic() - since_s >= _WAIT_S
                if late and kept > _AHEAD:  # the types of the newest vehicles are not yet known
                    self._put_part(part[:-_AHEAD])
                    part = part[-_AHEAD:]
                    kept, size, since_s = _AHEAD, sum(len(answer.data) for answer in part), time.monotonic()
            steps.fetch_last_kinds()
        except Exception as error:  # noqa: BLE001 - raised again by the thread that processes the answers
            ended = error
        self.duration_s = answered * self._step_ms / 1000
        if kept:
            self._put_part(part)
        self._put_part(ended)

    def _put_part(self, part: list[Answer] | Exception | None) -> None:
        """Wait until ``_parts`` is empty and put ``part`` into it; does nothing after ``stop``."""
        if not self._stopped:  # afterwards nobody takes parts
            self._parts.put(part)

    def _has_next_step(self, requested: int) -> bool:
        """Return whether a step follows ``requested`` ones: until SUMO's end time, its last vehicle, or ``stop``."""
        if self._stopped:
            return False
        if self._end_s >= 0:
            return not requested or (self._begin_ms + requested * self._step_ms) / 1000 < self._end_s
        return self._steps.expected > (_MANY if self._steps.awaited_steps else 0)
