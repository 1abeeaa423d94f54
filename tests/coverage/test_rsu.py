"""Reading and placing RSUs."""

from collections.abc import Sequence

import pytest

from vnetsim.coverage.placement import Poi, place_rsus
from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import TrafficSettings


class Net:
    """Junctions at given places; the busiest is ``cross``."""

    def __init__(self, pois: Sequence[Poi] = ()) -> None:
        self._pois = pois
        self._junctions = {"cross": (10.0, 20.0), "a:5": (1.0, 2.0), "cluster_1,2": (3.0, 4.0)}

    def junction_ids(self) -> Sequence[str]:
        return list(self._junctions)

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        return self._junctions[junction_id]

    def projected(self, *_: float) -> tuple[float, float] | None:
        return None

    def rsu_pois(self) -> Sequence[Poi]:
        return self._pois

    def busiest_junction(self) -> tuple[str, str]:
        return "cross", "the busiest"


def place(*specs: str, net: Net | None = None) -> tuple[tuple[Rsu, ...], tuple[str, ...]]:
    return place_rsus(TrafficSettings(rsu=specs), net or Net(), "town.sumocfg")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("cross", Rsu(id="cross", x_m=10, y_m=20, range_m=250)),
        ("cross:90.5", Rsu(id="cross", x_m=10, y_m=20, range_m=90.5)),
        ("a:5", Rsu(id="a:5", x_m=1, y_m=2, range_m=250)),
        ("a:5:7", Rsu(id="a:5", x_m=1, y_m=2, range_m=7)),
        ("cluster_1,2:8", Rsu(id="cluster_1,2", x_m=3, y_m=4, range_m=8)),
        ("1.5,-2", Rsu(id="1.5,-2", x_m=1.5, y_m=-2, range_m=250)),
        ("1.5,2:1e2", Rsu(id="1.5,2", x_m=1.5, y_m=2, range_m=100)),
    ],
)
def test_specifications(spec, expected):
    assert place(spec) == ((expected,), ())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "empty text"),
        ("crosss", r"town\.sumocfg: unknown junction 'crosss'\. Did you mean 'cross'\?"),
        ("crosss:50", "Did you mean 'cross'"),
        ("cross:0", "the range must be between 1 and 100000 m"),
        ("cross:-3", "the range must be between"),
        ("cross:far", "must be a number of metres, got 'far'"),
        ("1,2:", "must be a number of metres, got ''"),
        ("1,2:inf", "the range must be between"),
        ("nan,2", "x_m must be between"),
        ("1,inf:50", "y_m must be between"),
        ("-1.1e8,2", "x_m must be between"),
        ("1,1.1e8:50", "y_m must be between"),
    ],
)
def test_bad_specifications(spec, message):
    with pytest.raises(InputError, match=message) as caught:
        place(spec)
    assert "\n" not in str(caught.value)


def test_pois_come_before_the_busiest_junction_and_specifications_before_both():
    net = Net([Poi(id="p", x_m=5, y_m=6, range_text="70"), Poi(id="q", x_m=7, y_m=8, range_text="")])
    assert [(r.id, r.range_m) for r in place(net=net)[0]] == [("p", 70.0), ("q", 250.0)]
    assert [r.id for r in place("cross", net=net)[0]] == ["cross"]
    (rsu,), (note,) = place()
    assert rsu == Rsu(id="cross", x_m=10, y_m=20, range_m=250)
    assert "took junction 'cross', the busiest" in note


def test_a_range_that_no_rsu_takes_is_said():
    own, none = Poi(id="p", x_m=5, y_m=6, range_text="70"), Poi(id="q", x_m=7, y_m=8, range_text="")
    (note,) = place_rsus(TrafficSettings(range_m=90), Net([own]), "town.sumocfg")[1]
    assert note.startswith("traffic.range_m = 90 has no effect: every RSU names its own range.")
    for pois, range_m in (([own, none], 90), ([own], 70)):
        assert not place_rsus(TrafficSettings(range_m=range_m), Net(pois), "town.sumocfg")[1]
    assert not place_rsus(TrafficSettings(), Net([own]), "town.sumocfg")[1]


def test_a_spacing_without_signalised_junctions_is_said():
    (note,) = place_rsus(TrafficSettings(rsu_spacing_m=300, rsu=("cross",)), Net(), "town.sumocfg")[1]
    assert note == "traffic.rsu_spacing_m = 300 has no effect: it is for --rsu all-signalised alone."


def test_a_poi_with_a_bad_range_is_named():
    with pytest.raises(InputError, match=r"town\.sumocfg: parameter 'range' of POI 'p': .* got 'wide'"):
        place(net=Net([Poi(id="p", x_m=0, y_m=0, range_text="wide")]))


def test_settings_in_a_file_are_those_of_the_point_around_them(tmp_path):
    file = tmp_path / "rsus.add.xml"
    file.write_text(
        '<additional><poly id="a"><param key="range" value="9"/></poly>'
        '<poi id="p" type="rsu" x="1" y="2"><param key="name" value="urban"/><param key="range" value="70"/></poi>'
        '<poly id="b"><param key="environment" value="highway"/></poly></additional>'
    )
    assert place(str(file))[0] == (Rsu(id="p", x_m=1, y_m=2, range_m=70),)


def test_two_rsus_of_one_name_are_refused():
    with pytest.raises(InputError, match="two RSUs are called 'cross'"):
        place("cross:10", "cross:20")
    with pytest.raises(InputError, match=r"RSUs 'cross' and '10.0,20' are at the same place, \(10, 20\); leave one"):
        place("cross", "10.0,20:90")


def test_the_environment_is_that_of_the_poi():
    pois = [
        Poi(id=name, x_m=5, y_m=y_m, range_text="", environment=name) for y_m, name in ((6, "urban"), (7, "highway"))
    ]
    rsus, _ = place(net=Net(pois))
    assert [rsu.environment for rsu in rsus] == ["urban", "highway"]
    assert place(net=Net([Poi(id="p", x_m=5, y_m=6, range_text="")]))[0][0].environment == ""
    with pytest.raises(InputError, match=r"parameter 'environment' of POI 'p'.*'highwya'|'highwya'.*POI 'p'"):
        place(net=Net([Poi(id="p", x_m=0, y_m=0, range_text="", environment="highwya")]))


def test_an_rsu_by_hand_stands_where_the_scenario_says_its_own_do():
    def environment(*texts: str) -> str:
        pois = [Poi(id=str(i), x_m=5, y_m=6, range_text="bad", environment=text) for i, text in enumerate(texts)]
        return place("cross:90", net=Net(pois))[0][0].environment

    assert environment("highway", "highway") == "highway"
    assert environment("highway", "urban") == ""
    assert environment("highway", "") == ""
    assert environment("other") == environment() == ""
