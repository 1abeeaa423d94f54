"""The laws of learners and of their parts, checked in small trainings on the processor."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vnetsim.experiment import Experiment
from vnetsim.learning import AGGREGATOR, Learner, ModelKey, Participant, Peer
from vnetsim.learning.aggregation import AGGREGATIONS
from vnetsim.learning.codecs import CODECS, bytes_by
from vnetsim.learning.conduct import CONDUCTS, HONEST, Hostile, HostileRound
from vnetsim.learning.drives import RecordedDrive, RecordedTraffic
from vnetsim.learning.faults import aggregate_checked, cost_of, finite_metrics, model_shapes, train_checked
from vnetsim.learning.global_generators import seeded
from vnetsim.learning.kinds import DATA_SETS, ENCODERS, LEARNERS
from vnetsim.random_streams import Streams
from vnetsim.runs.assembly import assemble
from vnetsim.scenario.plugins import ResolvedPlugin
from vnetsim.scenario.shipped import shipped_scenarios
from vnetsim.testing.calls import StrictPlugin, bits, expect, expect_equal
from vnetsim.traffic.net_file import NetFile

if TYPE_CHECKING:
    from vnetsim.testing import Conformance

_NEED_PICTURES = "train", "test", "mean", "std", "film"


def _check_data(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Report the laws of a data set: its images and labels, ``outline``, and training on them."""
    strict = StrictPlugin(plugin.settings, DATA_SETS)
    if getattr(plugin.found, "from_traffic", False):
        _check_driven(report, experiment, plugin, strict)
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
            for part in (one.name for one in fields(loaded)):
                bright, black = getattr(loaded, part), getattr(dark, part)
                alike = bits(bright) == bits(black) or not part.endswith(("labels", "angles"))
                alike = alike and getattr(bright, "shape", None) == getattr(black, "shape", None)
                expect(alike, f"{part} of outline differs from that of load; leave only the images black.")
    _check_training(report, lambda: _create_learner(experiment, data_set=strict))


def _check_driven(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin, strict: StrictPlugin) -> None:
    """Report the laws of a data set that is made from traffic, with vehicles along the longest lanes of a net."""
    net = Path(experiment.traffic.net or shipped_scenarios() / "intersection" / "intersection.net.xml")
    traffic = RecordedTraffic(net=net, drives=_make_drives(NetFile(net).all_lanes, experiment.silos.count))
    for targets, angles in (("classes", False), ("steering angles", True)):
        if targets not in plugin.found.targets:
            continue

        def load(*, angles: bool = angles, pictures: bool = True) -> Any:
            """Return what ``load_driven`` makes of the traffic, always with the same seed."""
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
    _check_training(report, lambda: _create_learner(experiment, data_set=strict, traffic=traffic))


def _make_drives(lanes: Sequence[NDArray[np.float64]], silos: int) -> list[RecordedDrive]:
    """Return the drives of 120 vehicles at 10 m/s along the 12 longest lanes in turn, one every 5 s."""
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


def _check_encoder(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Report the laws of training with an encoder; creating the learner checks its shapes."""
    strict = StrictPlugin(plugin.settings, ENCODERS)
    _check_training(report, lambda: _create_learner(experiment, encoder=strict))


def _check_aggregation(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Check training with an aggregation rule; add each law to ``report`` as kept or broken."""
    wrap = partial(StrictPlugin, plugin.settings, AGGREGATIONS, pure=("aggregate",), may_change=())
    _check_training(report, lambda: _create_learner(experiment, aggregation=wrap()))


def _check_codec(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Report the laws of a codec: its bytes, what it decodes, and training with it."""
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
    _check_training(report, lambda: _create_learner(experiment, codec=strict))


def _check_conduct(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Report the laws of a conduct: what hostile vehicles send, and training with them."""
    import torch  # noqa: PLC0415 - takes seconds

    strict: Any = StrictPlugin(plugin.settings, CONDUCTS, may_change=("draws",))

    def send(hostile: int, honest: int) -> list[Any]:
        """Return change and memory of each hostile vehicle's upload in a round with so many hostile and honest ones."""
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
            found = send(hostile, honest)
            fault = f"send returned {len(found)} results for {hostile} vehicles; return a Sends for each."
            expect(len(found) == hostile, fault)
            fault = "send with the same draws returned other bits; draw only from Hostile.draws."
            expect_equal(found, send(hostile, honest), fault)
    mine = replace(experiment.hostile, share=0.0 if plugin.found.name == HONEST else 0.5)
    _check_training(report, lambda: _create_learner(replace(experiment, hostile=mine), conduct=strict))


def _create_learner(experiment: Experiment, **parts: Any) -> Learner:
    """Create the experiment's learner; ``parts`` replace fields of its context; ``learner`` in them is its class."""
    assembly = assemble(experiment)
    learner: Any = parts.pop("learner", assembly.learner.found)
    context = replace(assembly.context("cpu"), **parts)
    with seeded(context.streams.integer("creation"), "cpu"):
        return learner.create(context, assembly.learner.settings)  # type: ignore[no-any-return]


def _make_participants(learner: Learner, round_: int, count: int = 3) -> list[Participant]:
    """Return ``count`` vehicles of a round, all peers if the learner exchanges; the last has an older model."""
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


def _play_round(learner: Learner, index: int) -> list[Any]:
    """Play round ``index`` (1: the last); return weights, metrics, losses, state as a list. BrokenLaw if not finite."""
    with seeded(index, "cpu"):
        shapes = model_shapes(learner.state_dict())
        updates = train_checked(learner, _make_participants(learner, index), shapes)
        fault = f"train in round {index} returned values that are not finite; mend loss or step size."
        expect(all(one.finite for one in updates), fault)
        made = aggregate_checked(learner, updates, f"in aggregate in round {index}")
        metrics = finite_metrics(learner, learner.evaluate(final=index == 1), "in evaluate")
    return [made.weights, made.metrics, metrics, [one.loss for one in updates], learner.state_dict()]


def _check_training(report: Conformance, make: Callable[[], Learner]) -> Learner:
    """Report the laws of two rounds, of their repetition, and of a resumed learner; return the first learner made."""
    with report.law(
        "two rounds: updates, weights and metrics are finite, and weights sum to 1 or are all 0", needed=True
    ):
        learner = make()
        first = bits(_play_round(learner, 0))
        saved = copy.deepcopy(dict(learner.state_dict()))
        second = bits(_play_round(learner, 1))
    with report.law("the same seed gives the same bits"):
        fault = "the first round, played again with the same seed, has other bits; seed every random draw."
        expect(bits(_play_round(make(), 0)) == first, fault)
    with report.law("a new learner goes on from the saved state to the same bits"):
        resumed = make()
        resumed.load_state_dict(saved)
        fault = "round 1 after load_state_dict has other bits than without; put all state into what is saved."
        expect(bits(_play_round(resumed, 1)) == second, fault)
    return learner


def _check_learner(report: Conformance, experiment: Experiment, plugin: ResolvedPlugin) -> None:
    """Report the laws of a learner: what it declares, trains, evaluates and saves."""
    strict: Any = StrictPlugin(plugin.found, LEARNERS)

    def make() -> Any:
        """Return a new learner, wrapped so that its calls are counted and checked."""
        return StrictPlugin(_create_learner(experiment, learner=strict), LEARNERS, pure=("cost", "describe", "train"))

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
    learner = _check_training(report, make)
    with report.law("train changes no model, and an update does not depend on who else trains"):
        before, group = bits(learner.state_dict()), _make_participants(learner, 2)
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

        def model_bits() -> Any:
            """Return the bits of the global model, the tensors ``model.*``."""
            return bits({name: one for name, one in learner.state_dict().items() if name.startswith("model.")})

        before = model_bits()
        expect(bool(before), "state_dict() has no tensor named model.*; put the global model there.")
        aggregate_checked(learner, [], "in aggregate")
        expect(model_bits() == before, "aggregate([]) changed the model; keep it when nobody committed.")
    with report.law("sample_images returns uint8 of shape (kernels, count, H, W, C)"):
        samples = learner.sample_images([0.0, 3.0], 2)
        channels, height, width = described.image_shape
        fault = f"sample_images([0.0, 3.0], 2) has {samples.dtype} of shape {samples.shape}."
        expect(samples.shape == (2, 2, height, width, channels) and samples.dtype == np.uint8, fault)


CHECKS: Mapping[str, Callable[[Conformance, Experiment, ResolvedPlugin], None]] = {
    DATA_SETS.name: _check_data,
    ENCODERS.name: _check_encoder,
    AGGREGATIONS.name: _check_aggregation,
    CODECS.name: _check_codec,
    CONDUCTS.name: _check_conduct,
    LEARNERS.name: _check_learner,
}
"""The function that checks a plug-in of a kind and reports its laws, by the kind's name."""
