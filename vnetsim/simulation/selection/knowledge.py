"""What the RSUs have learnt from earlier rounds, for candidates and policies."""

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
class Knowledge:
    """What all candidates of an aggregator share; it moves on with the time.

    Args:
        world: camera, costs, links, computers and images of candidates.
        whole_paths: whether a path is known to its end from the beginning.
        now_s: simulated time (s).
        work_share: share of the training that the pace has planned.
        losses: last reported mean training loss by silo, and the round it is of.
        figures: what the policy asked of every update so far, by silo, and the rounds they are of.
        commits: uploads so far by vehicle.
        last_round: the latest round that invited a vehicle or took its update, by vehicle; the aggregator keeps it.
        dwells: number and length (s) of the windows that ended so far, by RSU and approach.
    """

    world: World
    whole_paths: bool
    now_s: float = field(init=False)
    work_share: float = field(init=False)
    losses: dict[int, tuple[float, int]] = field(default_factory=dict)
    figures: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    commits: Counter[str] = field(default_factory=Counter)
    last_round: dict[str, int] = field(default_factory=dict)
    dwells: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    _records_seen: int = 0

    def at(self, now_s: float, work_share: float = 1.0) -> None:
        """Move on to a time (s), and to a share of the training that is planned."""
        self.now_s, self.work_share = now_s, work_share

    def left(self, vehicle: Vehicle, window: Window) -> None:
        """Take note of a window that ended; one that was cut off tells nothing."""
        if window.exit_cause not in CUT_EXIT:
            key = window.rsu_id, vehicle.approach
            count, total_s = self.dwells.get(key, (0, 0.0))
            self.dwells[key] = count + 1, total_s + window.exit_s - window.enter_s

    def mean_dwell_s(self, window: OpenWindow) -> float | None:
        """Return the mean length of the windows from the same approach (s), None where there was none yet."""
        count, total_s = self.dwells.get((window.rsu.id, window.vehicle.approach), (0, 0.0))
        return total_s / count if count else None

    def cloud_round(self, round_index: int) -> int:
        """Return the round that began with the cloud's last model; 0 without a cloud."""
        topology = self.world.experiment.topology
        return round_index - round_index % topology.edge_rounds if topology.kind == "hierarchical" else 0

    def learn(
        self, records: Rows[ParticipationRecord], model: ModelKey, figures: Sequence[tuple[int, float]] = ()
    ) -> Sequence[ParticipationRecord]:
        """Take note of what is recorded at the close of a model's round, and return what is new of it.

        ``figures`` has the silo, and what the policy asked, of each update that counted.
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
