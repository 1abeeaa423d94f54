"""The laws of each kind of plug-in, checked in small simulations and trainings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Entered, Left
from vnetsim.experiment import Experiment
from vnetsim.learning import AGGREGATOR, Cost, Learner, ModelKey, Participant, Peer
from vnetsim.learning.aggregation import AGGREGATIONS
from vnetsim.learning.codecs import CODECS, bytes_by
from vnetsim.learning.conduct import CONDUCTS, HONEST, Hostile, HostileRound
from vnetsim.learning.drives import RecordedDrive, RecordedTraffic
from vnetsim.learning.faults import aggregate_checked, cost_of, finite_metrics, model_shapes, train_checked
from vnetsim.learning.global_generators import seeded
from vnetsim.learning.kinds import DATA_SETS, ENCODERS, LEARNERS
from vnetsim.plugins import Kind
from vnetsim.plugins.results import FINITE, number_of
from vnetsim.radio import RADIO_MODELS, RATE
from vnetsim.random_streams import Streams
from vnetsim.runs.assembly import assemble
from vnetsim.scenario.kinds import TRAFFIC_SOURCES
from vnetsim.scenario.plugins import ResolvedPlugin, resolve_plugin
from vnetsim.scenario.shipped import shipped_scenarios
from vnetsim.simulation.log import RoundResult, RoundSummary
from vnetsim.simulation.loop import SimulationResult, simulate
from vnetsim.simulation.pace import PACES
from vnetsim.simulation.plugins import SimulationPlugins
from vnetsim.simulation.selection import SELECTIONS
from vnetsim.testing.calls import BrokenLaw, StrictPlugin, bits, expect, expect_equal
from vnetsim.traffic.net_file import NetFile
from vnetsim.traffic.sources import open_source

if TYPE_CHECKING:
    from vnetsim.testing import Conformance

_COST = Cost(download_bytes=700_000, upload_bytes=700_000, work_flop=4e12, steps=8)
_DISTANCES_M = (0.0, 1.0, 10.0, 100.0, 249.9)
_NEED_PICTURES = "train", "test", "mean", "std", "film"


class _NoLearning:
    """Equal weights; losses and figures that differ between vehicles."""

    def cost(self, _silo: int) -> Cost:
        return _COST

    def close_round(self, _: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        figures = [1.0 / (2 + one.silo) for one in participants]
        return RoundResult(weights=[1 / max(1, len(figures))] * len(figures), losses=figures, figures=figures)

    def mix(self, _: object) -> None:
        """Not called with one aggregator."""


def _play(experiment: Experiment, kind: Kind, plugin: StrictPlugin) -> SimulationResult:
    """Simulate an experiment without training; ``plugin`` replaces its plug-in of ``kind``."""
    tables = {"selection": SELECTIONS, "pace": PACES, "radio": RADIO_MODELS}
    chosen = {
        table: resolve_plugin(one, getattr(experiment, table)) for table, one in tables.items() if one is not kind
    }
    made: dict[str, Any] = {table: one.settings for table, one in chosen.items()} | {kind.table: plugin}
    traffic = open_source(experiment, repeat=False)
    try:
        return simulate(
            experiment, traffic, _NoLearning(), Streams(seed=experiment.seed),
            plugins=SimulationPlugins(**made, chosen=chosen),
        )  # fmt: skip
    finally:
        traffic.close()


def _simulated(
    report: Conformance, experiment: Experiment, kind: Kind, make: Callable[[], StrictPlugin], method: str
) -> SimulationResult:
    """Check a simulated run and its repetition, report their laws, and return the run; it must call ``method``."""
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


def _selection(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check a selection policy in a simulated run, and report its laws."""
    _simulated(report, experiment, SELECTIONS, lambda: StrictPlugin(plugin.settings, SELECTIONS), "select")


def _pace(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check a pace's attributes, and that its rounds close with updates in a simulated run; report its laws."""
    pure = ("places", "closes", "deadline_s", "plan", "takes", "share")

    def strict() -> StrictPlugin:
        return StrictPlugin(plugin.settings, PACES, pure=pure, may_change=())

    with report.law("exchange is true or false, closed_by is 'quorum' or 'everyone'"):
        found = plugin.found
        fault = f"exchange is {found.exchange!r}, closed_by is {found.closed_by!r}; see {PACES.place}."
        expect(isinstance(found.exchange, bool) and found.closed_by in ("quorum", "everyone"), fault)
    result = _simulated(report, experiment, PACES, strict, "places")
    with report.law("rounds close with updates"):
        fault = f"no round closed with an update in {result.time_s:g} s; let places and closes allow it."
        expect(any(one.committed for one in result.log.rounds), fault)


def _radio(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check a radio model's rates at some distances, then in a simulated run; report its laws."""
    rates = ("downlink_bps", "uplink_bps", "sidelink_bps", "received_dbm")

    def make() -> StrictPlugin:
        return StrictPlugin(plugin.settings, RADIO_MODELS, pure=rates, may_change=("memory", "state"))

    strict = make()
    rsu = Rsu(id="a", x_m=0.0, y_m=0.0, range_m=250.0)

    def ask(method: str, *given: Any) -> float:
        within = FINITE if method == "received_dbm" else RATE
        return number_of(getattr(strict, method)(rsu, *given), within, RADIO_MODELS, strict, method)

    def measure() -> list[float]:
        found = []
        memory = strict.begin((rsu,), ()) if hasattr(strict, "begin") else None
        if hasattr(strict, "entered"):
            strict.entered(1.6, memory)
        for link in range(4):
            both = [(1.6,), (1.6, 1.6)]
            states = (
                [strict.draw(Streams(seed=0).generator(link), memory, heights_m) for heights_m in both]
                if hasattr(strict, "draw")
                else [None, None]
            )
            for m in _DISTANCES_M:
                found += [ask("downlink_bps", (m, 0.0), states[0]), ask("uplink_bps", (m, 0.0), states[0])]
                found.append(ask("sidelink_bps", (0.0, m), (0.0, 0.0), states[1]))
                if hasattr(strict, "received_dbm"):
                    ask("received_dbm", (m, 0.0), states[0])
        return found

    with report.law(
        "rates from 0 m to 249.9 m are finite, above 0 bit/s and the same for the same arguments", needed=True
    ):
        first = measure()
    with report.law("no rate is above cap_bps"):
        cap_bps = getattr(strict, "cap_bps", None)
        fault = f"a rate of {max(first):g} bit/s is above cap_bps = {cap_bps}; raise cap_bps."
        expect(cap_bps is None or max(first) <= cap_bps, fault)
    with report.law("a second run with the same random streams has the same rates"):
        fault = "draw with the same generator gave other rates; draw only from the generator that is given."
        expect(measure() == first, fault)
    _simulated(report, experiment, RADIO_MODELS, make, "downlink_bps")


def _source(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check the coverage events of a traffic source, at most 20,000, and report its laws."""

    def read() -> list[Any]:
        traffic: Any = open_source(experiment, repeat=False, source=plugin)
        events: list[Any] = []
        try:
            distinct = len({rsu.id for rsu in traffic.rsus}) == len(traffic.rsus)
            expect(distinct, "two RSUs of open(TrafficRequest) have one id; give each its own.")
            for event in traffic.events():
                events.append(event)
                if len(events) == 20_000:
                    break
            _ = traffic.info
        finally:
            traffic.close()
            traffic.close()
        return events

    with report.law("open returns RSUs and events inside their discs; close may be called twice", needed=True):
        events = read()
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
        first, again = ([one.window for one in each if isinstance(one, Left)] for each in (events, read()))
        expect_equal(first, again, "opened again, its windows differ; draw only from request.streams.")


def _data(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check a data set's images and labels, ``outline``, and training on them; report its laws."""
    strict = StrictPlugin(plugin.settings, DATA_SETS)
    if getattr(plugin.found, "from_traffic", False):
        _driven(report, experiment, plugin, strict)
        return
    streams = Streams(seed=0)
    with report.law("load returns images and labels that torch takes", needed=True):
        loaded = strict.load(experiment.data, streams)
    with report.law("load with the same seed returns the same bits"):
        fault = "load called again returned other images; draw only from the streams that are given."
        expect_equal(strict.load(experiment.data, streams), loaded, fault)
    if plugin.found.targets == "classes":
        with report.law("labels are 0 to the number of class names less 1"):
            for part in ("train_labels", "test_labels"):
                labels = getattr(loaded, part)
                count = len(loaded.class_names)
                fine = len(labels) > 0 and int(labels.min()) >= 0 and int(labels.max()) < count
                expect(fine, f"{part} are not all in 0 to {count - 1}; number the classes so.")
    if hasattr(plugin.settings, "outline"):
        with report.law("outline returns what load does, with images of the same shapes and the same labels"):
            dark = strict.outline(experiment.data, streams)
            for one in fields(loaded):
                bright, its = getattr(loaded, one.name), getattr(dark, one.name)
                alike = bits(bright) == bits(its) if one.name.endswith(("labels", "angles")) else True
                alike = alike and getattr(bright, "shape", None) == getattr(its, "shape", None)
                expect(alike, f"{one.name} of outline differs from that of load; leave only the images black.")
    _trained(report, lambda: _learner_with(experiment, data_set=strict))


def _driven(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin, strict: StrictPlugin) -> None:
    """Check a data set made of traffic on vehicles along the longest lanes of a net; report its laws."""
    net = Path(experiment.traffic.net or shipped_scenarios() / "intersection" / "intersection.net.xml")
    traffic = RecordedTraffic(net=net, drives=_drives_along(NetFile(net).all_lanes, experiment.silos.count))
    for targets, angles in (("classes", False), ("steering angles", True)):
        if targets not in plugin.found.targets:
            continue

        def load(*, angles: bool = angles, pictures: bool = True) -> Any:
            return strict.load_driven(
                experiment.data, Streams(seed=0), traffic=traffic, angles=angles, pictures=pictures
            )

        with report.law(f"load_driven returns frames with {targets} that torch takes", needed=True):
            loaded = load()
        with report.law("load_driven with the same seed returns the same bits"):
            fault = "load_driven called again returned others; draw only from the streams that are given."
            expect_equal(load(), loaded, fault)
        with report.law("without pictures it returns the same frames in black"):
            dark = load(pictures=False)
            for part in (one.name for one in fields(loaded) if one.name not in _NEED_PICTURES):
                fault = f"{part} differs without pictures; leave only the images black."
                expect_equal(getattr(dark, part), getattr(loaded, part), fault)
    _trained(report, lambda: _learner_with(experiment, data_set=strict, traffic=traffic))


def _drives_along(lanes: Sequence[NDArray[np.float64]], silos: int) -> list[RecordedDrive]:
    """Return 120 vehicles at 10 m/s along the 12 longest lanes, one every 5 s."""
    drives = []
    ranked = sorted(lanes, key=lambda lane: -float(np.hypot(*np.diff(lane, axis=0).T).sum()))[:12]
    for number in range(120):
        lane = ranked[number % len(ranked)]
        gone_m = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(lane, axis=0).T))])
        at_m = np.arange(0.0, max(gone_m[-1], 10.0), 5.0)
        drives.append(
            RecordedDrive(
                vehicle_id=f"v{number}", silo=number % silos, time_s=5.0 * number + at_m / 10,
                x_m=np.interp(at_m, gone_m, lane[:, 0]), y_m=np.interp(at_m, gone_m, lane[:, 1]),
                speed_mps=np.full(len(at_m), 10.0),
            )
        )  # fmt: skip
    return drives


def _encoder(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check that the experiment's learner trains with an encoder, and report its laws."""
    strict = StrictPlugin(plugin.settings, ENCODERS)
    _trained(report, lambda: _learner_with(experiment, encoder=strict))  # making it checks the shapes


def _aggregation(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check that the experiment's learner trains with an aggregation rule, and report its laws."""

    def make() -> Learner:
        strict = StrictPlugin(plugin.settings, AGGREGATIONS, pure=("aggregate",), may_change=())
        return _learner_with(experiment, aggregation=strict)

    _trained(report, make)


def _codec(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check a codec's bytes, what it decodes, and that the experiment's learner trains with it; report its laws."""
    import torch  # noqa: PLC0415 - takes seconds

    strict: Any = StrictPlugin(plugin.settings, CODECS, pure=("bytes_of",), may_change=("draws",))
    with report.law("bytes_of depends on the number of values alone, and more values take no fewer bytes"):
        sizes = [bytes_by(strict, values) for values in (1, 10, 1_000, 11_244_136)]
        fault = f"bytes_of(1, 10, 1000, 11244136) is {sizes}; more values must take no fewer bytes."
        expect(sizes == sorted(sizes), fault)
    with report.law("send returns the tensors' names, shapes and types, and the same bits for the same draws"):
        draws = torch.Generator().manual_seed(0)
        change = {"a": torch.randn(40, 3, generator=draws), "b": torch.randn(7, generator=draws)}
        once, again = (strict.send(change, {}, torch.Generator().manual_seed(1)) for _ in range(2))
        was, came = ([(name, one.shape, one.dtype) for name, one in each.items()] for each in (change, once.tensors))
        fault = "send returned other tensors than it was given; decode to their names, shapes and types."
        expect(was == came, fault)
        fault = "send with the same draws returned other bits; draw only from the generator that is given."
        expect_equal([once.tensors, once.memory], [again.tensors, again.memory], fault)
        expect(not once.memory or plugin.found.remembers, "send returned a memory; set remembers = True.")
    _trained(report, lambda: _learner_with(experiment, codec=strict))


def _conduct(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check what hostile vehicles send, and that the experiment's learner trains with them; report its laws."""
    import torch  # noqa: PLC0415 - takes seconds

    strict: Any = StrictPlugin(plugin.settings, CONDUCTS, may_change=("draws",))

    def asked(hostile: int, honest: int) -> list[Any]:
        changes = [
            {"a": torch.randn(4, 3, generator=torch.Generator().manual_seed(i))} for i in range(hostile + honest)
        ]
        who = [
            Hostile(vehicle_id=f"v{i}", change=one, memory={}, draws=torch.Generator().manual_seed(i))
            for i, one in enumerate(changes[:hostile])
        ]
        sent = strict.send(HostileRound(hostile=who, honest=changes[hostile:]))
        return [[one.change, one.memory] for one in sent]

    with report.law("send answers for each hostile vehicle, with the same bits for the same draws, also for one alone"):
        for hostile, honest in ((1, 0), (1, 4), (2, 3), (3, 0)):
            found = asked(hostile, honest)
            fault = f"send returned {len(found)} results for {hostile} vehicles; return a Sends for each."
            expect(len(found) == hostile, fault)
            fault = "send with the same draws returned other bits; draw only from Hostile.draws."
            expect_equal(found, asked(hostile, honest), fault)
    mine = replace(experiment.hostile, share=0.0 if plugin.found.name == HONEST else 0.5)
    _trained(report, lambda: _learner_with(replace(experiment, hostile=mine), conduct=strict))


def _learner_with(experiment: Experiment, **parts: Any) -> Learner:
    """Create the experiment's learner; ``parts`` replace fields of its context, ``learner`` the learner's class."""
    assembly = assemble(experiment)
    learner, settings = parts.pop("learner", assembly.learner.found), assembly.learner.settings
    context = replace(assembly.context("cpu"), **parts)
    with seeded(context.streams.integer("creation"), "cpu"):
        made: Learner = learner.create(context, settings)
    return made


def _participants(learner: Learner, round_: int, count: int = 3) -> list[Participant]:
    """Return ``count`` vehicles of a round, all peers if the learner exchanges; the last is one round stale."""
    peers = [Peer(vehicle_id=f"v{i}", silo=i, speed_mps=15.0 + i, level_px=1.0 + i) for i in range(count)]
    exchange = learner.cost(0).exchange is not None
    return [
        Participant(
            round=round_, base=ModelKey(AGGREGATOR, max(0, round_ - (i == count - 1))), rsu_id="r",
            vehicle_id=one.vehicle_id, silo=one.silo, speed_mps=one.speed_mps, level_px=one.level_px,
            peers=tuple(other for other in peers if other is not one) if exchange else (),
            neighbours=(count - 1) * exchange,
        )
        for i, one in enumerate(peers)
    ]  # fmt: skip


def _round(learner: Learner, index: int) -> list[Any]:
    """Play round ``index`` (1 is evaluated as the last) and return its results; BrokenLaw if they are not finite."""
    with seeded(index, "cpu"):
        shapes = model_shapes(learner.state_dict())
        updates = train_checked(learner, _participants(learner, index), shapes)
        fault = f"train in round {index} returned values that are not finite; mend loss or step size."
        expect(all(one.finite for one in updates), fault)
        made = aggregate_checked(learner, updates, f"in aggregate in round {index}")
        metrics = finite_metrics(learner, learner.evaluate(final=index == 1), "in evaluate")
    return [made.weights, made.metrics, metrics, [one.loss for one in updates], learner.state_dict()]


def _trained(report: Conformance, make: Callable[[], Learner]) -> Learner:
    """Check two rounds of training, their repetition, and a resumed learner; report laws, return the first learner."""
    with report.law(
        "two rounds: updates, weights and metrics are finite, and weights sum to 1 or are all 0", needed=True
    ):
        learner = make()
        first = bits(_round(learner, 0))
        saved = {name: copy.deepcopy(tensor) for name, tensor in learner.state_dict().items()}
        second = bits(_round(learner, 1))
    with report.law("the same seed gives the same bits"):
        fault = "the first round, played again with the same seed, has other bits; seed every random draw."
        expect(bits(_round(make(), 0)) == first, fault)
    with report.law("a new learner goes on from the saved state to the same bits"):
        resumed = make()
        resumed.load_state_dict(saved)
        fault = "round 1 after load_state_dict has other bits than without; put all state into what is saved."
        expect(bits(_round(resumed, 1)) == second, fault)
    return learner


def _learner(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check what a learner declares, trains, evaluates and saves, and report its laws."""
    strict: Any = StrictPlugin(plugin.found, LEARNERS)

    def make() -> Any:
        return StrictPlugin(_learner_with(experiment, learner=strict), LEARNERS, pure=("cost", "describe", "train"))

    with report.law("describe, series and cost fit the protocol", needed=True):
        learner = make()
        described, series = learner.describe(), learner.series()
        counts, silos = described.silo_label_counts.shape, experiment.silos.count
        fault = f"describe() has silo_label_counts of shape {counts}, expected ({silos}, number of class names)."
        expect(counts == (silos, len(described.class_names)), fault)
        for silo in range(silos):
            cost = cost_of(learner, silo)
            fault = f"cost({silo}) is {cost}; sizes are 0 bytes or more, and work_flop is finite and above 0."
            expect(cost.steps >= 0 and cost.work_flop != 0, fault)
    learner = _trained(report, make)
    with report.law("train changes no model, and an update does not depend on who else trains"):
        before, group = bits(learner.state_dict()), _participants(learner, 2)
        with seeded(2, "cpu"):
            together = learner.train(group)
        with seeded(2, "cpu"):
            alone = learner.train(group[1:2])
        fault = "train(3 x Participant) changed state_dict(); change the model in aggregate only."
        expect(bits(learner.state_dict()) == before, fault)
        fault = "train(1 x Participant) returned other bits than with two more; seed draws by participant.started."
        expect_equal(together[1].state, alone[0].state, fault)
    with report.law("evaluate changes nothing, and its metrics and those of aggregate are in series"):
        metrics: Mapping[str, float] = learner.evaluate(final=True)
        fault = "evaluate(final=True) changed state_dict(); leave the model as it is."
        expect(bits(learner.state_dict()) == before, fault)
        unknown = ", ".join(sorted(metrics.keys() - {one.name for one in series}))
        expect(not unknown, f"evaluate(final=True) returned {unknown}, which series() does not name.")
    with report.law("a round without updates keeps the model"):

        def model() -> Any:
            return bits({name: one for name, one in learner.state_dict().items() if name.startswith("model.")})

        was = model()
        expect(bool(was), "state_dict() has no tensor named model.*; put the global model there.")
        aggregate_checked(learner, [], "in aggregate")
        expect(model() == was, "aggregate([]) changed the model; keep it when nobody committed.")
    with report.law("sample_images returns uint8 of shape (kernels, count, H, W, C)"):
        samples = learner.sample_images([0.0, 3.0], 2)
        channels, height, width = described.image_shape
        fault = f"sample_images([0.0, 3.0], 2) has {samples.dtype} of shape {samples.shape}."
        expect(samples.shape == (2, 2, height, width, channels) and samples.dtype == np.uint8, fault)


OF_KIND: Mapping[str, Callable[[Conformance, Experiment, ResolvedPlugin], None]] = {
    SELECTIONS.name: _selection,
    PACES.name: _pace,
    RADIO_MODELS.name: _radio,
    TRAFFIC_SOURCES.name: _source,
    DATA_SETS.name: _data,
    ENCODERS.name: _encoder,
    AGGREGATIONS.name: _aggregation,
    CODECS.name: _codec,
    CONDUCTS.name: _conduct,
    LEARNERS.name: _learner,
}
