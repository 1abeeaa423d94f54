"""Settings change what they say of a simulation, by the amount they say, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment import (
    Camera,
    ComputeSettings,
    ExchangeSettings,
    Experiment,
    RoundSettings,
    SiloSettings,
)
from vnetsim.learning import Cost, Exchange
from vnetsim.radio.models import ConstantRate, Tr37885
from vnetsim.random_streams import Streams
from vnetsim.simulation.loop import simulate

RSU = Rsu(id="r", x_m=0.0, y_m=0.0, range_m=2000.0)
AWAY_M = 300.0
TIMES = {"download_s", "train_s", "upload_s"}


@dataclass(frozen=True)
class Change:
    """Another value of a setting, beside other settings, and what it changes."""

    key: str
    value: Any
    changes: set[str]
    beside: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.key} {self.value}"


def changed(key: str, value: Any, changes: set[str], **beside: Any) -> Change:
    return Change(key, value, changes, {name.replace("__", "."): given for name, given in beside.items()})


# -- one vehicle that stands in coverage: radio, computer, camera ------------------------------------------------------

ALONE = [
    changed("radio.name", "constant", {"download_s", "upload_s"}),
    changed("radio.rate_bps", 4e6, {"download_s", "upload_s"}, radio__name="constant"),
    changed("radio.environment", "highway", {"download_s", "upload_s"}),
    changed("radio.carrier_hz", 28e9, {"download_s", "upload_s"}),
    changed("radio.bandwidth_hz", 10e6, {"download_s", "upload_s"}),
    changed("radio.rsu_power_dbm", 30.0, {"download_s"}),
    changed("radio.vehicle_power_dbm", 30.0, {"upload_s"}),
    changed("radio.rsu_antenna_dbi", 6.0, {"download_s", "upload_s"}),
    changed("radio.vehicle_antenna_dbi", 6.0, {"download_s", "upload_s"}),
    changed("radio.rsu_noise_figure_db", 5.0, {"upload_s"}),
    changed("radio.vehicle_noise_figure_db", 5.0, {"download_s"}),
    changed("radio.shadowing_db", 6.0, {"download_s", "upload_s"}),
    changed("radio.efficiency", 0.3, {"download_s", "upload_s"}),
    changed("radio.max_spectral_efficiency", 0.5, {"download_s", "upload_s"}),
    changed("compute.median_flops", 4e9, {"train_s"}),
    changed("compute.spread", 1.0, {"train_s"}),
    changed("compute.preset", "xavier-nx", {"train_s"}),
    changed("compute.fleet", {"xavier-nx": 1.0}, {"train_s"}),
    changed("camera.exposure_s", 0.02, {"level_px"}),
]


UNCAPPED = {"radio.max_spectral_efficiency": 50.0, "radio.state": "los"}


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return tables of settings given by dotted keys."""
    kinds: dict[str, Any] = {
        "radio": dict,
        "selection": dict,
        "pace": dict,
        "compute": ComputeSettings,
        "camera": Camera,
        "round": RoundSettings,
        "exchange": ExchangeSettings,
        "silos": SiloSettings,
    }
    own: dict[str, dict[str, Any]] = {table: {} for table in kinds}
    for key, value in given.items():
        table, _, name = key.partition(".")
        own[table][name] = value
    return {table: kind(**own[table]) for table, kind in kinds.items()}


def dB(ratio: float) -> float:  # noqa: N802  the unit's name
    return 10 * math.log10(ratio)


def rate_bps(
    given: dict[str, Any], distance_m: float, power_dbm: float, figure_db: float, shadowing_db: float
) -> float:
    """Return the rate of TR 37.885's path loss and Shannon's capacity, written out once more."""
    if given.get("name") == "constant":
        return ConstantRate(rate_bps=given.get("rate_bps", 20e6)).rate_bps
    radio = Tr37885(**given)
    ghz = radio.carrier_hz / 1e9
    urban = 38.77 + 16.7 * math.log10(distance_m) + 18.2 * math.log10(ghz)
    highway = 32.4 + 20 * math.log10(distance_m) + 20 * math.log10(ghz)
    loss_db = highway if radio.environment == "highway" else urban
    noise_dbm = -174 + dB(radio.bandwidth_hz) + figure_db
    gains_db = radio.rsu_antenna_dbi + radio.vehicle_antenna_dbi
    snr = 10 ** ((power_dbm + gains_db - loss_db - shadowing_db - noise_dbm) / 10)
    return radio.bandwidth_hz * min(radio.efficiency * math.log2(1 + snr), radio.cap_bps / radio.bandwidth_hz)


def expected(experiment: Experiment) -> dict[str, float]:
    """Return what a vehicle with no one beside it takes, by hand: 1 MB down, 4 GFLOP, 2 MB up."""
    given, compute, camera = dict(experiment.radio), experiment.compute, experiment.camera
    radio = Tr37885(**({} if "name" in given else given))
    streams = Streams(seed=experiment.seed)
    shadowing_db = radio.shadowing_db * float(streams.generator("radio", "a", "r", 0).standard_normal())
    distance_m = math.hypot(AWAY_M, 5 - 1.6)
    (preset,) = compute.fleet or [compute.preset]
    median_flops = compute.median_flops or {"ecu": 1e9, "agx-xavier": 5e11, "xavier-nx": 3e11}[preset]
    flops = median_flops * math.exp(compute.spread * float(streams.generator("compute", "a").standard_normal()))
    return {
        "download_s": 8e6
        / rate_bps(given, distance_m, radio.rsu_power_dbm, radio.vehicle_noise_figure_db, shadowing_db),
        "train_s": 4e9 / flops,
        "upload_s": 16e6
        / rate_bps(given, distance_m, radio.vehicle_power_dbm, radio.rsu_noise_figure_db, shadowing_db),
        "level_px": camera.exposure_s * 0.004 * 20.0 / (3e-6 * 10.0),
    }


@pytest.mark.parametrize("change", ALONE, ids=str)
def test_what_a_vehicle_alone_takes(change: Change, scene: Any) -> None:
    """Times on air and board, and the blur level, equal those by hand before and after; all others stay."""
    # two minutes at one place; the speed that it reports is another matter here
    still = replace(scene.window("a", 0, 120, path=[(0, AWAY_M, 0), (120, AWAY_M, 0)]), path_speed_mps=np.full(2, 20.0))
    cost = Cost(download_bytes=1_000_000, upload_bytes=2_000_000, work_flop=4e9)
    found = []
    # each model has settings of its own
    base = {} if change.key in {"radio.name", "radio.rate_bps"} else UNCAPPED
    for given in (base | change.beside, base | change.beside | {change.key: change.value}):
        tables = {name: table for name, table in settings_of(given).items() if name in {"radio", "compute", "camera"}}
        rounds = RoundSettings(quorum=1, deadline_s=1000.0)
        experiment = Experiment(scenario="hand-made", seed=3, rounds=1, round=rounds, **tables)
        learning = scene.learning(cost_of=dict.fromkeys(range(95), cost))
        result = simulate(experiment, scene.traffic([still], (RSU,)), learning, Streams(seed=3))
        (record,) = result.log.participations
        taken = {name: getattr(record, name) for name in ("download_s", "train_s", "upload_s", "level_px")}
        assert record.outcome == "committed"
        assert taken == pytest.approx(expected(experiment), rel=1e-9)
        assert learning.calls[0][1][0].level_px == record.level_px
        found.append(taken)
    before, after = found
    assert {name for name in before if before[name] != pytest.approx(after[name], rel=1e-9)} == change.changes


@pytest.mark.parametrize("update_s", [0.5, 1.0, 4.0])
def test_a_rate_stays_for_update_s(update_s: float, scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tr37885, "update_s", update_s)
    leaving = scene.window("a", 0, 60, path=[(0, 50, 0), (60, 1850, 0)], speed_mps=30.0)
    radio: dict[str, Any] = {"shadowing_db": 0.0, "state": "los"}
    cost = Cost(download_bytes=100_000_000, upload_bytes=0, work_flop=0)
    experiment = Experiment(scenario="hand-made", rounds=1, radio=radio, round=RoundSettings(quorum=1))
    learning = scene.learning(cost_of=dict.fromkeys(range(95), cost))
    result = simulate(experiment, scene.traffic([leaving], (RSU,)), learning, Streams(seed=0))
    missing, now = 100_000_000 * 8.0, 0.0
    while True:
        rate = rate_bps(radio, math.hypot(50 + 30 * now, 3.4), 23.0, 9.0, 0.0)
        if missing <= rate * update_s:
            break
        missing, now = missing - rate * update_s, now + update_s
    assert now >= 2 * update_s
    assert result.log.participations[0].download_s == pytest.approx(now + missing / rate, rel=1e-9)


# -- eight vehicles that stand in coverage: rounds and silos -----------------------------------------------------------

BASE = {"round.quorum": 2, "round.invited": 3, "selection.name": "arrival", "silos.count": 8}
INVITED, COMMITTED, CLOSED, SILOS = "who is invited", "who commits", "how rounds close", "silos"
Scene = dict[str, Any]


def in_order(*silos: int) -> dict[str, int]:
    return dict(zip("abcdefgh", silos, strict=True))


ROUNDS: list[tuple[Change, Callable[[Scene], bool]]] = [
    (
        changed("pace.name", "coverage", {INVITED, COMMITTED, CLOSED}),
        lambda s: s[INVITED][0] == list("abcdefgh") == s[COMMITTED][0] and s[CLOSED][0][0] == "everyone",
    ),
    # three share the air in any case, and end together
    (changed("round.quorum", 3, {COMMITTED}), lambda s: s[COMMITTED] == [list("abc")] * 2),
    (changed("round.invited", 5, {INVITED, CLOSED}), lambda s: s[INVITED][0] == list("abcde")),
    (
        changed("round.deadline_s", 4.0, {COMMITTED, CLOSED}),
        lambda s: s[CLOSED] == [("deadline", 4.0), ("deadline", 8.0)] and s[COMMITTED] == [[], []],
    ),
    # the third one's upload counts in the next round, which it leaves less room for
    (
        changed("round.max_staleness", 1, {INVITED, COMMITTED}),
        lambda s: s[COMMITTED][1][0] == "c" and "c" not in s[INVITED][1],
    ),
    # a and c, b and d carry the same silo
    (
        changed("round.distinct_silos", True, {INVITED, CLOSED}, silos__count=2, silos__approaches=2),
        lambda s: s[INVITED][0] == s[COMMITTED][0] == list("ab"),
    ),
    (
        changed("selection.name", "random", {INVITED, COMMITTED}),
        lambda s: s[INVITED][0] != sorted(s[INVITED][0]) and len(set(s[INVITED][0])) == 3,
    ),
    (changed("silos.count", 5, {SILOS}), lambda s: s[SILOS] == in_order(0, 1, 2, 3, 4, 0, 1, 2)),
    # a, c, e, g stand in the north and b, d, f, h in the south: sectors 0 and 2 of 4, or 0 and 1 of 2
    (changed("silos.by", "approach", {SILOS}), lambda s: s[SILOS] == in_order(0, 2, 4, 6, 0, 2, 4, 6)),
    (
        changed("silos.approaches", 2, {SILOS}, silos__by="approach"),
        lambda s: s[SILOS] == in_order(0, 1, 2, 3, 4, 5, 6, 7),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "amounts_to"), ROUNDS, ids=[str(change) for change, _ in ROUNDS])
def test_what_rounds_and_silos_do(change: Change, amounts_to: Callable[[Scene], bool], scene: Any) -> None:
    windows = [
        scene.window(name, 0, 500, path=[(0, 0, 100 * (-1) ** i), (500, 0, 100 * (-1) ** i)])
        for i, name in enumerate("abcdefgh")
    ]

    def play(**given: Any) -> Scene:
        tables = settings_of(BASE | given)
        experiment = Experiment(
            scenario="hand-made", rounds=2, radio=scene.constant, compute=ComputeSettings(median_flops=1e9, spread=0.0),
            round=tables["round"], silos=tables["silos"], selection=tables["selection"], pace=tables["pace"],
        )  # fmt: skip
        learning = scene.learning()
        log = simulate(experiment, scene.traffic(windows), learning, Streams(seed=1)).log
        invited = [p for p in log.participations if p.outcome != "not_selected"]
        by_start = sorted(invited, key=lambda p: p.start_s)
        return {
            INVITED: [
                [p.vehicle_id for p in by_start if p.base_round == r and p.start_s == log.rounds[r].open_s]
                for r in range(2)
            ],
            COMMITTED: [[p.vehicle_id for p in group] for _, group in learning.calls],
            CLOSED: [(one.closed_by, one.close_s) for one in log.rounds],
            SILOS: {p.vehicle_id: p.silo for p in log.participations},
        }

    before, after = play(**change.beside), play(**(change.beside | {change.key: change.value}))
    assert {what for what in before if before[what] != after[what]} == change.changes, (before, after)
    assert amounts_to(after), after


# -- three vehicles that exchange --------------------------------------------------------------------------------------

PAIRS, VIA, TOOK, OUTCOMES = "pairs", "via", "seconds", "outcomes"
CLOSE, FAR = {("a", "b"), ("b", "a")}, {("b", "c"), ("c", "b")}
EXCHANGES: list[tuple[Change, Callable[[Scene], bool]]] = [
    # in either, pairs that are out of range wait in vain
    (
        changed("exchange.topology", "ring", {PAIRS, TOOK, OUTCOMES, VIA}),
        lambda s: s[PAIRS] == {("a", "b"), ("b", "c"), ("c", "a")} and s[VIA] == ["sidelink", "", ""],
    ),
    (
        changed("exchange.topology", "complete", {PAIRS, OUTCOMES, VIA}),
        lambda s: len(s[PAIRS]) == 6 and s[OUTCOMES] == ["completed"] * 2 + ["cut"] * 4,
    ),
    (changed("exchange.topology", "star", {PAIRS, VIA, TOOK, OUTCOMES}), lambda s: set(s[VIA]) == {"relay"}),
    (changed("exchange.range_m", 149.9, {PAIRS, TOOK, OUTCOMES, VIA}), lambda s: s[PAIRS] == set()),
    (changed("exchange.range_m", 200.1, {PAIRS, TOOK, OUTCOMES, VIA}), lambda s: s[PAIRS] == CLOSE | FAR),
    (
        changed("exchange.relay", True, {PAIRS, TOOK, OUTCOMES, VIA}),
        lambda s: len(s[PAIRS]) == 6 and sorted(s[VIA]) == ["relay"] * 4 + ["sidelink"] * 2,
    ),
    (changed("exchange.limit_s", 0.5, {TOOK, OUTCOMES}), lambda s: s[OUTCOMES] == ["cut"] * 2 and s[TOOK] == [0.5] * 2),
]


@pytest.mark.parametrize(("change", "amounts_to"), EXCHANGES, ids=[str(change) for change, _ in EXCHANGES])
def test_what_an_exchange_does(change: Change, amounts_to: Callable[[Scene], bool], scene: Any) -> None:
    """a and b stand 150 m from each other, b and c 200 m; each sends 5 MB to each neighbour."""
    windows = [
        scene.window(name, 0, 500, path=[(0, x, 0), (500, x, 0)]) for name, x in (("a", -150), ("b", 0), ("c", 200))
    ]
    plan = Exchange(before_training=False, mutual=False, send_bytes=5_000_000)
    cost = Cost(download_bytes=0, upload_bytes=0, work_flop=1e9, exchange=plan)
    radio: dict[str, Any] = {"max_spectral_efficiency": 100.0, "state": "los"}

    def play(**given: Any) -> Scene:
        experiment = Experiment(
            scenario="hand-made",
            rounds=1,
            radio=radio,
            selection={"name": "arrival"},
            exchange=settings_of({"exchange.range_m": 150.1} | given)["exchange"],
            compute=ComputeSettings(median_flops=1e9, spread=0.0),
            round=RoundSettings(quorum=3, deadline_s=300.0),
        )
        learning = scene.learning(cost_of=dict.fromkeys(range(95), cost))
        rows = simulate(experiment, scene.traffic(windows, (RSU,)), learning, Streams(seed=1)).log.exchanges
        if {row.via for row in rows} == {"sidelink"} and len(rows) == 2 and rows[0].outcome == "completed":
            # two share the air, the same loss both ways
            z = float(Streams(seed=1).generator("radio", "sidelink", 0, "a", "b").standard_normal())
            rate = rate_bps(radio, 150.0, 23.0, 9.0, 3.0 * z)
            assert [row.end_s - row.start_s for row in rows] == pytest.approx([2 * 40e6 / rate] * 2)
        return {
            PAIRS: {(row.sender_id, row.receiver_id) for row in rows},
            VIA: [row.via for row in rows],
            TOOK: [row.end_s - row.start_s for row in rows if row.via],
            OUTCOMES: [row.outcome for row in rows],
        }

    before, after = play(**change.beside), play(**(change.beside | {change.key: change.value}))
    assert {what for what in before if before[what] != after[what]} == change.changes, (before, after)
    assert amounts_to(after), after
