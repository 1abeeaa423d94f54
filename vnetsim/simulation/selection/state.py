"""What an aggregator knows from earlier rounds, for its selection policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from vnetsim.coverage.windows import Window
from vnetsim.learning import ModelKey
from vnetsim.simulation.log import Rows
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.simulation.world import World
from vnetsim.storage.rows import ParticipationRecord
from vnetsim.storage.tables import CUT_EXIT


@dataclass(slots=True, kw_only=True, eq=False)
class SelectionState:
    """What all candidates of an aggregator share."""

    world: World
    whole_paths: bool  # whether the traffic source gives each path whole at the entry
    now_s: float = field(init=False)  # time at which candidates are looked at (s); ``advance`` sets it
    work_share: float = field(init=False)  # share of the training that the pace has planned
    losses: dict[int, tuple[float, int]] = field(default_factory=dict)  # by silo, last mean training loss and round
    # by silo, the policy's ``figure`` of each update so far and its round
    figures: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    commits: Counter[str] = field(default_factory=Counter)  # number of accepted updates so far by vehicle
    last_round: dict[str, int] = field(default_factory=dict)  # by vehicle; ``Invitations.mark_round`` sets it
    # by RSU and approach, number and total length (s) of the windows that ended so far
    dwells: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    _records_seen: int = 0

    def advance(self, now_s: float, work_share: float = 1.0) -> None:
        """Set the present time (s), and the planned share of the training, which all candidates use from now on."""
        self.now_s, self.work_share = now_s, work_share

    def add_window(self, vehicle: Vehicle, window: Window) -> None:
        """Count the length of a window that ended; ignore it if a gap or the end of the traffic cut it off."""
        if window.exit_cause not in CUT_EXIT:
            key = window.rsu_id, vehicle.approach
            count, total_s = self.dwells.get(key, (0, 0.0))
            self.dwells[key] = count + 1, total_s + window.exit_s - window.enter_s

    def mean_dwell_s(self, window: OpenWindow) -> float | None:
        """Return the mean length (s) of ended windows at the same RSU from the same approach; None before the first."""
        count, total_s = self.dwells.get((window.rsu.id, window.vehicle.approach), (0, 0.0))
        return total_s / count if count else None

    def cloud_round(self, round_index: int) -> int:
        """Return the last round, up to ``round_index``, that began with a model of the cloud; 0 without a cloud."""
        topology = self.world.experiment.topology
        return round_index - round_index % topology.edge_rounds if topology.kind == "hierarchical" else 0

    def add_round(
        self, records: Rows[ParticipationRecord], model: ModelKey, figures: Sequence[tuple[int, float]] = ()
    ) -> Sequence[ParticipationRecord]:
        """Count the updates of a round that closed; return this aggregator's records since the last call.

        ``records`` are of all aggregators, ``model`` is the model with which the round began, and ``figures`` has silo
        and the policy's ``figure`` of each update that was not rejected.
        """
        for silo, figure in figures:
            self.figures.setdefault(silo, []).append((figure, model.version))
        new = [record for record in records.since(self._records_seen) if record.aggregator == model.aggregator]
        self._records_seen = records.total
        for record in new:
            if record.outcome == "committed":
                self.commits[record.vehicle_id] += 1
                if record.loss is not None:
                    self.losses[record.silo] = record.loss, model.version
        return new
