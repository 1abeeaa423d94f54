"""The participations of one aggregator that are under way."""

from __future__ import annotations

from collections.abc import Iterator

from vnetsim.learning import ModelKey
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.stages import Coverage
from vnetsim.simulation.vehicle import Vehicle


class InFlight:
    """The participations of an aggregator that are under way, one for each vehicle; ``len`` counts those in coverage.

    Iteration yields all, in order of beginning or takeover; they may be removed meanwhile.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._by_vehicle: dict[Vehicle, Participation] = {}
        self._outside = 0

    def __len__(self) -> int:
        return len(self._by_vehicle) - self._outside

    def __iter__(self) -> Iterator[Participation]:
        return iter(tuple(self._by_vehicle.values()))

    def of(self, vehicle: Vehicle) -> Participation:
        """Return a vehicle's participation; KeyError if it has none."""
        return self._by_vehicle[vehicle]

    def add(self, participation: Participation) -> None:
        """Add a participation inside coverage, and enter the aggregator in its vehicle's ``served_by``."""
        vehicle = participation.window.vehicle
        self._by_vehicle[vehicle] = participation
        vehicle.served_by.append(self._name)

    def remove(self, participation: Participation) -> None:
        """Remove a participation that has ended or that another aggregator takes over."""
        vehicle = participation.window.vehicle
        del self._by_vehicle[vehicle]
        self._outside -= participation.coverage is None
        vehicle.served_by.remove(self._name)

    def move(
        self, participation: Participation, coverage: Coverage | None, *, keep: bool, model: ModelKey | None
    ) -> None:
        """Let a participation go on at another RSU, or outside coverage with None; see ``Participation.move``."""
        self._outside += (coverage is None) - (participation.coverage is None)
        participation.move(coverage, keep=keep, model=model)

    def models(self) -> Iterator[ModelKey]:
        """Yield the models that are needed to train the participations; a model may come more than once."""
        for participation in self._by_vehicle.values():
            yield from (*participation.bases(), *(model for _, model in participation.handover.mixed))
            if participation.arriving is not None:
                yield participation.arriving
