"""Vehicles that are not equipped drive, are recorded and block links, but never take part."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from vnetsim.errors import InputError
from vnetsim.experiment import TrafficSettings
from vnetsim.random_streams import Streams
from vnetsim.simulation.links import Radio


def equipped(share: float, seed: int | None = 7) -> set[int]:
    settings = TrafficSettings(equipped=share)
    return {number for number in range(1000) if settings.equips(f"car{number}", seed)}


def test_smaller_shares_are_nested_and_follow_the_traffic_seed():
    shares = [0.001, 0.1, 0.5, 0.9, 1.0]
    sets = [equipped(share) for share in shares]
    assert all(less < more for less, more in itertools.pairwise(sets))
    for share, found in zip(shares, sets, strict=True):
        assert len(found) / 1000 == pytest.approx(share, abs=4 * (share * (1 - share) / 1000) ** 0.5)
    assert len(equipped(0.5, None) & sets[2]) == pytest.approx(250, abs=65), "another traffic, another draw"


@pytest.mark.parametrize("share", [0, 1.5, -0.1, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share):
    with pytest.raises(InputError, match=r"^traffic\.equipped must be between 1e-6 and 1 \("):
        TrafficSettings(equipped=share)


def test_only_equipped_vehicles_take_part(scene, monkeypatch):
    types = list[str]()
    monkeypatch.setattr(Radio, "enter", lambda _, vehicle_type: types.append(vehicle_type))
    names = [f"car{number}" for number in range(20)]
    windows = [scene.window(name, at, at + 12) for at, name in enumerate(names)]
    windows.append(scene.window("late", 30, 99))  # still open at the end
    settings = TrafficSettings(equipped=0.4)
    experiment = dataclasses.replace(scene.experiment(rounds=None, time_s=40.0, silos=20), traffic=settings)
    log = scene.simulate(experiment, scene.traffic(windows), scene.learning(), Streams(seed=0)).log
    assert {window.vehicle_id for window in log.windows} == {*names, "late"}
    wanted = {name for name in (*names, "late") if settings.equips(name, None)}
    assert {record.vehicle_id for record in log.participations} == wanted
    assert 0 < len(wanted) < 20
    assert sorted({record.silo for record in log.participations}) == list(range(len(wanted))), "they alone have data"
    assert len(types) == 21, "the radio knows all"
