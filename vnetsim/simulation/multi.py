"""The handover policy ``multi`` (FedMes): a vehicle takes part at all RSUs whose discs it is in."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from vnetsim.learning import HandoverEffects, ModelKey
from vnetsim.simulation.aggregator import Aggregator
from vnetsim.simulation.handover import Handover
from vnetsim.simulation.participation import Participation, Work
from vnetsim.simulation.tasks import Activity, Signal, until
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.storage.rows import Stage


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class JointParticipation(Participation):
    """One of a vehicle's participations for several aggregators, which share one training.

    When each has downloaded its model or has ended, the first that is left trains from the mean of the models while the
    others wait; then all upload.
    """

    waiting_needs_energy: ClassVar[bool] = False  # another one's row has the energy of the time that it waits for

    together: list[JointParticipation]  # those that share ``work``, this one included, in order of invitation
    arrived: bool = field(default=False, init=False)  # whether its model has been downloaded
    trained: bool = field(default=False, init=False)  # whether it has done the training
    # fires when this one is to train, or when another one has trained
    turn: Signal = field(default_factory=Signal, init=False)

    def __post_init__(self) -> None:
        self.together.append(self)
        super(JointParticipation, self).__post_init__()  # a class with slots has no other ``super``

    @property
    def speed_mps(self) -> float:
        """The vehicle's speed at entry at the RSU that invited it first (m/s)."""
        return self.together[0].window.speed_mps

    def base_models(self) -> tuple[ModelKey, ...]:
        """Return the models that all in ``together`` download; the training starts from their mean."""
        return tuple(one.base for one in self.together)

    def training_base(self) -> tuple[ModelKey, HandoverEffects]:
        """Return the first model of ``together`` that has arrived, and effects whose ``bases`` has all, if several."""
        bases = tuple(one.base for one in self.together if one.arrived)
        counted_from = None if bases[0] == self.base else self.base.version
        return bases[0], HandoverEffects(counted_from=counted_from, bases=bases if len(bases) > 1 else ())

    def cut(self) -> Stage:
        """End the participation, so another in ``together`` may train; return its stage, ``training`` if it waited."""
        doing = super(JointParticipation, self).cut()
        self._let_first_train()
        return "training" if doing == "waiting" else doing

    def _train(self) -> Activity:
        """Wait until all in ``together`` have their models; then train for all, or wait until another one has."""
        self.arrived = True
        self._begin_stage("waiting")
        self._let_first_train()
        yield from until(self.turn)
        self._end_stage()
        if not any(one.trained for one in self.together):
            yield from super(JointParticipation, self)._train()
            self.trained = True

    def _let_first_train(self) -> None:
        """Let the first of those in ``together`` that have not ended train, once all of them have their models."""
        left = [one for one in self.together if one.stage != "over"]
        if left and all(one.arrived and one.stage == "waiting" for one in left):
            left[0].turn()

    def _on_upload_begin(self) -> None:
        """Let the others in ``together``, which waited for the training, begin their uploads."""
        for one in self.together:
            if one.stage == "waiting":
                one.turn()


class MultiHandover(Handover):
    """Starts a participation in every disc at the invitation; each ends where its disc is left."""

    def invite(self, owner: Aggregator, window: OpenWindow) -> None:
        """Start a participation for ``owner``, and one in each other disc of the vehicle where it is accepted now."""
        create = partial(JointParticipation, work=Work(), together=[])
        owner.start_participation(window, create)
        for other in window.vehicle.windows:
            aggregator = self.by_rsu[other.rsu.id]
            if other is not window and aggregator.accepts(window.vehicle) and not aggregator.held:
                other.chance = window.chance
                aggregator.start_participation(other, create)

    def leave_disc(self, window: OpenWindow) -> None:
        """End the participation in the disc that a vehicle leaves, if it has one there."""
        owner, vehicle = self.by_rsu[window.rsu.id], window.vehicle
        if owner.name in vehicle.owner_names:
            owner.end_uncovered(owner.in_flight.participation_of(vehicle), self.world.env.now)

    def serve(self, owner: Aggregator, vehicle: Vehicle, window: OpenWindow) -> None:
        """Do nothing: with ``multi``, participations do not depend on which RSU serves the vehicle."""

    def lose_coverage(self, owner: Aggregator, vehicle: Vehicle) -> None:
        """Do nothing: with ``multi``, ``leave_disc`` ends participations."""
