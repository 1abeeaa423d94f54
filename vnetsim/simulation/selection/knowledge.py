"""What the RSUs have learnt from earlier rounds, for candidates and policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from vnetsim.coverage.windows import Window
from vnetsim.learning import ModelKey
from vnetsim.simulation.log import ParticipationRecord, Rows
from vnetsim.simulation.selection.candidate import DwellHistory, Known
from vnetsim.simulation.vehicle import Vehicle
from vnetsim.simulation.world import World


class Knowledge:
    """Windows that ended, losses, figures and uploads so far.

    Args:
        world: camera, links and computers of candidates.
        images: images by silo; empty where the task does not tell.
        whole_paths: whether a path is known to its end when it begins.

    Attributes:
        known: all of it, as candidates show it.
        last_round: the latest round that invited a vehicle or took its update, by vehicle; the aggregator keeps it.
    """

    def __init__(self, *, world: World, images: Mapping[int, int], whole_paths: bool) -> None:
        self._history = DwellHistory()
        self._losses: dict[int, tuple[float, int]] = {}
        self._figures: dict[int, list[tuple[float, int]]] = {}
        self._topology = world.experiment.topology
        self._commits: Counter[str] = Counter()
        self.last_round: dict[str, int] = {}
        self._records_seen = 0
        self.known = Known(
            now_s=world.env.now,
            camera=world.experiment.camera,
            history=self._history,
            images=images,
            losses=self._losses,
            figures=self._figures,
            commits=self._commits,
            last_round=self.last_round,
            cost=world.cost,
            link=world.link,
            train_s=world.train_s,
            transfers=lambda rsu_id: world.channels[rsu_id].active,
            whole_paths=whole_paths,
        )

    def at(self, now_s: float, work_share: float = 1.0) -> Known:
        """Return what candidates share, from now on (s) and when a share of their training is planned."""
        self.known.now_s, self.known.work_share = now_s, work_share
        return self.known

    def left(self, vehicle: Vehicle, window: Window) -> None:
        """Take note of a window that ended."""
        self._history.add(vehicle, window)

    def cloud_round(self, round_index: int) -> int:
        """Return the round that began with the cloud's last model; 0 without a cloud."""
        hierarchical = self._topology.kind == "hierarchical"
        return round_index - round_index % self._topology.edge_rounds if hierarchical else 0

    def learn(
        self, records: Rows[ParticipationRecord], model: ModelKey, figures: Sequence[tuple[int, float]] = ()
    ) -> Sequence[ParticipationRecord]:
        """Take note of what is recorded at the close of a round, and return what is new of it.

        Args:
            records: all participations so far, of all aggregators.
            model: with which the round began; its aggregator is the one that learns.
            figures: silo and what the policy asked of each update that counted.
        """
        for silo, figure in figures:
            self._figures.setdefault(silo, []).append((figure, model.version))
        new = [record for record in records.since(self._records_seen) if record.aggregator == model.aggregator]
        self._records_seen = records.total
        for record in new:
            if record.outcome == "committed":
                self._commits[record.vehicle_id] += 1
                if record.loss is not None:
                    self._losses[record.silo] = record.loss, model.version
        return new
