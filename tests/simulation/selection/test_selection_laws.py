"""Laws of every installed selection policy and pace, beside those of ``test_simulation``."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from vnetsim.errors import RunError
from vnetsim.experiment import (
    ComputeSettings,
    Experiment,
    HandoverSettings,
    RoundSettings,
    SiloSettings,
    TrafficSettings,
)
from vnetsim.learning import Cost, Participant
from vnetsim.random_streams import Streams
from vnetsim.scenario.kinds import TrafficRequest
from vnetsim.simulation.log import RoundResult, RoundSummary
from vnetsim.simulation.loop import SimulationResult, simulate
from vnetsim.simulation.pace import PACES
from vnetsim.simulation.plugins import SimulationPlugins, simulation_plugins
from vnetsim.simulation.selection import SELECTIONS, Candidate
from vnetsim.storage.rows import ParticipationRecord
from vnetsim.traffic.gaussian import GaussianSource

OUTSIDE = {"policy": "forward", "longest_gap_s": 1e6, "interruption_s": 0.0}

IMAGES = {silo: 20 + 13 * silo for silo in range(12)}


class Learning:
    """Silos of different sizes, work and loss."""

    def __init__(self, sign: int = 1) -> None:
        self._sign = sign

    def cost(self, silo: int) -> Cost:
        return Cost(download_bytes=500_000, upload_bytes=500_000, work_flop=1e9 * (1 + silo % 4), steps=8)

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        losses = [(2.0 + self._sign * participant.silo % 5) / (1 + summary.round) for participant in participants]
        weights = [1 / max(len(participants), 1)] * len(participants)
        return RoundResult(weights=weights, losses=losses, figures=losses)


def experiment(
    *, selection: str = "random", pace: str = "quorum", handover: dict[str, Any] | None = None, **rules: Any
) -> Experiment:
    return Experiment(
        scenario="gaussian",
        seed=1,
        rounds=6,
        traffic=TrafficSettings(end_s=150.0, range_m=150.0),
        source={"arrivals_per_s": 0.6, "v_min_kmh": 10},
        radio={"name": "constant", "rate_bps": 8e6},
        compute=ComputeSettings(median_flops=1e9, spread=0.3),
        round=RoundSettings(**{"quorum": 3, "invited": 4, "deadline_s": 25.0, **rules}),
        silos=SiloSettings(count=len(IMAGES)),
        handover=HandoverSettings(**handover or {}),
        selection={"name": selection},
        pace={"name": pace},
    )


def played(
    settings: Experiment, plugins: SimulationPlugins | None = None, learning: Learning | None = None
) -> SimulationResult:
    streams = Streams(seed=settings.seed)
    request = TrafficRequest(experiment=settings, streams=streams, repeat=False)
    traffic = GaussianSource(**settings.source).open(request)
    plugins = plugins or simulation_plugins(settings)
    return simulate(settings, traffic, learning or Learning(), streams, plugins, images=IMAGES)


def every_policy_and_pace() -> Iterator[Any]:
    """Yield each policy under each pace; one after the other updates may be late, and training goes on outside."""
    pairs = itertools.product(SELECTIONS.names(), PACES.names())
    variants: list[dict[str, Any]] = [{}, {"max_staleness": 2}, {"handover": OUTSIDE, "max_staleness": 1}]
    for (selection, pace), more in zip(pairs, itertools.cycle(variants), strict=False):
        name = "-".join([selection, pace, *(["outside"] if "handover" in more else ["late"] if more else [])])
        yield pytest.param({"selection": selection, "pace": pace, **more}, id=name)


@pytest.mark.parametrize("rules", list(every_policy_and_pace()))
def test_everyone_is_accounted_for_and_nobody_is_invited_twice_in_a_round(rules):
    settings = experiment(**rules)
    log = played(settings).log
    records = list(log.participations)
    invited = [record for record in records if record.outcome != "not_selected"]
    assert len(log.rounds) >= 4
    assert sum(record.committed for record in log.rounds) >= 8

    twice = Counter((record.vehicle_id, record.base_round) for record in invited)
    assert max(twice.values()) == 1
    committed = Counter((record.vehicle_id, record.round) for record in invited if record.outcome == "committed")
    assert max(committed.values()) == 1

    for record in records:
        spent_s = math.fsum(getattr(record, name) for name in ("download_s", "train_s", "outside_s", "upload_s"))
        if record.outcome == "not_selected":
            assert (spent_s, record.download_bytes, record.upload_bytes, record.work_share) == (0, 0, 0, None)
        else:
            assert spent_s == pytest.approx(record.end_s - record.start_s, abs=1e-9)
            assert record.work_share is None or record.work_share in {step / 8 for step in range(1, 9)}
            assert (record.work_share is None) == (record.outcome == "left_download" or not record.train_s)
    if settings.pace["name"] != "coverage" and not settings.handover.longest_gap_s:
        for instant in {record.start_s for record in invited}:
            assert sum(record.start_s <= instant < record.end_s for record in invited) <= settings.round.invited

    again = played(settings).log
    assert list(again.participations) == records, "the same seed, the same log"
    assert again.rounds == log.rounds
    if not getattr(SELECTIONS.find(settings.selection["name"]), "uses_losses", False):
        other = played(settings, learning=Learning(-1)).log
        timing = [[one._replace(weight=None, loss=None) for one in log] for log in (other.participations, records)]
        assert timing[0] == timing[1]
        assert [record.loss for record in other.rounds] != [record.loss for record in log.rounds], "only what is learnt"


def test_settings_of_both_reach_what_is_made_and_the_record():
    record = {table: plugin.record for table, plugin in simulation_plugins(experiment()).chosen.items()}
    assert {kind: (record[kind]["name"], record[kind]["settings"]) for kind in ("selection", "pace")} == {
        "selection": ("random", {}),
        "pace": ("quorum", {}),
    }
    assert all(entry["source"] for entry in record.values())


class Spy:
    """Notes what it is told of candidates, and takes them in order of entry."""

    name, source = "spy", "none"

    def __init__(self) -> None:
        self.predicted: list[tuple[str, float, float]] = []
        self.seen: list[int] = []
        self.commits: dict[tuple[int, str], int] = {}
        self.rounds: list[list[str]] = []
        self.told: dict[int, tuple[float | None, int]] = {}

    def select(self, candidates: Sequence[Candidate], free: int, context: Any) -> Sequence[Candidate]:
        assert free >= 1
        assert context.cloud_round == 0, "there is no cloud"
        assert context.open_s <= context.now_s <= context.deadline_s
        assert all(c.loss_and_round == self.told.get(c.silo) for c in candidates)
        self.seen.append(context.round)
        self.commits |= {(context.round, c.vehicle_id): c.commits for c in candidates}
        self.predicted += [(c.vehicle_id, c.enter_s, context.now_s + c.remaining_s("oracle")) for c in candidates]
        return candidates

    def after_round(self, records: Sequence[ParticipationRecord], memory: None) -> None:
        assert memory is None
        self.rounds.append([record.vehicle_id for record in records])
        committed = {record.silo: (record.loss, record.round) for record in records if record.outcome == "committed"}
        assert all(loss is not None for loss, _ in committed.values())
        self.told |= committed


def test_a_policy_is_told_the_recorded_exit_and_every_participation_once():
    settings, spy = experiment(), Spy()
    log = played(settings, replace(simulation_plugins(settings), selection=spy)).log
    ended = {(w.vehicle_id, w.enter_s): w.exit_s for w in log.windows if w.exit_cause == "crossing"}
    told = [(ended[who, enter_s], exit_s) for who, enter_s, exit_s in spy.predicted if (who, enter_s) in ended]
    assert len(told) > 20
    assert [exit_s for _, exit_s in told] == pytest.approx([recorded for recorded, _ in told])
    assert len(spy.rounds) == len(log.rounds)
    finished = [who for names in spy.rounds for who in names]
    assert finished == [record.vehicle_id for record in log.participations][: len(finished)]
    assert set(spy.seen) <= set(range(settings.rounds))
    for (round_, who), commits in spy.commits.items():
        before = [
            r for r in log.participations if r.vehicle_id == who and r.outcome == "committed" and r.round < round_
        ]
        assert commits == len(before)
    assert any(spy.commits.values())


@pytest.mark.parametrize("wrong", ["one twice", "one of another round", "a name"])
def test_a_policy_that_returns_what_is_no_candidate_is_at_fault(wrong):
    settings, before = experiment(), []

    def select(candidates: Sequence[Candidate], free: int, context: Any) -> Iterator[Any]:  # noqa: ARG001
        yield candidates[0]
        if wrong == "one of another round" and context.round:
            yield before[0]
        before.append(candidates[0])
        if wrong != "one of another round":
            yield candidates[0] if wrong == "one twice" else "v1"

    policy = SimpleNamespace(name="mine", source="none", select=select)
    who = "'v1'" if wrong == "a name" else r"[\w.]+"
    with pytest.raises(RunError, match=rf"policy 'mine' returned {who} in round \d, which is no candidate or was"):
        played(settings, replace(simulation_plugins(settings), selection=policy))
