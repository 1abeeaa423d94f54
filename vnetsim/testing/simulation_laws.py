"""The laws of selection policies, paces, radio models and traffic sources, checked in simulations without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Entered, Left
from vnetsim.experiment import Experiment
from vnetsim.learning import Cost, Participant
from vnetsim.plugins import Kind
from vnetsim.plugins.results import FINITE, number_of
from vnetsim.radio import RADIO_MODELS, RATE
from vnetsim.random_streams import Streams
from vnetsim.scenario.kinds import TRAFFIC_SOURCES
from vnetsim.scenario.plugins import ResolvedPlugin, resolve_plugin
from vnetsim.simulation.log import RoundResult, RoundSummary
from vnetsim.simulation.loop import SimulationResult, simulate
from vnetsim.simulation.pace import PACES
from vnetsim.simulation.plugins import SimulationPlugins
from vnetsim.simulation.selection import SELECTIONS
from vnetsim.testing.calls import BrokenLaw, StrictPlugin, expect, expect_equal
from vnetsim.traffic.sources import open_source

if TYPE_CHECKING:
    from vnetsim.testing import Conformance

_COST = Cost(download_bytes=700_000, upload_bytes=700_000, work_flop=4e12, steps=8)
_DISTANCES_M = (0.0, 1.0, 10.0, 100.0, 249.9)


class _NoLearning:
    """Stands for a learner in a simulation: equal weights; losses and figures that differ between vehicles."""

    def cost(self, _silo: int) -> Cost:
        """Return the same cost for every silo."""
        return _COST

    def close_round(self, _: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Return equal weights with the sum 1, and 1 / (2 + silo) as loss and figure of each participant."""
        figures = [1.0 / (2 + one.silo) for one in participants]
        return RoundResult(weights=[1 / max(1, len(figures))] * len(figures), losses=figures, figures=figures)

    def mix(self, _: object) -> None:
        """Do nothing: with one aggregator it is never called."""


def _play(experiment: Experiment, kind: Kind, plugin: StrictPlugin) -> SimulationResult:
    """Simulate an experiment without training; ``plugin`` replaces its plug-in of ``kind``."""
    others = (one for one in (SELECTIONS, PACES, RADIO_MODELS) if one is not kind)
    chosen = {one.table: resolve_plugin(one, getattr(experiment, one.table)) for one in others}
    made: dict[str, Any] = {table: one.settings for table, one in chosen.items()} | {kind.table: plugin}
    traffic = open_source(experiment, repeat=False)
    try:
        return simulate(
            experiment, traffic, _NoLearning(), Streams(seed=experiment.seed),
            plugins=SimulationPlugins(**made, chosen=chosen),
        )  # fmt: skip
    finally:
        traffic.close()


def _check_simulation(
    report: Conformance, experiment: Experiment, kind: Kind, make: Callable[[], StrictPlugin], method: str
) -> SimulationResult:
    """Check laws of a simulated run, which must call ``method``, and of its repetition; return the first result."""
    strict = make()
    with report.law("a simulated run: results fit the protocol, and no argument is changed", needed=True):
        result = _play(experiment, kind, strict)
        fault = f"{method} was never called in {result.time_s:g} s of traffic; invite and close rounds."
        expect(strict.calls[method] > 0, fault)
    with report.law("a second run with the same seed is equal: no state but what begin returns"):
        again = _play(experiment, kind, make())
        for table in ("rounds", "participations"):
            expect_equal(
                [*getattr(result.log, table)],
                [*getattr(again.log, table)],
                f"a second run with the same seed and the same object has other {table}; keep the state of a run "
                "in what begin returns, and draw only from the generator that is given.",
            )
    return result


def _check_selection(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check the laws of a selection policy in a simulated run; add each to ``report`` as kept or broken."""
    _check_simulation(report, experiment, SELECTIONS, lambda: StrictPlugin(plugin.settings, SELECTIONS), "select")


def _check_pace(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Add to ``report`` the laws of a pace: its attributes, and that rounds close with updates in a simulated run."""
    pure = ("places", "closes", "deadline_s", "plan", "takes", "share")

    def strict() -> StrictPlugin:
        """Return the pace, wrapped so that its calls are counted and checked."""
        return StrictPlugin(plugin.settings, PACES, pure=pure, may_change=())

    with report.law("exchange is true or false, closed_by is 'quorum' or 'everyone'"):
        found = plugin.found
        fault = f"exchange is {found.exchange!r}, closed_by is {found.closed_by!r}; see {PACES.place}."
        expect(isinstance(found.exchange, bool) and found.closed_by in ("quorum", "everyone"), fault)
    result = _check_simulation(report, experiment, PACES, strict, "places")
    with report.law("rounds close with updates"):
        fault = f"no round closed with an update in {result.time_s:g} s; let places and closes allow it."
        expect(any(one.committed for one in result.log.rounds), fault)


def _check_radio(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Report the laws of a radio model: its rates at some distances, then in a simulated run."""
    rates = ("downlink_bps", "uplink_bps", "sidelink_bps", "received_dbm")

    def make() -> StrictPlugin:
        """Return the radio model, wrapped so that its calls are counted and checked."""
        return StrictPlugin(plugin.settings, RADIO_MODELS, pure=rates, may_change=("memory", "state"))

    strict = make()
    rsu = Rsu(id="a", x_m=0.0, y_m=0.0, range_m=250.0)

    def ask(method: str, *given: Any) -> float:
        """Return what a method returns for the RSU and the other arguments; RunError for a wrong number."""
        within = FINITE if method == "received_dbm" else RATE
        return number_of(getattr(strict, method)(rsu, *given), within, RADIO_MODELS, strict, method)

    def measure_rates() -> list[float]:
        """Begin a run, and return all rates of four links at all distances (bit/s)."""
        found = []
        memory = strict.begin((rsu,), ()) if hasattr(strict, "begin") else None
        if hasattr(strict, "entered"):
            strict.entered(1.6, memory)
        for link in range(4):
            states: list[Any] = [None, None]
            if hasattr(strict, "draw"):
                both = ((1.6,), (1.6, 1.6))
                states = [strict.draw(Streams(seed=0).generator(link), memory, heights_m) for heights_m in both]
            for m in _DISTANCES_M:
                found += [ask("downlink_bps", (m, 0.0), states[0]), ask("uplink_bps", (m, 0.0), states[0])]
                found.append(ask("sidelink_bps", (0.0, m), (0.0, 0.0), states[1]))
                if hasattr(strict, "received_dbm"):
                    ask("received_dbm", (m, 0.0), states[0])
        return found

    with report.law(
        "rates from 0 m to 249.9 m are finite, above 0 bit/s and the same for the same arguments", needed=True
    ):
        first = measure_rates()
    with report.law("no rate is above cap_bps"):
        cap_bps = getattr(strict, "cap_bps", None)
        fault = f"a rate of {max(first):g} bit/s is above cap_bps = {cap_bps}; raise cap_bps."
        expect(cap_bps is None or max(first) <= cap_bps, fault)
    with report.law("a second run with the same random streams has the same rates"):
        fault = "draw with the same generator gave other rates; draw only from the generator that is given."
        expect(measure_rates() == first, fault)
    _check_simulation(report, experiment, RADIO_MODELS, make, "downlink_bps")


def _check_source(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Report the laws of a traffic source: its coverage events, at most 20,000 of them."""

    def read_events() -> list[Any]:
        """Open the traffic, and return its first events; BrokenLaw if two RSUs have one id."""
        traffic: Any = open_source(experiment, repeat=False, source=plugin)
        try:
            distinct = len({rsu.id for rsu in traffic.rsus}) == len(traffic.rsus)
            expect(distinct, "two RSUs of open(TrafficRequest) have one id; give each its own.")
            events = list(islice(traffic.events(), 20_000))
            _ = traffic.info
        finally:
            traffic.close()
            traffic.close()
        return events

    with report.law("open returns RSUs and events inside their discs; close may be called twice", needed=True):
        events = read_events()
    with report.law("there are events, sorted by time"):
        late = [one for one, after in pairwise(events) if after.time_s < one.time_s]
        fault = f"events() has {len(events)} events, {len(late)} of them later than the next; sort them by time_s."
        expect(bool(events) and not late, fault)
    with report.law("each vehicle that enters leaves once, with the same path object"):
        open_: set[int] = set()
        for event in events:
            if isinstance(event, Entered):
                open_.add(id(event.path))
            elif isinstance(event, Left) and id(event.path) in open_:
                open_.remove(id(event.path))
            else:
                raise BrokenLaw(
                    f"events() lets {event.path.vehicle_id} leave without an entry; yield its Entered before."
                )
        fault = f"events() leaves {len(open_)} windows open; close them at the end with the cause 'end'."
        expect(not open_ or len(events) == 20_000, fault)
    with report.law("the same seed gives the same windows"):
        first, again = ([one.window for one in each if isinstance(one, Left)] for each in (events, read_events()))
        expect_equal(first, again, "opened again, its windows differ; draw only from request.streams.")


CHECKS: Mapping[str, Callable[[Conformance, Experiment, ResolvedPlugin], None]] = {
    SELECTIONS.name: _check_selection,
    PACES.name: _check_pace,
    RADIO_MODELS.name: _check_radio,
    TRAFFIC_SOURCES.name: _check_source,
}
"""The function that checks a plug-in of a kind and reports its laws, by the kind's name."""
