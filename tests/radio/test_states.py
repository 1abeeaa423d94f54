"""The states of the tr37885 model: line of sight, behind a vehicle, behind buildings, and RSUs on one channel."""

import math
from dataclasses import replace

import numpy as np
import pytest
import simpy

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.radio.channel import Channel
from vnetsim.radio.models import RunMemory, Tr37885
from vnetsim.radio.propagation import line_of_sight_probability, path_loss_db
from vnetsim.random_streams import Streams
from vnetsim.simulation.links import Radio

RSU = Rsu(id="r", x_m=0.0, y_m=0.0, range_m=300.0)
CROSS = [np.array([[-400.0, 0.0], [400.0, 0.0]]), np.array([[0.0, -400.0], [0.0, 400.0]])]
BLOCK = [*CROSS, np.array([[-400.0, 100.0], [400.0, 100.0]])]
CAR = (1.6,)
STILL = Tr37885(
    state="streets",
    bandwidth_hz=10e6,
    rsu_antenna_dbi=0.0,
    vehicle_antenna_dbi=0.0,
    shadowing_db=0.0,
    max_spectral_efficiency=5.0,
)


def rates_mbps(model: Tr37885, places: list[tuple[float, float]], rsus: tuple[Rsu, ...] = (RSU,)) -> list[float]:
    """Return downlinks behind nobody."""
    place = model.begin(rsus, BLOCK)
    state = model.draw(np.random.default_rng(0), place, CAR)
    state = replace(state, uniform=0.0)
    return [model.downlink_bps(RSU, vehicle_m, state) / 1e6 for vehicle_m in places]


def test_behind_buildings_by_hand():
    """Distances 50 to 250 m round a corner, at 10 MHz: 36.85 + 30 log10(d) + 18.9 log10(5.9) dB."""
    places = [(math.sqrt(d * d - 3.4**2 - 100**2), 100.0) for d in (150.0, 200.0, 250.0)]
    assert rates_mbps(STILL, places) == pytest.approx([7.4, 3.9, 2.2], abs=0.05)
    assert rates_mbps(replace(STILL, rsu_antenna_dbi=3.0, vehicle_antenna_dbi=3.0), places) == pytest.approx(
        [16, 10, 6.7], abs=0.5
    )


def test_streets_decide_and_highways_have_none():
    ahead, side = (200.0, 0.0), (150.0, 100.0)
    assert rates_mbps(STILL, [ahead]) == [50.0]
    assert rates_mbps(STILL, [side])[0] < 6
    for open_land in (replace(STILL, environment="highway"), replace(STILL, state="probability")):
        assert rates_mbps(open_land, [side]) == rates_mbps(open_land, [(math.hypot(*side), 0.0)])


def test_polygons_hide_who_is_behind_them_and_the_file_is_looked_at(tmp_path):
    file = tmp_path / "houses.add.xml"

    def houses(*shapes: str, more: str = "") -> Tr37885:
        polys = "".join(f'<poly id="h{i}" type="building.yes" shape="{s}"{more}/>' for i, s in enumerate(shapes))
        others = '<poly id="lawn" type="grass" shape="0,0 9,9 1,1"/><poi id="door" type="building.door" x="1" y="2"/>'
        file.write_text(f"<additional>{others}{polys}</additional>")
        return replace(STILL, state="polygons", file=str(file))

    model = houses("40,40 60,40 60,60 40,60")
    behind, beside = rates_mbps(model, [(90.0, 90.0), (90.0, 0.0)])
    assert behind == rates_mbps(STILL, [(math.hypot(90, 90) / math.sqrt(2), 90.0)])[0] < beside == 50.0
    grazed, within = rates_mbps(model, [(120.0, 80.0), (55.0, 55.0)])
    assert max(grazed, within) < 50.0, "a corner on the line, and a wall before the vehicle"
    for below in ("-9,-9 9,-9 9,9 -9,9", "0,-9 9,-9 9,9 0,9"):  # around the RSU, and with the RSU at its wall
        on_top = houses(below, "40,40 60,40 60,60 40,60")
        (note,) = on_top.begin([RSU], []).notes
        assert note.startswith("RSU 'r' stands in or at a building of houses.add.xml")
        assert rates_mbps(on_top, [(90.0, 90.0), (90.0, 0.0), (-90.0, 0.0)]) == [behind, beside, beside]
    for shapes, more, says in (
        (("0,0 9,9 9,0 0,9",), "", r"houses.add.xml:1: building 'h0' is no area \(Self-intersection"),
        (("0,0 9,9",), "", "building 'h0' has no shape of three points"),
        (("0,0 9,a 1,1",), "", "building 'h0' has no shape of three points"),
        (("",), "", "building 'h0' is no area"),
        *((("0,0 9,9 9,0",), f' geo="{yes}"', "building 'h0' is in degrees") for yes in ("true", "True", "1")),
        ((), "", "houses.add.xml: no building in it"),
    ):
        with pytest.raises(InputError, match=says):
            houses(*shapes, more=more).begin([RSU], [])
    for given in ({"state": "polygons"}, {"file": "x.xml"}):
        with pytest.raises(InputError, match=r"radio\.file: the buildings of radio\.state = polygons"):
            replace(STILL, **given)  # type: ignore[arg-type]


def test_states_of_links_are_counted_where_transfers_look_rates_up():
    radio = Radio(STILL, Streams(seed=0), [RSU], BLOCK)
    use, env = radio.rate_use(), simpy.Environment()
    ahead, side = (radio._model.draw(np.random.default_rng(0), radio._memory, CAR) for _ in range(2))
    places = [((5.0, 0.0), ahead), ((150.0, 100.0), side), ((150.0, 100.0), side)]

    def rate_bps(_: float) -> float:
        where, state = places.pop()
        return STILL.downlink_bps(RSU, where, replace(state, uniform=0.0))

    for _ in range(3):
        Channel(env, use).send(1e3, rate_bps, lambda: None)
    STILL.downlink_bps(RSU, (5.0, 0.0), ahead)
    assert (use.looked_up, dict(use.states)) == (3, {"behind buildings": 2, "in line of sight": 1})


def test_without_lanes_streets_are_one_street():
    for lanes in ([], [CROSS[0][:1]]):
        assert STILL.begin([RSU], lanes).sight is None
    other = replace(STILL, state="probability")
    states = [model.draw(np.random.default_rng(3), model.begin([RSU], []), CAR) for model in (STILL, other)]
    rates = [model.downlink_bps(RSU, (90.0, 90.0), state) for model, state in zip((STILL, other), states, strict=True)]
    assert rates[0] == rates[1]


def test_vehicles_block_as_often_as_the_standard_says_and_once_blocked_further_away_too():
    model = replace(STILL, state="probability", max_spectral_efficiency=100.0)
    place = model.begin([RSU], [])
    distances_m = (20.0, 60.0, 120.0, 240.0)
    blocked = []
    for seed in range(2000):
        state = model.draw(np.random.default_rng(seed), place, CAR)
        state = replace(state, deviate=0.0)
        losses = [
            round(
                model.loss_db((0.0, 0.0), (d, 0.0), "urban", state) - path_loss_db(math.hypot(d, 3.4), 5.9e9, "urban"),
                9,
            )
            for d in distances_m
        ]
        assert losses == sorted(losses)
        assert set(losses) <= {0.0, 5.0}
        blocked.append(losses)
    shares = (np.array(blocked) == 0).mean(axis=0)
    assert shares == pytest.approx([line_of_sight_probability(d, "urban") for d in distances_m], abs=0.03)


def blocked_db(
    model: Tr37885, place: RunMemory, heights_m: tuple[float, ...], seed: int = 0, rsu_m: float = 5.0
) -> float:
    """Return what the vehicle in between takes of a link of 100 m, at the mean of its loss."""
    state = replace(model.draw(np.random.default_rng(seed), place, heights_m), uniform=1.0, deviate=0.0)
    lower_m = heights_m[1] if len(heights_m) > 1 else rsu_m
    path_db = path_loss_db(math.hypot(100, heights_m[0] - lower_m), 5.9e9, "urban")
    return round(model.loss_db((0.0, 0.0), (100.0, 0.0), "urban", state) - path_db, 9)


def test_who_is_behind_whom_by_the_heights_of_the_fleet():
    """Antennas are on the roofs: over a lower blocker nothing is lost, below a higher one 9 dB, else 5."""
    model = replace(STILL, state="probability")
    place = model.begin([RSU], [])
    assert blocked_db(model, place, (1.6, 1.6)) == 5.0, "nobody was covered yet: a car is in between"
    model.entered(3.4, place)
    cases = {(1.5, 1.5): 9.0, (3.4, 1.5): 5.0, (4.0, 4.0): 0.0, (4.0, 1.5): 5.0, (1.5,): 5.0, (3.4,): 5.0, (4.0,): 0.0}
    assert {heights_m: blocked_db(model, place, heights_m) for heights_m in cases} == cases
    low = replace(model, rsu_height_m=2.0)
    assert blocked_db(low, place, (1.5,), rsu_m=2.0) == 9.0
    # half of those that were covered are high
    model.entered(1.5, place)
    losses_db = [blocked_db(model, place, (1.5, 1.5), seed) for seed in range(1000)]
    assert set(losses_db) == {5.0, 9.0}
    assert losses_db.count(9.0) / 1000 == pytest.approx(0.5, abs=0.04)
    for share, loss_db in ((0.0, 0.0), (1.0, 5.0)):
        assert blocked_db(replace(model, truck_share=share), place, (3.0, 3.0)) == loss_db, "the setting goes before"


def test_shadowing_changes_along_the_path_and_says_the_same_again():
    model = replace(STILL, shadowing_db=3.0, max_spectral_efficiency=100.0)
    place = model.begin([RSU], CROSS)
    states = [model.draw(np.random.default_rng(9), place, CAR) for _ in range(2)]
    asked = [model.downlink_bps(RSU, (x, 0.0), states[0]) for x in (100.0, 50.0, 100.0)]
    assert asked[0] == asked[2] == model.downlink_bps(RSU, (100.0, 0.0), states[1]) != asked[1]


def test_rsus_on_one_channel():
    rsus = RSU, Rsu(id="other", x_m=-500.0, y_m=0.0, range_m=300.0)
    shared = replace(STILL, interference="co-channel")
    gained = replace(shared, rsu_antenna_dbi=4.0, vehicle_antenna_dbi=2.0)
    stronger = replace(shared, rsu_power_dbm=29.0)
    assert rates_mbps(gained, [(-100.0, 0.0)], rsus) == pytest.approx(rates_mbps(stronger, [(-100.0, 0.0)], rsus))
    hidden = Rsu(id="hidden", x_m=-300.0, y_m=100.0, range_m=300.0)
    assert rates_mbps(shared, [(-100.0, 0.0)], (RSU, hidden))[0] > 45, "another street disturbs little"


def test_a_link_loses_by_its_state_what_the_tables_say():
    """Shadowing of .9 dB in sight and 1.2 behind buildings, over 10 or 25 m; in sight by the distance on the ground."""
    model = replace(STILL, shadowing_db=0.9)
    state = replace(model.draw(np.random.default_rng(0), model.begin([RSU], BLOCK), CAR), uniform=0.0)
    for vehicle_m, shadowing_db in (((200.0, 0.0), 0.9), ((150.0, 100.0), 1.2)):
        flat, raised = (
            model.loss_db((0.0, 0.0), vehicle_m, "urban", replace(state, shadowing=lambda *_, x=x: x))
            for x in (0.0, 1.0)
        )
        assert raised - flat == pytest.approx(shadowing_db, abs=1e-12)
    for environment, decorrelation_m in (("urban", 10.0), ("highway", 25.0)):
        told = model.loss_db((0.0, 0.0), (200.0, 0.0), environment, replace(state, shadowing=lambda *given: given[2]))
        path_db = path_loss_db(math.hypot(200, 3.4), 5.9e9, environment)
        assert told - path_db == pytest.approx(0.9 * decorrelation_m, abs=1e-12)
    between = replace(state, heights_m=(1.6, 1.6), shadowing=lambda x_m, y_m, _: x_m + 9 * y_m)
    told = model.loss_db((30.0, 50.0), (50.0, 90.0), "highway", between)
    path_db = path_loss_db(math.hypot(20, 40), 5.9e9, "highway")
    assert told - path_db == pytest.approx(0.9 * (40 + 9 * 70), abs=1e-9), "of two vehicles, in the middle"
    # 5 m and 1.6 m high, 10 m apart on the ground and 10.6 in the air; and nobody in between however far
    for x_m, environment, uniform in ((10.0, "urban", 1.05 * math.exp(-0.0114 * 10.2)), (2000.0, "highway", 0.0)):
        model.loss_db((0.0, 0.0), (x_m, 0.0), environment, replace(state, uniform=uniform))
        assert state.memory.state == "in line of sight"


def test_received_power_by_hand():
    model = replace(STILL, rsu_power_dbm=20.0, rsu_antenna_dbi=7.0, vehicle_antenna_dbi=2.0)
    state = replace(model.draw(np.random.default_rng(0), model.begin([RSU], CROSS), CAR), uniform=0.0)
    by_hand = 20 + 7 + 2 - (38.77 + 16.7 * math.log10(math.hypot(100, 3.4)) + 18.2 * math.log10(5.9))
    assert model.received_dbm(RSU, (0.0, 100.0), state) == pytest.approx(by_hand, abs=1e-12)


def test_what_disturbs_an_uplink_is_what_the_rsu_hears():
    """Of another RSU 500 m away, wherever the vehicle is."""
    other = Rsu(id="other", x_m=-500.0, y_m=0.0, range_m=300.0)
    model = replace(STILL, interference="co-channel", max_spectral_efficiency=100.0)
    state = replace(model.draw(np.random.default_rng(0), model.begin([RSU, other], CROSS), CAR), uniform=0.0)
    loss = [38.77 + 16.7 * math.log10(d) + 18.2 * math.log10(5.9) for d in (math.hypot(100, 3.4), 500.0)]
    sinr = 10 ** ((23 - loss[0]) / 10) / (10**-9.5 + 10 ** ((23 - loss[1]) / 10))
    for vehicle_m in ((100.0, 0.0), (-100.0, 0.0)):
        assert model.uplink_bps(RSU, vehicle_m, state) == pytest.approx(6e6 * math.log2(1 + sinr), rel=1e-12)


def test_always_in_line_of_sight_draws_one_shadowing_and_nobody_blocks():
    model = Tr37885(state="los")
    link = Radio(model, Streams(seed=4), [RSU], CROSS)
    state = link._draw_state((), "v", "r", 0)
    assert state.shadowing(0.0, 0.0, 10.0) == float(
        Streams(seed=4).child("radio").generator("v", "r", 0).standard_normal()
    )
    path_db = path_loss_db(math.hypot(2000, 3.4), 5.9e9, "urban")
    shadowing_db = 3.0 * state.shadowing(0.0, 0.0, 10.0)
    loss_db = model.loss_db((0.0, 0.0), (2000.0, 0.0), "urban", replace(state, heights_m=CAR))
    assert loss_db == pytest.approx(path_db + shadowing_db, rel=1e-12)
    assert state.memory.state == "in line of sight"


def test_rsus_350_m_apart_by_hand():
    """50 Mbit/s by the noise alone are, at 140 m, 9.4 beside one that always sends, and 7.1 amid four."""
    neighbour, *others = (Rsu(id=f"at {x}", x_m=x, y_m=0.0, range_m=300.0) for x in (350.0, -350.0, -700.0, 700.0))
    shared = replace(STILL, interference="co-channel")
    noise_mw = 10 ** (-17.4 + 7 + 0.9)  # of 10 MHz, with a noise figure of 9 dB
    wanted_mw, *unwanted_mw = (
        10 ** (2.3 - 3.877 - 1.82 * math.log10(5.9)) * d**-1.67 for d in (math.hypot(140, 3.4), 210, 490, 840, 560)
    )
    for count, known in ((1, 9.4), (4, 7.1)):
        sinr = wanted_mw / (noise_mw + sum(unwanted_mw[:count]))
        rsus = (RSU, neighbour, *others)[: count + 1]
        assert rates_mbps(STILL, [(140.0, 0.0)], rsus) == [50.0]
        (rate,) = rates_mbps(shared, [(140.0, 0.0)], rsus)
        assert rate == pytest.approx(6 * math.log2(1 + sinr), rel=1e-12)
        assert rate == pytest.approx(known, abs=0.05)
