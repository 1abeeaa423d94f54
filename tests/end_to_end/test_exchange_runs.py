"""Vehicles that exchange, from the command line to the report: recorded, replayed, interrupted and resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from small_runs import interrupted_at

from vnetsim.learning import Aggregation, Cost, Exchange, Participant, Series, Update
from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]
QUICK = ("--rounds", "4", "--device", "cpu", "--set", "traffic.end_s=150", "--set", "silos.count=6")
DISTINCT = ("--set", "round.distinct_silos=true")


@pytest.fixture
def gossip(toy: Any) -> Any:
    """A toy whose silos have a number each and average it with their neighbours; a figure for every exchange."""

    def create(cls: Any, context: Any, settings: Any) -> Any:
        learner = cls(context, settings)
        learner._own = {}
        return learner

    def cost(self: Any, silo: int) -> Cost:  # noqa: ARG001 - the protocol's name
        plan = Exchange(before_training=False, mutual=True, send_bytes=200_000)
        return Cost(download_bytes=0, upload_bytes=0, work_flop=2e9, exchange=plan)

    def train(self: Any, participants: Sequence[Participant]) -> list[Update]:
        return [
            Update(
                participant=p,
                state={"w": self._own.get(p.silo, torch.zeros(4, dtype=torch.float64)) + p.silo + p.round},
                loss=float(p.silo),
                finite=True,
            )
            for p in participants
        ]

    def aggregate(self: Any, updates: Sequence[Update]) -> Aggregation:
        sent = {update.participant.vehicle_id: update.state["w"] for update in updates}
        values = {}
        for update in updates:
            p = update.participant
            group = [sent[p.vehicle_id], *(sent[q.vehicle_id] for q in p.peers)]
            self._own = {**self._own, p.silo: torch.stack(group).mean(0)}
            values.update({(q.vehicle_id, p.vehicle_id): 1 / len(group) for q in p.peers})
        return Aggregation(weights=[1 / len(updates)] * len(updates), metrics={}, exchanges=values)

    def state_dict(self: Any) -> dict[str, Any]:
        return {"model.w": self._model, **{f"silo.{i}.w": w for i, w in sorted(self._own.items())}}

    def load_state_dict(self: Any, state: Mapping[str, Any]) -> None:
        self._own = {int(name.split(".")[1]): w for name, w in state.items() if name.startswith("silo.")}

    def describe(self: Any) -> Any:
        figure = Series(name="mixing", label="Mixing weight", unit="", caption="The receiver's weight of the sender.")
        return replace(inherited(self), exchange=figure)

    inherited = toy.describe
    for method in (cost, train, aggregate, state_dict, load_state_dict, describe):
        setattr(toy, method.__name__, method)
    toy.create = classmethod(create)
    return toy


@pytest.mark.usefixtures("gossip")
def test_exchanges_are_recorded_replayed_and_drawn(cli: Cli, scenarios: Path, tmp_path: Path) -> None:
    done = cli("run", scenarios / "gaussian.toml", "--learner", "toy", *QUICK, *DISTINCT, "--out", tmp_path / "run")
    assert done.status == 0, done.err
    run = RunDirectory(tmp_path / "run")
    exchanges, participations, rounds = (run.read(name) for name in ("exchanges", "participations", "rounds"))
    completed = exchanges.filter(pl.col("outcome") == "completed")
    assert completed.height > 4
    assert rounds.height == 4
    # every figure came back to its exchange: with n neighbours each counts 1 / (n + 1)
    both = completed.join(
        completed, left_on=["round", "sender_id", "receiver_id"], right_on=["round", "receiver_id", "sender_id"]
    )
    neighbours = both.group_by("round", "receiver_id").agg(pl.len().alias("n"), pl.col("value").unique().alias("told"))
    assert all(
        math.isclose(told[0], 1 / (n + 1)) and len(told) == 1 for n, told in neighbours.select("n", "told").rows()
    )
    committed = participations.filter(pl.col("outcome") == "committed")
    assert committed.group_by("round").agg(pl.col("silo").is_duplicated().any().alias("twice"))["twice"].any() is False
    assert participations["exchange_bytes"].sum() == pytest.approx(exchanges["bytes"].sum())
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Exchange between vehicles" in page
    assert "Mixing weight" in page

    again = cli("run", tmp_path / "run", "--out", tmp_path / "replay")
    assert again.status == 0, again.err
    assert RunDirectory(tmp_path / "replay").read("exchanges").equals(exchanges)


@pytest.mark.parametrize("stop", [("train", 1), ("aggregate", 2)])
def test_silo_state_survives_an_interruption(
    stop: tuple[str, int],
    gossip: Any,
    cli: Cli,
    scenarios: Path,
    tmp_path: Path,
    results_of: Callable[[Path], dict[str, bytes]],
) -> None:
    command = ("run", scenarios / "gaussian.toml", "--learner", "toy", *QUICK)
    assert cli(*command, "--out", tmp_path / "whole").status == 0
    with interrupted_at(gossip, *stop):
        assert cli(*command, "--out", tmp_path / "broken").status == 130
    assert cli("resume", tmp_path / "broken").status == 0
    whole, resumed = results_of(tmp_path / "whole"), results_of(tmp_path / "broken")
    assert any(name.startswith("checkpoint/silo-") for name in whole)
    assert whole == resumed
