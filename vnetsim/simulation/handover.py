"""Handover: what happens to a participation when another RSU begins to serve its vehicle, or none does.

``docs/explanation/handover.md`` defines the policies, with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from vnetsim.simulation.aggregator import Aggregator
from vnetsim.simulation.participation import HandoverStep, Participation
from vnetsim.simulation.tasks import Activity, Task
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.simulation.world import World


@dataclass(kw_only=True)
class Handover:
    """Applies ``handover.policy``, except ``multi``; ``by_rsu`` has the aggregator of each RSU, by the RSU's id."""

    world: World
    by_rsu: Mapping[str, Aggregator]

    def __post_init__(self) -> None:
        self._settings = self.world.experiment.handover
        self._gaps: dict[Participation, Task] = {}

    def invite(self, owner: Aggregator, window: OpenWindow) -> None:
        """Start the participation of a window's vehicle, which ``owner`` invites."""
        owner.start_participation(window)

    def leave_disc(self, window: OpenWindow) -> None:
        """Called when a vehicle leaves a disc, whether the disc's RSU served the vehicle or not; here nothing."""

    def serve(self, owner: Aggregator, vehicle: Vehicle, window: OpenWindow) -> None:
        """Apply the policy as ``window``'s RSU begins to serve a vehicle that takes part for ``owner``.

        With ``drop`` the participation ends. With ``forward``, or if the RSU's aggregator cannot take it, it goes on
        there for ``owner``; otherwise for that aggregator. An update that is on the backhaul is not affected.
        """
        participation, now_s = owner.in_flight.participation_of(vehicle), self.world.env.now
        if participation.stage == "backhaul":
            return
        if self._settings.policy == "drop":
            if participation.coverage is not None and participation.needs_coverage:
                before = participation.coverage.window.rsu.id
                step = HandoverStep(now_s, before, window.rsu.id, participation.stage, None, 0.0, "drop")
                participation.handovers.append(step)
            owner.end_uncovered(participation, now_s)
            return
        if (gap := self._gaps.pop(participation, None)) is not None:
            gap.stop()
        policy: str = self._settings.policy
        after = self.by_rsu[window.rsu.id]
        if after is owner or not after.accepts(vehicle) or (policy == "mix" and after.held):
            policy = "forward"
        coverage = self.world.coverage(window, now_s + self._settings.interruption_s)
        owner.move(participation, coverage, after.model if policy == "mix" else None)
        last = next(segment for segment in reversed(participation.segments) if segment.rsu_id)
        if last.rsu_id != window.rsu.id:
            end_s = last.begin_s + last.seconds
            left_s, gap_s = (end_s, now_s - end_s) if gap else (now_s, 0.0)
            moved = last.stage, last.moved_bytes, gap_s, policy
            participation.handovers.append(HandoverStep(left_s, last.rsu_id, window.rsu.id, *moved))
        if policy != "forward":
            owner.release(participation)
            self._set_effects(participation, after, policy)
            after.adopt(participation)

    def _set_effects(self, participation: Participation, after: Aggregator, policy: str) -> None:
        """Set ``participation.handover``: from which version of ``after``'s model staleness counts, and ``carried``."""
        own, counted_from = participation.base.aggregator == after.name, None
        if participation.arriving is not None:
            counted_from = participation.arriving.version
        elif not own:
            counted_from = after.round - after.recorder.count_closed_since(after.name, participation.start_s)
        carried: Literal["model", "change"] = "change" if policy == "carry-delta" and not own else "model"
        participation.handover = replace(participation.handover, counted_from=counted_from, carried=carried)

    def lose_coverage(self, owner: Aggregator, vehicle: Vehicle) -> None:
        """Let a vehicle's participation for ``owner`` go on without coverage, for at most ``handover.longest_gap_s``.

        With a gap of 0 it ends now. An update that is on the backhaul is not affected.
        """
        participation = owner.in_flight.participation_of(vehicle)
        if participation.stage == "backhaul":
            return
        if self._settings.longest_gap_s == 0:
            owner.end_uncovered(participation, self.world.env.now)
            return
        owner.move(participation, None)
        self._gaps[participation] = Task(self._wait_outside(participation))

    def _wait_outside(self, participation: Participation) -> Activity:
        """End a participation once the longest gap has passed; ``serve`` stops this task before."""
        yield self.world.env.timeout(self._settings.longest_gap_s)
        del self._gaps[participation]
        if participation.stage != "over":
            participation.owner.end_uncovered(participation, self.world.env.now)
