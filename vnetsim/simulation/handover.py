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
        """Start the participation of a vehicle that ``owner`` invites."""
        owner.begin(window)

    def leave_disc(self, window: OpenWindow) -> None:
        """Handle that a vehicle left a disc, whether its RSU served it or not; here nothing."""

    def serve(self, owner: Aggregator, vehicle: Vehicle, window: OpenWindow) -> None:
        """Handle that ``window``'s RSU begins to serve a vehicle that takes part for ``owner``.

        With ``drop`` the participation ends. Otherwise it goes on there: for ``owner`` with ``forward`` or if the RSU's
        aggregator cannot take it, else for that aggregator. An update that is on the backhaul is not affected.
        """
        participation, now_s = owner.in_flight.of(vehicle), self.world.env.now
        if participation.stage == "backhaul":
            return
        if self._settings.policy == "drop":
            if participation.coverage is not None and participation.needs_coverage:
                before = participation.coverage.window.rsu.id
                step = HandoverStep(now_s, before, window.rsu.id, participation.stage, None, 0.0, "drop")
                participation.handovers.append(step)
            owner.cut_short(participation, now_s)
            return
        if (gap := self._gaps.pop(participation, None)) is not None:
            gap.stop()
        policy: str = self._settings.policy
        after = self.by_rsu[window.rsu.id]
        if after is owner or not after.takes(vehicle) or (policy == "mix" and after.held):
            policy = "forward"
        coverage = self.world.coverage(window, now_s + self._settings.interruption_s)
        model = after.model if policy == "mix" else None
        owner.move(participation, coverage, keep=self._settings.transfer == "resume", model=model)
        last = next(segment for segment in reversed(participation.segments) if segment.rsu_id)
        if last.rsu_id != window.rsu.id:
            end_s = last.begin_s + last.seconds
            step = HandoverStep(
                end_s if gap else now_s, last.rsu_id, window.rsu.id, last.stage, last.moved_bytes,
                now_s - end_s if gap else 0.0, policy,
            )  # fmt: skip
            participation.handovers.append(step)
        if policy != "forward":
            owner.release(participation)
            self._set_effects(participation, after, change=policy == "carry-delta")
            after.adopt(participation)

    def _set_effects(self, participation: Participation, after: Aggregator, *, change: bool) -> None:
        """Set its ``handover``: the version of ``after`` that staleness counts from, and if only the change counts."""
        own, counted_from = participation.base.aggregator == after.name, None
        if participation.arriving is not None:
            counted_from = participation.arriving.version
        elif not own:
            counted_from = after.round - after.recorder.count_closed_since(after.name, participation.start_s)
        carried: Literal["model", "change"] = "change" if change and not own else "model"
        participation.handover = replace(participation.handover, counted_from=counted_from, carried=carried)

    def lose_coverage(self, owner: Aggregator, vehicle: Vehicle) -> None:
        """Handle that a vehicle that takes part for ``owner`` has lost coverage: no RSU serves it.

        The participation goes on outside for at most ``handover.longest_gap_s``, and then ends; with 0 it ends now. An
        update that is on the backhaul is not affected.
        """
        participation = owner.in_flight.of(vehicle)
        if participation.stage == "backhaul":
            return
        if self._settings.longest_gap_s == 0:
            owner.cut_short(participation, self.world.env.now)
            return
        owner.move(participation, None, keep=self._settings.transfer == "resume")
        self._gaps[participation] = Task(self._wait_outside(participation))

    def _wait_outside(self, participation: Participation) -> Activity:
        """End a participation when the longest gap has passed; stopped if an RSU serves the vehicle before."""
        yield self.world.env.timeout(self._settings.longest_gap_s)
        del self._gaps[participation]
        if participation.stage != "over":
            participation.owner.cut_short(participation, self.world.env.now)
