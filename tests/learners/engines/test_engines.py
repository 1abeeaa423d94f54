"""Every engine trains every learner to the same result, however vehicles are grouped and whatever memory there is."""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device_checks import learner_class, registered
from device_checks.recorder import CallingLane, OperationsLane
from device_checks.tiny_rounds import SETTINGS, Doubled
from learner_checks import FEW, peers_of
from torch import nn

from learners.engines import side_by_side
from learners.engines.optimizers import Sgd
from learners.engines.programs import Engine, LocalTraining, Program, SequentialEngine, Tensors, Trained, TrainingJob
from learners.engines.recorded import RecordedEngine
from learners.engines.side_by_side import SideBySideEngine, create_engine, step_bytes
from learners.engines.silo_images import SiloImages
from vnetsim.errors import RunError
from vnetsim.learning import LearnerContext, Participant
from vnetsim.learning.global_generators import GlobalGenerators

VARIANTS = [(name, {}) for name in sorted(registered())] + [
    ("fedco", {"key_encoder": "rsu"}),
    ("flsimco", {"negatives": "plain"}),
    ("cdl", {"coupling": "joint", "optimizer": "sgd", "divergence_schedule": "linear"}),
    ("cdl", {"optimizer": "adam-kept", "divergence_schedule": "measured"}),
    ("dsgd", {"optimizer": "sgd"}),
    ("fedefm", {"variant": "guest-average"}),
    ("fedefm", {"variant": "labels-once"}),
    ("fedefm", {"similarity": "step"}),
    ("fedefm", {"server": "none"}),
]
ENGINES: dict[str, Callable[[], Engine]] = {
    "one after the other": SequentialEngine,
    "one worker": lambda: SideBySideEngine(workers=1),
    "three workers": lambda: SideBySideEngine(workers=3),
    "large steps": lambda: SideBySideEngine(large_step_bytes=0),
    "recorded": lambda: RecordedEngine(CallingLane, lanes=2),
}


@pytest.fixture(
    params=[
        pytest.param(
            (name, settings),
            id=" ".join([name, *map(str, settings.values())]),
            marks=[] if name in FEW and not settings else [pytest.mark.all_only],
        )
        for name, settings in VARIANTS
    ]
)
def learner(request: pytest.FixtureRequest, new_context: Callable[..., LearnerContext]) -> Any:
    name, settings = request.param
    kind = learner_class(name)
    request.getfixturevalue("on_tiny_roads" if kind.task == "steering" else "tiny")
    return kind.create(new_context(max_staleness=1), kind.Settings(**(SETTINGS[kind.task] | settings)))


class Compared:
    """An engine that hands every job to a comparison, and returns what the reference makes of it."""

    def __init__(self, compare: Callable[[Sequence[TrainingJob]], None]) -> None:
        self.jobs = 0
        self._compare = compare
        self._reference = SequentialEngine()

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        self._compare(jobs)
        self.jobs += len(jobs)
        return self._reference.train(jobs)


def flat(trained: Trained) -> torch.Tensor:
    """Return all values of a result in one row, named in an order of their own."""
    parts = (trained.state, trained.optimizer, trained.figures)
    tensors = [part[name].reshape(-1).double() for part in parts for name in sorted(part)]
    return torch.cat(tensors)


def met(participants: Sequence[Participant]) -> list[Participant]:
    """Return participants that have exchanged with those beside them, the first with one, the others with two."""

    return [
        replace(one, peers=peers_of(*(participants[j] for j in {abs(i - 1), (i + 1) % len(participants)})))
        for i, one in enumerate(participants)
    ]


def rounds(learner: Any, participant: Callable[..., Participant], count: int = 2) -> list[float]:
    """Play rounds of three vehicles, every other one with a model that is a round old; return their losses."""
    losses = []
    for round_ in range(count):
        joined = [participant(round_, i, base_round=max(0, round_ - i % 2), speed_mps=15.0 + 8 * i) for i in range(3)]
        updates = learner.train(met(joined))
        losses += [update.loss for update in updates]
        learner.aggregate(updates)
    return losses


def test_engines_agree_in_double_precision(learner: Any, participant: Callable[..., Participant]) -> None:
    in_double, reference = Doubled("cpu"), SequentialEngine()
    engines = {name: ENGINES[name]() for name in ("three workers", "recorded")}

    def compare(jobs: Sequence[TrainingJob]) -> None:
        doubled = [in_double(job) for job in jobs]
        expected = [flat(one) for one in reference.train(doubled)]
        for name, engine in engines.items():
            for job, ours, theirs in zip(doubled, engine.train(doubled), expected, strict=True):
                assert ours.state.keys() == job.base.keys()
                difference = (flat(ours) - theirs).abs() / theirs.abs().clamp(min=1)
                assert float(difference.max()) < 1e-9, (name, job.training)

    learner._task.engine = compared = Compared(compare)
    assert np.isfinite(rounds(learner, participant)).all()
    assert compared.jobs >= 6


# Adam would turn the rounding of gradients that are almost 0 into steps of full length
@pytest.mark.parametrize(
    "learner",
    [
        ("flsimco", {}),
        pytest.param(("fedefm", {}), marks=pytest.mark.all_only),
        pytest.param(("fedco", {}), marks=pytest.mark.all_only),
        pytest.param(("cdl", {"optimizer": "sgd"}), marks=pytest.mark.all_only),
    ],
    indirect=True,
)
def test_engines_round_as_the_sequential_one_does(learner: Any, participant: Callable[..., Participant]) -> None:
    """Single precision: each is about as near to the result in double precision; one core or three give the same."""
    in_double, reference = Doubled("cpu"), SequentialEngine()
    engines = {name: ENGINES[name]() for name in ("one worker", "three workers")}

    def compare(jobs: Sequence[TrainingJob]) -> None:
        exact = [flat(one) for one in reference.train([in_double(job) for job in jobs])]
        results = {name: [flat(one) for one in engine.train(jobs)] for name, engine in engines.items()}
        for i, theirs in enumerate(flat(one) for one in reference.train(jobs)):
            rounding = float((theirs - exact[i]).norm())
            for name, ours in results.items():
                assert float((ours[i] - exact[i]).norm()) < 20 * rounding + 1e-5, (name, jobs[i].training)
            assert torch.equal(results["one worker"][i], results["three workers"][i])
        backwards = engines["three workers"].train(jobs[::-1])[::-1]
        for one, other in zip(backwards, results["one worker"], strict=True):
            assert torch.equal(flat(one), other)

    learner._task.engine = compared = Compared(compare)
    rounds(learner, participant)
    assert compared.jobs >= 6


def test_the_engine_of_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VNETSIM_CORES", "3")
    on_cpu = [create_engine(name, torch.device("cpu")) for name in ("auto", "sequential")]
    assert [getattr(engine, "_workers", 0) for engine in on_cpu] == [3, 1]
    on_cuda = [create_engine(name, torch.device("cuda")) for name in ("auto", "sequential")]
    assert [type(engine) for engine in on_cuda] == [RecordedEngine, SequentialEngine]


class Slope(nn.Module):
    """One parameter, and a count of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.weight * images.square().mean(dim=(1, 2, 3))


def toy_jobs(*sizes: int, fails: Callable[[int], None] = lambda _silo: None) -> list[TrainingJob]:
    """Return one job for each silo of so many images; ``fails`` is called with the silo before each step's draw."""
    total = sum(sizes)
    images = torch.arange(total, dtype=torch.uint8)[:, None, None, None].expand(total, 1, 4, 4).clone()
    ends = np.cumsum(sizes)
    rows = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    silos = SiloImages(images, rows, device=torch.device("cpu"))

    def draw(training: LocalTraining, generator: torch.Generator) -> Iterator[Tensors]:
        for drawn in silos.draw(training, 4, generator):
            fails(training.silo)
            yield drawn

    def loss(network: nn.Module, batch: Tensors, _: Tensors) -> tuple[torch.Tensor, Tensors]:
        value = ((network(batch["images"]) - 1) ** 2).mean()
        return value, {"loss": value}

    network = Slope()
    program = Program(
        network=network,
        count=lambda silo: min(4, sizes[silo]),
        draw=draw,
        prepare=lambda drawn: {"images": silos.images(drawn)},
        loss=loss,
        optimizer=lambda parameters, rate, _: Sgd(parameters, learning_rate=rate, momentum=0.9, weight_decay=0.0),
    )
    return [
        TrainingJob(
            program=program,
            training=LocalTraining(
                silo=i, kernel_px=0.0, blurred_fraction=1.0, learning_rate=0.1 * (i + 1), seed=i, steps=3
            ),
            base=network.state_dict(),
        )
        for i in range(len(sizes))
    ]


@pytest.mark.parametrize("make", [SideBySideEngine, lambda: SideBySideEngine(workers=1), ENGINES["recorded"]])
def test_programs_with_networks_of_their_own_are_kept_apart(make: Callable[[], Engine]) -> None:
    """Jobs of two learners in one round, and again in another."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = Slope()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = 2 * self.slope(images)
            return result

    jobs, other = toy_jobs(4, 4, 4, 4), Named()
    named = replace(jobs[0].program, network=other)
    mixed = [job if i % 2 else replace(job, program=named, base=other.state_dict()) for i, job in enumerate(jobs)]
    engine, expected = make(), [flat(one) for one in SequentialEngine().train(mixed)]
    for _ in range(2):
        for ours, theirs in zip(engine.train(mixed), expected, strict=True):
            torch.testing.assert_close(flat(ours), theirs)


@pytest.mark.parametrize(
    "engine", [SideBySideEngine(workers=3), ENGINES["recorded"]()], ids=["side by side", "recorded"]
)
def test_silos_of_different_sizes_and_step_sizes(engine: Engine) -> None:
    jobs = toy_jobs(2, 9, 3, 2, 8)
    expected = SequentialEngine().train(jobs)
    for ours, theirs in zip(engine.train(jobs), expected, strict=True):
        torch.testing.assert_close(ours.state, theirs.state, rtol=1e-6, atol=0.0)
    assert engine.train([]) == []
    assert jobs[0].base["weight"].item() == 2.0


def keep_half(slopes: torch.Tensor) -> torch.Tensor:
    """Stochastic depth as torchvision has it, one draw an image."""
    return slopes * torch.empty_like(slopes).bernoulli_(0.5)


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": nn.Dropout(0.5),
    "stochastic depth": keep_half,
    "torch.rand": lambda slopes: slopes * torch.rand(len(slopes), device=slopes.device),
    "random.random": lambda slopes: slopes * random.random(),
    "numpy.random": lambda slopes: slopes * float(np.random.rand()),  # noqa: NPY002 - as a user may
}


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_what_a_network_draws_follows_from_the_jobs_seed_alone(
    draw: Callable[[torch.Tensor], torch.Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    class Random(Slope):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return draw(super().forward(images))

    jobs = toy_jobs(*[5] * 6)
    program = replace(jobs[0].program, network=Random())
    jobs = [replace(job, program=program) for job in jobs]
    before = GlobalGenerators()
    expected = [flat(one) for one in SequentialEngine().train(jobs)]
    engines = {name: make() for name, make in ENGINES.items()}
    for name, engine in engines.items():
        for order in (range(6), range(5, -1, -1)):
            found = dict(zip(order, engine.train([jobs[i] for i in order]), strict=True))
            assert all(torch.equal(flat(found[i]), expected[i]) for i in order), name
    assert not before.moved, "those of the process are left as they were"
    assert caplog.messages.count(side_by_side.ONE_BY_ONE) == 1  # by three workers
    why = "one after the other: the network draws random numbers in its forward pass"
    assert engines["recorded"].remark == why  # type: ignore[attr-defined]
    assert len([message for message in caplog.messages if why in message]) == 1
    plain = [flat(one) for one in SequentialEngine().train(toy_jobs(*[5] * 6))]
    assert not any(torch.equal(ours, theirs) for ours, theirs in zip(expected, plain, strict=True))


def with_loss(jobs: Sequence[TrainingJob], change: Callable[[torch.Tensor], torch.Tensor]) -> list[TrainingJob]:
    """Return the jobs with a change of the loss of their program."""

    def loss(network: nn.Module, batch: Tensors, base: Tensors) -> tuple[torch.Tensor, Tensors]:
        value = change(jobs[0].program.loss(network, batch, base)[0])
        return value, {"loss": value}

    program = replace(jobs[0].program, loss=loss)
    return [replace(job, program=program) for job in jobs]


def equal(engine: Engine, jobs: Sequence[TrainingJob]) -> bool:
    """Return whether an engine trains as the sequential one does, to the bit."""
    expected = SequentialEngine().train(jobs)
    return all(torch.equal(flat(one), flat(other)) for one, other in zip(engine.train(jobs), expected, strict=True))


def test_a_step_that_cannot_be_recorded_is_taken_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    recorded = toy_jobs(5, 5, 5)
    reads = with_loss(toy_jobs(5, 5, 5), lambda value: value * float(value > 0))
    engine = RecordedEngine(OperationsLane, lanes=2)
    for _ in range(2):
        assert equal(engine, [job for pair in zip(recorded, reads, strict=True) for job in pair])
    assert engine.remark.startswith("recorded steps, 2 at a time; one after the other: RuntimeError: called a sync")
    assert len(caplog.messages) == 1
    [job] = toy_jobs(5)
    draw = job.program.draw

    def fewer(*given: Any) -> Iterator[Tensors]:
        for drawn, count in zip(draw(*given), itertools.cycle((4, 4, 3)), strict=False):
            yield {name: tensor[:count] for name, tensor in drawn.items()}

    program = replace(job.program, draw=fewer)
    assert equal(RecordedEngine(OperationsLane), [replace(job, program=program)])
    assert "random draws whose shapes change" in caplog.text


def test_a_step_that_depends_on_more_than_its_arguments_is_found(caplog: pytest.LogCaptureFixture) -> None:
    factors = [1.0]
    jobs = with_loss(toy_jobs(5, 5), lambda value: value * factors[0])
    engine = RecordedEngine(OperationsLane)
    assert equal(engine, jobs)
    factors[0] = 2.0  # as a learner does that changes something from round to round
    assert equal(engine, jobs)
    assert "the step depends on more than its arguments; results of up to the last 16 rounds" in caplog.text
    factors[0] = 3.0
    assert equal(engine, jobs)
    steps = iter(range(99))
    RecordedEngine(OperationsLane).train(with_loss(jobs, lambda value: value * next(steps)))
    assert "a replayed step differs from the step itself" in caplog.text


def test_a_step_that_differs_from_itself_is_recorded_all_the_same() -> None:
    """As on a GPU, where sums depend on the order of threads, always or seldom."""
    for every, shift in ((3, 0), *((23, shift) for shift in range(23))):
        noise = iter(1 + 1e-7 * ((i + shift) % every == 0) for i in range(9999))
        engine = RecordedEngine(CallingLane)
        engine.train(with_loss(toy_jobs(5, 5), lambda value, noise=noise: value * next(noise)))
        assert engine.remark.startswith("recorded")


@pytest.mark.parametrize(
    ("fills_at", "free", "jobs", "lanes"),
    [(4, 10**6, 9, 4), (1, 10**6, 9, 1), (99, 10**6, 9, 8), (99, 5500, 9, 2), (99, 10**6, 3, 3)],
)
def test_lanes_are_those_that_are_faster_and_fit(
    fills_at: int, free: int, jobs: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device that ``fills_at`` vehicles fill; a recording takes 1000 bytes."""
    now_s, recorded, beside = [0.0], [0], [0]

    class Timed(CallingLane):
        def record(self, call: Callable[[], None]) -> Callable[[], None]:
            recorded[0] += 1
            return super().record(call)

        def synchronize(self) -> None:
            beside[0] += 1

        def free_bytes(self) -> int:
            return free - 1000 * (recorded[0] // 3)

    def clock() -> float:
        now_s[0] += max(1.0, beside[0] / fills_at)
        beside[0] = 0
        return now_s[0]

    monkeypatch.setattr("learners.engines.recorded.perf_counter", clock)
    engine = RecordedEngine(Timed)
    assert equal(engine, toy_jobs(5))
    assert equal(engine, toy_jobs(*[5] * jobs))
    assert sorted(len(one.recordings) for one in engine._replicas.values()) == [1, lanes]


def test_what_fails_beside_the_first_recording_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may be short for more lanes, and for a plain step beside them."""
    fails = False

    class Full(OperationsLane):
        def record(self, call: Callable[[], None]) -> Callable[[], None]:
            if fails:
                raise RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED")
            return super().record(call)

    engine = RecordedEngine(Full)
    assert equal(engine, toy_jobs(5))
    fails = True
    jobs = toy_jobs(5, 5, 5)
    assert equal(engine, jobs), "the new program is trained plainly"
    fails = False
    engine = RecordedEngine(Full)
    engine.train(jobs[:1])
    fails = True
    monkeypatch.setattr(engine, "_agrees", raiser(RunError("out of memory")))
    assert equal(engine, jobs)
    assert engine.remark == "recorded steps, 1 at a time"


def test_nothing_is_recorded_after_a_recording_that_broke_off(caplog: pytest.LogCaptureFixture) -> None:
    class Breaks(CallingLane):
        def record(self, call: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
            self.usable = False
            raise RuntimeError("capture invalidated")

    engine = RecordedEngine(Breaks)
    for _ in range(2):
        assert equal(engine, toy_jobs(5, 5))
    assert engine.remark == "one after the other: RuntimeError: capture invalidated"
    assert len(caplog.messages) == 1


def test_a_training_that_ran_out_of_memory_leaves_nothing_to_the_next() -> None:
    [job] = toy_jobs(5)
    left = [1]

    class Full(Sgd):
        def step(self) -> None:
            if left:
                left.pop()
                raise torch.OutOfMemoryError("out of memory")
            super().step()

    def optimizer(parameters: Any, rate: Any, _: Any) -> Sgd:
        return Full(parameters, learning_rate=rate, momentum=0.9, weight_decay=0.0)

    engine, full = SequentialEngine(), replace(job, program=replace(job.program, optimizer=optimizer))
    with pytest.raises(RunError):
        engine.train([full])
    assert torch.equal(flat(engine.train([full])[0]), flat(SequentialEngine().train([job])[0]))


def raiser(error: Exception) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


def test_shapes_beyond_the_most_are_not_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("learners.engines.recorded.MOST_RECORDINGS", 2)
    engine = RecordedEngine(OperationsLane)
    for _ in range(2):
        assert equal(engine, toy_jobs(2, 3, 4, 9))
    [message] = caplog.messages
    assert "one after the other: steps of more than 2 shapes, as of small silos of many sizes." in message


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vehicles were trained at a time, call by call."""
    sizes: list[int] = []
    real = side_by_side.run_in_threads

    def call(given: Sequence[Any], workers: int) -> Any:
        sizes.append(workers)
        return real(given, workers)

    monkeypatch.setattr(side_by_side, "run_in_threads", call)
    return sizes


def test_how_many_do_not_fit_at_a_time_is_halved_and_remembered(
    at_once: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: int) -> None:
        if at_once[-1:] > [2]:
            raise torch.OutOfMemoryError("out of memory")

    jobs, engine = toy_jobs(*[5] * 8, fails=fails), SideBySideEngine(workers=7)
    expected = SequentialEngine().train(jobs)
    with caplog.at_level(logging.WARNING):
        trained = engine.train(jobs) + engine.train(jobs)
    assert at_once == [7, 4, 2, 2]
    told = [message.partition(" vehicles are ")[0] for message in caplog.messages]
    assert told == [f"vnetsim: out of memory: at most {most}" for most in (4, 2)]
    for ours, theirs in zip(trained, 2 * expected, strict=True):
        torch.testing.assert_close(ours.state, theirs.state, rtol=1e-6, atol=0.0)


def test_vehicles_at_a_time_are_those_that_cores_and_half_the_memory_hold(
    at_once: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = toy_jobs(*[5] * 4)
    program, network = jobs[0].program, Slope()
    # four times the parameter, and of each image what the square and the parameter's gradient are made of
    assert step_bytes(jobs[0], network) == 4 * 4 + 4 * (4 + 4)
    assert step_bytes(replace(jobs[0], program=replace(program, count=lambda _: 9)), network) == 4 * 4 + 9 * (4 + 4)
    for workers, large, steps in ((3, 99, 2.9), (3, 99, 0), (2, sys.maxsize, 1.9), (9, 99, 9), (1, 49, 9), (9, 48, 9)):
        monkeypatch.setattr(side_by_side, "available_bytes", partial(int, 2 * steps * 48))
        SideBySideEngine(workers=workers, large_step_bytes=large).train(jobs)
    assert at_once == [2, 1, 1, 4, 1], "from large_step_bytes on a step has all cores to itself"
    monkeypatch.setattr(side_by_side, "LARGE_STEP_BYTES", 48)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    for threads in (2, 1):
        monkeypatch.setattr(torch, "get_num_threads", partial(int, threads))
        SideBySideEngine(workers=3).train(jobs)
    assert at_once[5:] == [3], "but not where torch has one thread"


def test_other_work_on_vehicles_keeps_to_the_cores(at_once: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VNETSIM_CORES", "2")
    for device, count in (("cpu", 3), ("cpu", 1), ("cpu", 0), ("cuda", 3)):
        assert side_by_side.run_each([partial(int, i) for i in range(count)], torch.device(device)) == list(
            range(count)
        )
    assert side_by_side.run_each([torch.get_num_threads], torch.device("cpu")) == [1]
    assert at_once == [2, 1, 1]


def test_free_memory_is_that_of_the_machine_or_of_the_containers_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "Path", lambda _: tmp_path)
    monkeypatch.setattr("os.sysconf", {"SC_AVPHYS_PAGES": 5, "SC_PAGE_SIZE": 100}.__getitem__)
    found = [side_by_side.available_bytes()]
    for limit, used in (("max", 300), (700, 300), (9000, 300), (300, 400)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        found.append(side_by_side.available_bytes())
    assert found == [500, 500, 400, 500, 0]


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
def test_a_visit_that_never_fits_is_the_users_to_mend(make: Callable[[], Engine]) -> None:
    def fails(silo: int) -> None:
        if silo == 1 and begun:
            raise torch.OutOfMemoryError("out of memory")

    begun: list[bool] = []
    jobs = toy_jobs(5, 5, 5, fails=fails)
    engine = make()
    engine.train(jobs[:1])
    begun.append(True)
    message = (
        r"^out of memory: the training of a single vehicle \(silo 1\) does not fit; lower learning.batch or take a "
        r"smaller learning.encoder.$"
    )
    with pytest.raises(RunError, match=message):
        engine.train(jobs)
