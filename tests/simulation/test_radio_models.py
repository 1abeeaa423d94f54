"""Radio models as plug-ins: what they are asked, what is refused by their names, what is recorded."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vnetsim.coverage.association import Serves
from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import AssociationSettings, Experiment
from vnetsim.learning import Exchange
from vnetsim.random_streams import Streams
from vnetsim.simulation.links import Radio, association, received_power
from vnetsim.simulation.plugins import simulation_plugins

PLAIN = """
from dataclasses import dataclass

@dataclass(frozen=True, kw_only=True)
class Plain:
    name, source, update_s = "plain", "a test", 1.0
    bps: float = 8e6
    def draw(self, generator, memory, heights_m): return generator.uniform(0.5, 1)
    def downlink_bps(self, rsu, vehicle_m, state): return self.bps * state
    def uplink_bps(self, rsu, vehicle_m, state): return self.bps / 2 * state
    def sidelink_bps(self, rsu, sender_m, receiver_m, state): return self.bps / 4 * state
"""
MIX = Exchange(before_training=False, mutual=True, send_bytes=1_000_000)


def model(folder: Path, change: tuple[str, str] = ("", "")) -> str:
    file = folder / "plain.py"
    assert change[0] in PLAIN
    file.write_text(PLAIN.replace(*change) if change[0] else PLAIN)
    return f"{file}:Plain"


def played(scene: Any, name: str, *, exchange: Any = None, radio: Any = None, spans: Any = ((0, 90),)) -> Any:
    rules = {"quorum": 2 if exchange else 1, "rounds": len(spans)}
    windows = [scene.window(one, *span) for span in spans for one in ("a", "b")[: 2 if exchange else 1]]
    learning = scene.learning(every=replace(scene.cost, exchange=exchange))
    return scene.run(windows, learning=learning, radio={"name": name, **(radio or {})}, **rules)


def test_transfers_take_the_rates_of_the_model_and_its_settings(scene, tmp_path):
    for bps in (8e6, 4e6):
        result = played(scene, model(tmp_path), radio={"bps": bps}, spans=((0, 0.1), (61, 61.1), (121, 200)))
        state = Streams(seed=0).generator("radio", "a", "r", 2).uniform(0.5, 1)
        record = result.log.participations[-1]
        assert record.download_s == pytest.approx(8e6 / (bps * state))
        assert record.upload_s == pytest.approx(16e6 / (bps / 2 * state))
        # at the start of each, and every second
        assert result.link_rates.looked_up == 2 + 2 + math.floor(record.download_s) + math.floor(record.upload_s)
        assert (result.link_rates.cap_bps, result.link_rates.capped, result.sidelink_rates.looked_up) == (None, 0, 0)


def test_a_model_is_told_the_height_of_every_vehicle_once(scene, tmp_path):
    told = "    def begin(self, rsus, lanes): return type('Place', (), {'notes': []})\n"
    told += "    def entered(self, height_m, memory): memory.notes.append(height_m)\n    def draw"
    windows = [scene.window("a", 0, 0.5), scene.window("a", 1, 20), scene.window("b", 2, 20)]
    experiment = scene.experiment(radio={"name": model(tmp_path, ("    def draw", told))})
    traffic = scene.traffic([*windows, replace(scene.window("c", 3, 20), vehicle_type="coach")])
    traffic.info = replace(traffic.info, heights_m={"car": 1.5})
    result = scene.simulate(experiment, traffic, scene.learning(), Streams(seed=0))
    assert result.link_rates.notes == [1.5, 1.5, 1.6], "a type that nobody knows is a car of the standard's"


def test_the_sidelink_draws_once_per_pair(scene, tmp_path):
    result = played(scene, model(tmp_path), exchange=MIX)
    state = Streams(seed=0).generator("radio", "sidelink", 0, "a", "b").uniform(0.5, 1)
    there, back = result.log.exchanges
    assert there.via == back.via == "sidelink"
    # one airtime: by the end of the second both have gone over it
    assert max(there.end_s, back.end_s) - there.start_s == pytest.approx(2 * 8e6 / (2e6 * state))
    assert result.sidelink_rates.looked_up > 2


def test_a_model_that_does_not_follow_positions_is_asked_once_per_transfer(scene, tmp_path):
    result = played(scene, model(tmp_path, ("1.0", "None")), exchange=MIX)
    assert (result.link_rates.looked_up, result.sidelink_rates.looked_up) == (4, 2)


def test_a_cap_is_recorded(scene, tmp_path):
    name = model(tmp_path, ("    def draw", "    cap_bps = property(lambda self: self.bps / 2)\n    def draw"))
    file = Path(name.partition(":")[0])
    file.write_text(file.read_text().replace("return self.bps / 2 * state", "return self.bps / 2"))
    use = played(scene, name, exchange=MIX).link_rates
    # uplinks are at half the rate, downlinks above it
    assert use.cap_bps == 4e6
    assert use.capped == use.looked_up > 4


DOWN, UP, SIDE = (f"return self.bps{share} * state" for share in ("", " / 2", " / 4"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((DOWN, "return float('nan')"), "'plain' failed in downlink_bps: it returned nan, .*line"),
        ((UP, "return 0.0"), "'plain' failed in uplink_bps: it returned 0.0, .*line"),
        ((SIDE, "return -1.0"), "'plain' failed in sidelink_bps: it returned -1.0, .*line"),
        ((SIDE, "return float('inf')"), "'plain' failed in sidelink_bps: it returned inf, .*line"),
        ((DOWN, "return None"), "in downlink_bps: it returned None, expected a fin"),
        ((DOWN, "raise ValueError('no map')"), "failed in downlink_bps.*: ValueError: no map."),
        (("    def draw", "    cap_bps = 'high'\n    def draw"), "in cap_bps: it returned 'high', expected a fin"),
        (("return generator.uniform(0.5, 1)", "1 / 0"), "'plain' failed in draw in round 0: ZeroDivisionError"),
    ],
)
def test_a_failure_is_told_by_name(change, message, scene, tmp_path):
    with pytest.raises(RunError, match=message):
        played(scene, model(tmp_path, change), exchange=MIX)


@pytest.mark.parametrize("value", ["0", "-1.0", "1e999", "'often'"])
def test_a_time_between_look_ups_that_never_passes_is_refused(value, scene, tmp_path):
    name = model(tmp_path, ('"a test", 1.0', f'"a test", {value}'))
    with pytest.raises(InputError, match=r"^radio model 'plain': its update_s is .*; make it None, or a time"):
        played(scene, name)


def test_the_record_names_model_and_settings(tmp_path):
    own = Experiment(scenario="gaussian", radio={"name": model(tmp_path), "bps": 7})
    record = simulation_plugins(own).chosen["radio"].record
    assert record == {"name": "plain", "source": "a test", "settings": {"bps": 7.0}}
    built_in = Experiment(scenario="gaussian", radio={"name": "tr37885"})
    assert simulation_plugins(built_in).chosen["radio"].record["settings"]["bandwidth_hz"] == 30e6


def test_what_a_candidate_is_told_is_not_counted(scene, tmp_path):
    policy = tmp_path / "policy.py"
    policy.write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Quickest:\n"
        "    name, source = 'quickest', 'a test'\n"
        "    def select(self, candidates, free, context): return sorted(candidates, key=lambda one: one.duration_s)\n"
    )
    policies = ("arrival", f"{policy}:Quickest")
    found = [scene.run([scene.window("a", 0, 90)], radio={}, selection=policy) for policy in policies]
    assert found[0].log.participations[0].upload_s == found[1].log.participations[0].upload_s
    assert found[0].link_rates == found[1].link_rates
    assert found[0].link_rates.looked_up == 2


def test_links_are_drawn_with_the_heights_of_their_ends_whoever_is_named_first(scene, tmp_path):
    told = ("return generator.uniform(0.5, 1)", "return heights_m, generator.random()")
    made = simulation_plugins(Experiment(scenario="gaussian", radio={"name": model(tmp_path, told)})).radio
    radio = Radio(made, Streams(seed=0), [scene.rsu], heights_m={"bus": 3.4, "car": 1.5})
    windows = [replace(scene.window(name, 0, 9), vehicle_type=kind) for name, kind in (("a", "bus"), ("b", "car"))]
    events = scene.traffic(windows).events()
    bus, car = next(events).path, next(events).path
    assert radio.pair_state(3, bus, car) == radio.pair_state(3, car, bus)
    assert radio.pair_state(3, car, bus)[0] == (3.4, 1.5)
    assert radio.link(bus, scene.rsu, 0).state[0] == (3.4,)


def test_a_vehicle_that_comes_back_has_another_link(scene):
    """Also where the strongest RSU serves, which is asked before anything is sent."""
    asked: list[int] = []
    radio: Any = SimpleNamespace(received_dbm=lambda _, __, entry: asked.append(entry) or (lambda place: -place[0]))
    power = received_power(radio, [scene.rsu])
    path: Any = SimpleNamespace(vehicle_id="a", rsu_id=scene.rsu.id)
    assert [power(path)(3.0, 4.0), *power(path)(np.array([1.0, 2.0]), np.zeros(2))] == [-3.0, -1.0, -2.0]
    assert asked == [0, 1]


def test_a_received_power_that_is_no_number_is_refused(scene):
    model: Any = SimpleNamespace(name="deaf", update_s=None, received_dbm=lambda *_: math.nan)
    path: Any = SimpleNamespace(vehicle_id="a")
    power_dbm = Radio(model, Streams(seed=0)).received_dbm(path, scene.rsu, 0)
    with pytest.raises(RunError, match="'deaf' failed in received_dbm: it returned nan, expected a finite number"):
        power_dbm((0.0, 0.0))


def test_the_strongest_serves_once_it_is_better_by_so_many_db_for_so_long(scene):
    """Of the RSU here -60 dBm everywhere; of the far one -70 dBm and two more with every 10 m, which are a second."""
    far = Rsu(id="far", x_m=9e3, y_m=0.0, range_m=9e3)
    power_dbm = {scene.rsu.id: lambda _: -60.0, far.id: lambda place: -70.0 + place[0] / 5}
    radio: Any = SimpleNamespace(received_dbm=lambda _, rsu, __: power_dbm[rsu.id])
    events = scene.traffic([scene.window("a", 0, 40, rsu_id=rsu) for rsu in power_dbm]).events()
    rule = AssociationSettings(rule="strongest", hysteresis=3.0, trigger_s=2.0)
    followed = association(rule, [scene.rsu, far], radio).follow(events)
    serves = [(event.time_s, event.path.rsu_id) for event in followed if isinstance(event, Serves)]
    assert serves == [(0.0, scene.rsu.id), (pytest.approx(5 + 3 / 2 + 2), "far")]
