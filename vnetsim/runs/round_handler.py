"""Trains, aggregates and evaluates with the learner when the simulation closes a round, and records the results.

In a resumed run, rounds that were finished before return the recorded results without training; from the first
unfinished round on, the learner continues from its saved state. ``Untrained`` simulates the rounds without training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vnetsim.errors import InputError, one_line
from vnetsim.learner_facts import AGGREGATOR, CLOUD
from vnetsim.learning import Cost, Learner, Participant
from vnetsim.learning.faults import aggregate_checked, cost_of, finite_metrics, model_shapes, train_checked
from vnetsim.learning.global_generators import seeded
from vnetsim.random_streams import Streams
from vnetsim.runs.checkpoint import Checkpoint, FinishedRound, TrainingHistory, copy_state, digest
from vnetsim.runs.manifest import SPREAD, Clock
from vnetsim.runs.tables import MetricRow
from vnetsim.simulation.log import Mixing, RoundResult, RoundSummary

if TYPE_CHECKING:
    from vnetsim.learning import KeepsModels


class _Newest(NamedTuple):
    """The number of rounds behind an aggregator's newest model, when it was made, and whether it is fully evaluated."""

    round: int
    time_s: float
    metrics: Mapping[str, float]
    final: bool


class Costs:
    """Payload and work of a participation by silo: those in ``costs``, for other silos the learner's own."""

    def __init__(self, learner: Learner, costs: Mapping[int, Cost]) -> None:
        self._learner = learner
        self._costs = dict(costs)

    def cost(self, silo: int) -> Cost:
        """Return the cost of a participation with the data of ``silo``; RunError if the learner's is invalid."""
        if silo not in self._costs:
            self._costs[silo] = cost_of(self._learner, silo)
        return self._costs[silo]


class Untrained(Costs):
    """A ``RoundHandler`` that trains and measures nothing; ``finished`` counts the rounds closed."""

    metric_rows: Sequence[MetricRow] = ()
    finished = 0
    replaying = False

    def close_round(self, _: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Add 1 to ``finished``, and return a result with None as weight and loss of each participant."""
        self.finished += 1
        return RoundResult(weights=[None] * len(participants), losses=[None] * len(participants))

    def mix(self, _: Mixing) -> None:
        """Do nothing: without training there are no models to average."""

    def save(self) -> None:
        """Do nothing: without training there is no checkpoint."""


class Training(Costs):
    """A ``RoundHandler`` around a learner, whose state is loaded from ``checkpoint`` if that exists.

    Otherwise the untrained model is evaluated and saved at once. ``begin_s`` is the simulated time (s) of its metrics;
    ``evaluate_every`` counts rounds; ``aggregators`` are the names of all that have a model; ``streams`` seed the
    global random generators of the CPU and ``device`` before each training and evaluation. ``metric_rows`` are the rows
    of the table ``metrics`` so far, ``closed`` the rounds so far by aggregator.

    InputError if the checkpoint is unreadable or of another learner; RunError if the learner or the disk failed.
    """

    def __init__(
        self,
        learner: Learner,
        checkpoint: Checkpoint,
        *,
        evaluate_every: int,
        begin_s: float,
        costs: Mapping[int, Cost],
        clock: Clock | None = None,
        aggregators: Sequence[str] = (AGGREGATOR,),
        streams: Streams,
        device: str = "cpu",
    ) -> None:
        super().__init__(learner, costs)
        self._streams, self._device = streams, device
        self._checkpoint = checkpoint
        self._evaluate_every = evaluate_every
        self._clock = clock or Clock()
        if checkpoint.exists:
            self._progress, state = checkpoint.load()
            try:
                learner.load_state_dict(state)
            except (KeyError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"{checkpoint.folder}: unreadable checkpoint: it is not of this learner: {one_line(error)}."
                ) from error
        else:
            self._progress = TrainingHistory(initial=self._evaluate(aggregators[0], 0, final=False))
            state = learner.state_dict()
            checkpoint.save(self._progress, state)
        self._unsaved: tuple[TrainingHistory, Mapping[str, Any]] | None = None
        self._shapes = model_shapes(state)
        self.metric_rows: list[MetricRow] = [
            row for name in aggregators for row in _to_rows(0, begin_s, self._progress.initial, name)
        ]
        self._replayed = 0
        self._models = cast("KeepsModels", learner) if len(aggregators) > 1 else None
        self._rsus = [name for name in aggregators if name != CLOUD]
        self._cloud = CLOUD in aggregators
        self.closed = dict.fromkeys(aggregators, 0)
        self._newest: dict[str, _Newest] = {}

    @property
    def finished(self) -> int:
        """Number of finished rounds, of all aggregators except the cloud, also from before the run was resumed."""
        return sum(not one.mixing for one in self._progress.rounds)

    @property
    def replaying(self) -> bool:
        """Whether the next round or average was finished before the run was resumed, so its results are recorded."""
        return self._replayed < len(self._progress.rounds)

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Return the round's results, recorded or by training now; add its metrics to ``metric_rows``.

        InputError if a resumed run has other participants than recorded; RunError if the learner failed.
        """
        who = digest(participants)
        finished = self._next_recorded(who, f"round {summary.round}")
        if finished is None:
            if self._models is not None:
                self._models.keep(summary.needed())
            finished = self._append_round(self._train_round(summary, participants, who))
        self.closed[summary.aggregator] += 1
        self._newest[summary.aggregator] = _Newest(summary.round + 1, summary.close_s, finished.metrics, summary.final)
        self.metric_rows.extend(_to_rows(summary.round + 1, summary.close_s, finished.metrics, summary.aggregator))
        return RoundResult(
            weights=finished.weights,
            losses=finished.losses,
            rejected=finished.rejected,
            exchanges={(sender, receiver): value for sender, receiver, value in finished.exchanges},
            figures=finished.figures,
        )

    def mix(self, mixing: Mixing) -> None:
        """Average models as ``mixing`` says, evaluate if due; or use recorded results. Raises like ``close_round``."""
        who = hashlib.sha256(repr([(into, [*sources.items()]) for into, sources in mixing.means]).encode()).hexdigest()
        finished = self._next_recorded(who, f"average {mixing.round} of {mixing.aggregator}")
        if finished is None:
            assert self._models is not None
            due = mixing.final or (mixing.round + 1) % self._evaluate_every == 0
            metrics = self._measure_spread() if due else {}
            with self._clock.part("training"):
                self._models.keep(mixing.needed)
                for into, sources in mixing.means:
                    self._models.merge(sources, into)
            if due:
                with self._clock.part("evaluation"):
                    metrics |= self._evaluate(mixing.aggregator, mixing.round + 1, final=mixing.final)
            finished = self._append_round(FinishedRound(participants=who, metrics=metrics, mixing=True))
        if mixing.aggregator == CLOUD:
            self.closed[CLOUD] += 1
        self._newest[mixing.aggregator] = _Newest(mixing.round + 1, mixing.time_s, finished.metrics, mixing.final)
        self.metric_rows.extend(_to_rows(mixing.round + 1, mixing.time_s, finished.metrics, mixing.aggregator))

    def measure_last(self) -> None:
        """Evaluate newest models in full (with a cloud only its) unless done; add new metrics to ``metric_rows``."""
        for name, newest in self._newest.items():
            if newest.final or (self._cloud and name != CLOUD):
                continue
            with self._clock.part("evaluation"):
                found = self._evaluate(name, newest.round, final=True)
            metrics = {metric: value for metric, value in found.items() if metric not in newest.metrics}
            self.metric_rows.extend(_to_rows(newest.round, newest.time_s, metrics, name))

    def _next_recorded(self, who: str, what: str) -> FinishedRound | None:
        """Use and return the next recorded round, None after the last; InputError if it has not the digest ``who``."""
        if not self.replaying:
            return None
        finished = self._progress.rounds[self._replayed]
        if finished.participants != who:
            raise InputError(
                f"{what}: the simulated traffic differs from the recorded one; scenario files, package versions or "
                "vnetsim itself changed. Start the run again with `vnetsim run`."
            )
        self._replayed += 1
        return finished

    def save(self) -> None:
        """Write a checkpoint of the newest finished round, unless it is saved already; RunError if the disk is full."""
        if self._unsaved is not None:
            with self._clock.part("checkpoints"):
                self._checkpoint.save(*self._unsaved)
            self._unsaved = None

    def _append_round(self, finished: FinishedRound) -> FinishedRound:
        """Append a new round to the history, keep a copy of the learner's state to ``save``, and return the round."""
        progress = TrainingHistory(initial=self._progress.initial, rounds=(*self._progress.rounds, finished))
        with self._clock.part("checkpoints"):
            # one assignment, because Ctrl-C may come anywhere
            self._unsaved = progress, copy_state(self._learner.state_dict())
        self._progress = progress
        self._replayed += 1
        return finished

    def _train_round(self, summary: RoundSummary, participants: Sequence[Participant], who: str) -> FinishedRound:
        """Train and aggregate, evaluate if due, and return the results; ``who`` is the digest of ``participants``."""
        with self._clock.part("training"), self._seed_generators("training", summary.aggregator, summary.round):
            updates = train_checked(self._learner, participants, self._shapes) if participants else []
            aggregation = aggregate_checked(
                self._learner,
                [update for update in updates if update.finite],
                f"in aggregate in round {summary.round}",
                summary.aggregator,
            )
        given, figures = iter(aggregation.weights), tuple(update.figure for update in updates)
        metrics = {name: float(value) for name, value in aggregation.metrics.items()}
        due = summary.final or (summary.round + 1) % self._evaluate_every == 0
        if due and (self._cloud or not summary.mixed):  # averages with neighbours are evaluated in mix
            with self._clock.part("evaluation"):
                final = summary.final and not self._cloud
                metrics |= self._evaluate(summary.aggregator, summary.round + 1, final=final)
            metrics |= {} if self._cloud else self._measure_spread()
        return FinishedRound(
            participants=who,
            rejected=tuple(position for position, update in enumerate(updates) if not update.finite),
            weights=tuple(float(next(given)) if update.finite else None for update in updates),
            losses=tuple(float(update.loss) for update in updates),
            figures=() if all(figure is None for figure in figures) else figures,
            metrics=metrics,
            exchanges=tuple((*pair, float(value)) for pair, value in aggregation.exchanges.items()),
        )

    def _measure_spread(self) -> dict[str, float]:
        """Return the metric ``SPREAD`` of the RSUs' models, by its name; {} if the run has a single model."""
        if self._models is None:
            return {}
        with self._clock.part("evaluation"):
            return {SPREAD.name: self._models.spread(self._rsus)}

    def _evaluate(self, aggregator: str, round_: int, *, final: bool) -> Mapping[str, float]:
        """Return metrics of an aggregator's newest model; ``round_``, its number of rounds, seeds random generators."""
        with self._seed_generators("evaluation", aggregator, round_):
            of = {} if aggregator == AGGREGATOR else {"aggregator": aggregator}
            return finite_metrics(self._learner, self._learner.evaluate(final=final, **of), "in evaluate")

    def _seed_generators(self, *names: object) -> AbstractContextManager[None]:
        """Return a context that seeds the global random generators from the run's seed and ``names``, then restores."""
        return seeded(self._streams.integer(*names), self._device)


def _to_rows(round_: int, time_s: float, metrics: Mapping[str, float], aggregator: str) -> list[MetricRow]:
    """Return metrics as rows of the table ``metrics``; the spread of models has an empty aggregator."""
    return [(round_, time_s, name, value, "" if name == SPREAD.name else aggregator) for name, value in metrics.items()]
