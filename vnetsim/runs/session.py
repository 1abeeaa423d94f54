"""The simulation and training of one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from vnetsim.coverage.windows import CoverageEvent, TrafficStream
from vnetsim.errors import UnfinishedError
from vnetsim.learner_facts import CLOUD, privacy_facts
from vnetsim.learning import Cost, Learner
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import Assembly
from vnetsim.runs.checkpoint import Checkpoint
from vnetsim.runs.manifest import Clock, Manifest, radio_record
from vnetsim.runs.round_handler import Training, Untrained
from vnetsim.runs.tables import SCHEDULE, RunTables, backhaul_rows, schedule
from vnetsim.runs.traffic_recording import SAFE_EVERY_S, show_progress
from vnetsim.runs.writer import write_models, write_samples
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import to_parquet

if TYPE_CHECKING:
    from vnetsim.simulation.log import SimulationLog
    from vnetsim.simulation.loop import SimulationResult

OnRound = Callable[[int, Mapping[str, float]], object]
"""Called after every round with the number of rounds so far and new metrics by name; to return False ends the run."""


@dataclass(kw_only=True)
class Session:
    """The simulation of one run, from the untrained model to the last file; ``play`` is called once.

    ``training`` is None for a run that trains, until ``play`` makes it; ``log`` is None until the first round.
    """

    assembly: Assembly
    run: RunDirectory
    traffic: TrafficStream
    learner: Learner
    costs: Mapping[int, Cost]
    manifest: Manifest
    clock: Clock
    progress: ProgressDisplay
    on_round: OnRound | None
    training: Training | Untrained | None
    aggregators: tuple[str, ...]
    device: str
    deadline_s: float
    log: SimulationLog | None = None

    def __post_init__(self) -> None:
        self.tables = RunTables(self.run, self.assembly.experiment)

    @property
    def rounds(self) -> int | None:
        """Number of rounds of the run, summed over all aggregators except the cloud; None if only time ends it."""
        rounds = self.assembly.experiment.rounds
        return None if rounds is None else rounds * sum(name != CLOUD for name in self.aggregators)

    def how_far(self) -> str:
        """Return in words how many rounds have finished, as "after 3 of 10 rounds"; the total only if known."""
        finished = 0 if self.training is None else self.training.finished
        if self.rounds is None or isinstance(self.training, Untrained):
            return f"after {finished} round{'s' * (finished != 1)}"
        return f"after {finished} of {self.rounds} rounds"

    def close(self, status: str) -> None:
        """Save checkpoint and tables so far, write ``status`` to the manifest; called only when a run stops early."""
        if self.log is not None and self.training is not None:
            self._save(self.log, self.training)
        self.manifest.close(status, time_s=self.traffic.time_s, wall_s=self.clock.stages)

    def _save(self, log: SimulationLog, training: Training | Untrained) -> None:
        """Write the checkpoint, then new rows (none while replaying), so that no row is newer than the checkpoint."""
        training.save()
        with self.clock.part("tables"):
            self.tables.append(log, training.metric_rows)
            if not training.replaying:  # otherwise the stopped run wrote them
                self.tables.save()

    def play(self, images: Mapping[int, int]) -> None:
        """Simulate and train to the end, write all files; ``images`` is the number of images by silo, {} if unknown."""
        from vnetsim.simulation.loop import simulate  # noqa: PLC0415 - loaded when needed

        experiment, progress = self.assembly.experiment, self.progress
        if self.training is None:
            progress.stage("evaluating the untrained model")
            self.training = Training(
                self.learner,
                Checkpoint(self.run),
                evaluate_every=experiment.evaluate_every,
                begin_s=self.traffic.info.begin_s,
                clock=self.clock,
                costs=self.costs,
                aggregators=self.aggregators,
                streams=self.assembly.streams.child("global generators"),
                device=self.device,
            )
            self.clock.mark("first evaluation")
        training = self.training
        resumed, seen, safe_s = training.finished, len(training.metric_rows), time.monotonic()
        progress.stage("running")

        def on_round(log: SimulationLog) -> bool:
            """Save if due, call the user's ``on_round``; return False if it did. UnfinishedError at the time limit."""
            nonlocal seen, safe_s
            self.log = log
            now_s = time.monotonic()
            # at least one new round in each call, or a short limit would never end the run; none after the last
            stops = training.finished > resumed and now_s >= self.deadline_s and len(log.rounds) != self.rounds
            if stops or now_s - safe_s >= SAFE_EVERY_S:
                self._save(log, training)
                safe_s = time.monotonic()
            if self.on_round is not None:
                measured = {name: value for _, _, name, value, _ in training.metric_rows[seen:]}
                seen = len(training.metric_rows)
                if self.on_round(len(log.rounds), measured) is False:
                    return False
            if stops:
                raise UnfinishedError("the time limit was reached")
            return True

        result = simulate(
            experiment,
            cast("TrafficStream", _TimedTraffic(self.traffic, self.clock)),
            training,
            self.assembly.streams,
            progress=self._show_progress,
            on_round=on_round,
            plugins=self.assembly.simulation,
            images=images,
        )
        self.log = result.log
        self.clock.mark("simulation")
        progress.stage("writing")
        self._finish(result, training, images)
        if result.ended_by == "caller":
            progress.note(f"on_round ended the run {self.how_far()}.")
        if result.ended_by == "traffic" and not isinstance(training, Untrained):
            progress.note(f"the traffic ended {self.how_far()}.")

    def _show_progress(self, *, time_s: float, rounds: int, windows: int) -> None:  # noqa: ARG002 - simulate's names
        """Show the share done: of the traffic if nobody trains, of the time if only it ends a run, else of rounds."""
        if isinstance(self.training, Untrained):
            show_progress(self.progress, self.traffic)
        elif self.rounds is None:
            passed_s, lasts_s = time_s - self.traffic.info.begin_s, self.assembly.experiment.lasts_s
            self.progress.advance(time_s=time_s, done=passed_s, total=lasts_s)
        else:
            self.progress.advance(time_s=time_s, done=rounds, total=self.rounds)

    def _finish(self, result: SimulationResult, training: Training | Untrained, images: Mapping[int, int]) -> None:
        """Evaluate last models, write tables, models and samples, or (untrained) the schedule; close the manifest."""
        training.save()
        if not isinstance(training, Untrained):
            training.measure_last()
        self.tables.append(result.log, training.metric_rows, last=True)
        self.tables.join()
        self.run.put({"backhaul.parquet": to_parquet("backhaul", backhaul_rows(result.wires))})
        if hostile := self.assembly.hostile_rows(self.run.read("participations")["vehicle_id"]):
            self.run.put({"hostile.parquet": to_parquet("hostile", hostile)})
        if isinstance(training, Untrained):
            rows = schedule(self.run.read("participations"), self.run.read("rounds"), images)
            self.run.put({SCHEDULE: rows.write_csv().encode()})
        else:
            speeds_mps, note = self.tables.entry_speeds_mps, self.progress.note
            write_models(self.run, self.learner, training.closed)
            write_samples(self.run, self.assembly.experiment, self.learner, speeds_mps, result.time_s, note=note)
        self.clock.mark("writing")
        radio, stages = radio_record(result.link_rates, result.sidelink_rates), self.clock.stages
        facts = dict(self.learner.describe().facts)
        if not isinstance(training, Untrained):
            averaged = self.run.read("participations").filter(pl.col("weight") > 0)
            uploads = averaged.select("vehicle_id", "silo", pl.struct("aggregator", "round").hash()).iter_rows()
            facts |= privacy_facts(self.assembly.experiment.learning, uploads)
        self.manifest.close(
            "finished", time_s=result.time_s, wall_s=stages, ended_by=result.ended_by, radio=radio, facts=facts
        )


class _TimedTraffic:
    """A wrapper of traffic that counts the time of reading events as the stage "traffic" of a clock."""

    def __init__(self, traffic: TrafficStream, clock: Clock) -> None:
        self._traffic = traffic
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traffic, name)

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the traffic's events; the time to read each counts as the stage ``traffic``."""
        events = self._traffic.events()
        while True:
            with self._clock.part("traffic"):
                event = next(events, None)
            if event is None:
                return
            yield event
