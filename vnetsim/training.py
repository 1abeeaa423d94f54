"""Between simulation and learner: trains and aggregates at the close of a round, evaluates, and checkpoints.

A resumed run gets here twice: for rounds that were finished before, the recorded results are returned and nothing is
trained; from the first unfinished round on, the learner continues from its saved state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from vnetsim.checkpoint import Checkpoint, FinishedRound, Progress, digest
from vnetsim.errors import InputError, RunError, VnetsimError
from vnetsim.learning import Cost, Learner, Participant
from vnetsim.simulation_log import RoundResult, RoundSummary

MetricRow = tuple[int, float, str, float]


class Training:
    """A ``RoundHandler`` around a learner.

    Args:
        learner: freshly created; its state is replaced when ``checkpoint`` holds one.
        checkpoint: read once, then written after every round.
        evaluate_every: rounds between evaluations.
        begin_s: simulated time of the untrained model's evaluation (s).

    Attributes:
        metric_rows: rows of the table ``metrics`` so far.
        finished: number of rounds whose results are known.
    """

    def __init__(self, learner: Learner, checkpoint: Checkpoint, *, evaluate_every: int, begin_s: float) -> None:
        self._learner = learner
        self._checkpoint = checkpoint
        self._evaluate_every = evaluate_every
        self._costs: dict[int, Cost] = {}
        if checkpoint.exists:
            self._progress, state = checkpoint.load()
            try:
                learner.load_state_dict(state)
            except (KeyError, ValueError, RuntimeError) as error:
                message = " ".join(str(error).split())
                raise InputError(
                    f"{checkpoint.folder}: unreadable checkpoint: it is not of this learner: {message}."
                ) from error
        else:
            with _blaming(learner, "before the first round"):
                self._progress = Progress(initial=dict(learner.evaluate(final=False)))
            checkpoint.save(self._progress, learner.state_dict())
        self.metric_rows: list[MetricRow] = _rows(0, begin_s, self._progress.initial)
        self._replayed = 0

    @property
    def finished(self) -> int:
        """Rounds whose results are on disk."""
        return len(self._progress.rounds)

    def cost(self, silo: int) -> Cost:
        """Return payload and work of a visit; the learner is asked once per silo."""
        if silo not in self._costs:
            self._costs[silo] = self._learner.cost(silo)
        return self._costs[silo]

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Return the round's results: recorded ones if it was finished before, else by training.

        Raises:
            InputError: the simulation of a resumed run came to other participants than the recorded one.
            RunError: the learner failed, or the disk is full.
        """
        who = digest(participants)
        if self._replayed < self.finished:
            finished = self._progress.rounds[self._replayed]
            if finished.participants != who:
                raise InputError(
                    f"round {summary.round}: the simulated traffic differs from the recorded one; "
                    "scenario files or package versions changed. Start the run again with `vnetsim run`."
                )
        else:
            with _blaming(self._learner, f"in round {summary.round}"):
                finished = self._results(summary, participants, who)
            self._progress = Progress(initial=self._progress.initial, rounds=(*self._progress.rounds, finished))
            self._checkpoint.save(self._progress, self._learner.state_dict())
        self._replayed += 1
        self.metric_rows.extend(_rows(summary.round + 1, summary.close_s, finished.metrics))
        return RoundResult(
            weights=finished.weights,
            losses=finished.losses,
            rejected=finished.rejected,
            exchanges={(sender, receiver): value for sender, receiver, value in finished.exchanges},
        )

    def _results(self, summary: RoundSummary, participants: Sequence[Participant], who: str) -> FinishedRound:
        updates = self._learner.train(participants) if participants else []
        accepted = [update for update in updates if update.finite]
        aggregation = self._learner.aggregate(accepted)
        given = iter(aggregation.weights)
        evaluated = {}
        if summary.final or (summary.round + 1) % self._evaluate_every == 0:
            evaluated = dict(self._learner.evaluate(final=summary.final))
        return FinishedRound(
            participants=who,
            rejected=tuple(position for position, update in enumerate(updates) if not update.finite),
            weights=tuple(float(next(given)) if update.finite else None for update in updates),
            losses=tuple(update.loss for update in updates),
            metrics={**aggregation.metrics, **evaluated},
            exchanges=tuple((*pair, float(value)) for pair, value in aggregation.exchanges.items()),
        )


@contextmanager
def _blaming(learner: Learner, when: str) -> Iterator[None]:
    """Turn whatever a learner raises into one line that names it."""
    try:
        yield
    except VnetsimError:
        raise
    except Exception as error:
        reason = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
        raise RunError(f"learner '{learner.name}' failed {when}: {reason}. Earlier rounds are kept.") from error


def _rows(round_: int, time_s: float, metrics: Mapping[str, float]) -> list[MetricRow]:
    return [(round_, time_s, name, value) for name, value in metrics.items() if math.isfinite(value)]
