"""The vehicles that wait for an invitation, and the calls of selection policy and pace that decide about them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Generator, Iterable, Sequence

import numpy as np

from vnetsim.coverage.windows import Window
from vnetsim.errors import RunError
from vnetsim.errors.bounds import SHARE
from vnetsim.learning import ModelKey
from vnetsim.plugins.results import number_of, require_type
from vnetsim.simulation.log import Rows
from vnetsim.simulation.pace import LENGTH, PACES, Pace, PlannedRound, RoundState
from vnetsim.simulation.participation import PredictedRest
from vnetsim.simulation.selection import SELECTIONS, Candidate, SelectionContext, SelectionPolicy
from vnetsim.simulation.selection.state import SelectionState
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.storage.rows import ParticipationRecord

_ROUNDING = 1e-9  # a number of steps this far below a whole number, relatively, counts as that whole number


class Invitations:
    """The vehicles that wait for one aggregator (``len`` of them); calls its selection policy and pace.

    ``planned_share`` is the share of the training that the pace planned for the open round; 1 if it planned nothing.
    """

    def __init__(
        self, *, policy: SelectionPolicy, generator: np.random.Generator, pace: Pace, selection_state: SelectionState
    ) -> None:
        self._policy = policy
        self._generator = generator
        self._memory = policy.begin() if hasattr(policy, "begin") else None
        self._learn = getattr(policy, "after_round", None)
        self._pace = pace
        self._plan, self._takes, self._share = (getattr(pace, part, None) for part in ("plan", "takes", "share"))
        self._selection_state = selection_state
        self.planned_share = 1.0
        self._waiting: list[Candidate] = []  # in order of entry
        self._windows: dict[Candidate, OpenWindow] = {}
        self._candidates: dict[OpenWindow, Candidate] = {}
        self._rested: dict[str, Vehicle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, window: OpenWindow, round_index: int) -> bool:
        """Let an idle vehicle wait in a window, and return whether it does.

        False if the open round, ``round_index``, invited the vehicle or counts its update: it rests until the next.
        """
        if self._selection_state.last_round.get(window.vehicle.id, -1) >= round_index:
            self.rest(window.vehicle)
            return False
        if window not in self._candidates:
            self._candidates[window] = candidate = Candidate(window, self._selection_state)
            self._windows[candidate] = window
            insort(self._waiting, candidate, key=self._entry_index)
        return True

    def rest(self, vehicle: Vehicle) -> None:
        """Remember an idle vehicle that may not be invited in the open round, for ``take_rested``."""
        self._rested[vehicle.id] = vehicle

    def take_rested(self) -> Collection[Vehicle]:
        """Prepare a new round: set ``planned_share`` to 1, return the vehicles given to ``rest``, and forget them."""
        self.planned_share = 1.0
        rested, self._rested = self._rested, {}
        return rested.values()

    def mark_round(self, vehicle: Vehicle, round_index: int) -> None:
        """Record that a vehicle was invited in a round, or that its update counts for it."""
        self._selection_state.last_round[vehicle.id] = round_index

    def forget(self, window: OpenWindow, closed: Window) -> None:
        """Stop waiting in a window that has closed, and count its length for predictions."""
        self._selection_state.add_window(window.vehicle, closed)
        self.withdraw(window)

    def withdraw(self, window: OpenWindow) -> None:
        """Stop waiting in a window; does nothing if no vehicle waits in it."""
        candidate = self._candidates.pop(window, None)
        if candidate is not None:
            del self._waiting[bisect_left(self._waiting, window.index, key=self._entry_index)]
            del self._windows[candidate]

    def plan_length_s(self, state: RoundState) -> float | None:
        """Let the pace plan the open round: set ``planned_share``, and return the time from now to its deadline (s).

        None, and nothing set, if the pace plans nothing or the round has already invited somebody.
        """
        if self._plan is None or state.invited:
            return None
        self._selection_state.advance(state.now_s)
        planned = self._plan(tuple(self._waiting), state)
        if planned is None:
            return None
        require_type(planned, PlannedRound, PACES, self._pace, "plan", state)
        self.planned_share = number_of(planned.share, SHARE, PACES, self._pace, "plan", state)
        return number_of(planned.length_s, LENGTH, PACES, self._pace, "plan", state)

    def select(self, free: int, state: RoundState) -> Generator[OpenWindow]:
        """Yield the windows to invite in the policy's order, lazily, and set the ``chance`` of each.

        The windows that were yielded stop waiting only when the generator ends or is closed. RunError if the policy
        returns something that is no candidate, or one twice.
        """
        self._selection_state.advance(state.now_s, self.planned_share)
        candidates = tuple(self._waiting)
        if self._takes is not None:
            candidates = tuple(candidate for candidate in candidates if self._takes(candidate, state))
        if not candidates:
            return
        context = SelectionContext(
            now_s=state.now_s,
            round=state.round,
            open_s=state.open_s,
            deadline_s=state.close_s,
            in_flight=state.in_flight,
            generator=self._generator,
            memory=self._memory,
            cloud_round=self._selection_state.cloud_round(state.round),
        )
        places, count = min(free, len(candidates)), len(candidates)
        selected: dict[Candidate, OpenWindow] = {}
        try:
            answer = self._policy.select(candidates, places, context)
            for candidate in require_type(answer, Iterable, SELECTIONS, self._policy, "select", state):
                window = self._windows.get(candidate) if isinstance(candidate, Candidate) else None
                if window is None or candidate in selected:
                    what = candidate.vehicle_id if isinstance(candidate, Candidate) else repr(candidate)
                    raise RunError(
                        f"selection policy '{self._policy.name}' returned {what} in round {state.round}, which is no "
                        "candidate or was returned before; it must return some of the candidates, each once."
                    )
                selected[candidate] = window
                chance = context.chances.get(candidate.vehicle_id)
                window.chance = 1.0 if chance is None else chance * count / places
                yield window
        finally:
            for window in selected.values():
                self.withdraw(window)

    def share(self, window: OpenWindow, state: RoundState) -> float:
        """Ask the pace for the share of its training that a vehicle does, in (0, 1]; called when training begins.

        The share is rounded down to whole local steps, at least one. It is 1 if the pace does not decide about it, or
        the training cannot be divided into steps.
        """
        if self._share is None:
            return 1.0
        self._selection_state.advance(state.now_s)
        candidate = Candidate(window, self._selection_state)
        if candidate.steps == 0:
            return 1.0
        share = number_of(self._share(candidate, state), SHARE, PACES, self._pace, "share", state)
        return max(1, math.floor(share * candidate.steps * (1 + _ROUNDING))) / candidate.steps

    def predict(self, window: OpenWindow, now_s: float) -> PredictedRest:
        """Return the predictions of how long a window still lasts after ``now_s``, the present time (s)."""
        self._selection_state.advance(now_s, self.planned_share)
        return Candidate(window, self._selection_state).predict()

    def after_round(
        self, records: Rows[ParticipationRecord], model: ModelKey, figures: Sequence[tuple[int, float | None]]
    ) -> None:
        """Record a round that closed, and call the selection policy's ``after_round`` with this aggregator's records.

        ``records`` are of all aggregators, and the round began with ``model``. ``figures`` has silo and the policy's
        ``figure`` of each accepted update; RunError if the policy needs a figure that is None, thus not reported.
        """
        reported = [(silo, figure) for silo, figure in figures if figure is not None]
        asked = getattr(self._policy, "figure", "")
        if asked and len(reported) < len(figures):
            raise RunError(
                f"selection.name: '{self._policy.name}' chooses vehicles by the '{asked}' of their updates, which the "
                "learner does not report; take another policy or learner."
            )
        new = self._selection_state.add_round(records, model, reported)
        if self._learn is not None:
            self._learn(new, self._memory)

    def _entry_index(self, candidate: Candidate) -> int:
        """Return the number of a waiting candidate's window in order of entry, as a sort key."""
        return self._windows[candidate].index
