"""Every engine trains every learner to the same result, however vehicles are grouped and whatever memory there is."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device_checks import learner_class, registered
from device_checks.tiny_rounds import SETTINGS, Doubled
from learner_checks import peers_of
from torch import nn

from learners.engines import batched
from learners.engines.batched import MeasuredEngine, SideBySideEngine, StackedEngine, create_engine, step_bytes
from learners.engines.optimizers import Sgd
from learners.engines.programs import Engine, LocalTraining, Program, SequentialEngine, Tensors, Trained, TrainingJob
from learners.engines.silo_images import SiloImages
from learners.flsimco import FLSimCo
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
    "one stack": StackedEngine,
    "stacks of two": lambda: StackedEngine(largest=2),
}


@pytest.fixture(params=VARIANTS, ids=lambda variant: " ".join([variant[0], *map(str, variant[1].values())]))
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
    engines = {name: ENGINES[name]() for name in ("three workers", "stacks of two")}

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
    "learner", [("flsimco", {}), ("fedco", {}), ("cdl", {"optimizer": "sgd"}), ("fedefm", {})], indirect=True
)
def test_engines_round_as_the_sequential_one_does(learner: Any, participant: Callable[..., Participant]) -> None:
    """Single precision: each is about as near to the result in double precision; one core or three give the same."""
    in_double, reference = Doubled("cpu"), SequentialEngine()
    engines = {name: ENGINES[name]() for name in ("one worker", "three workers", "one stack")}

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
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    on_cpu = {name: create_engine(name, cpu, measures=True) for name in ("auto", "sequential", "batched")}
    assert all(isinstance(engine, SideBySideEngine) for engine in on_cpu.values())
    assert [getattr(engine, "_workers", 0) for engine in on_cpu.values()] == [3, 1, 3]
    made = {(name, measures): type(create_engine(name, cuda, measures=measures))
            for name in ("auto", "sequential", "batched") for measures in (False, True)}  # fmt: skip
    assert made == {
        ("auto", False): SequentialEngine,
        ("auto", True): MeasuredEngine,
        **dict.fromkeys([("sequential", False), ("sequential", True)], SequentialEngine),
        **dict.fromkeys([("batched", False), ("batched", True)], StackedEngine),
    }
    torch.use_deterministic_algorithms(True)
    try:
        assert type(create_engine("auto", cuda, measures=True)) is SequentialEngine, (
            "a measurement is not the same each time"
        )
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("faster", ["sequential", "batched"])
def test_auto_keeps_the_engine_whose_first_steps_are_faster(
    faster: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = toy_jobs(*[5] * 4, 2)
    expected = [flat(one) for one in SequentialEngine().train(jobs)]
    now_s = [0.0]
    tried: list[tuple[str, int, int]] = []

    class Slow:
        def __init__(self, name: str, engine: Engine) -> None:
            self.name, self.engine = name, engine

        def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
            tried.append((self.name, len(jobs), jobs[0].training.steps))
            now_s[0] += (0.1 if self.name == faster else 0.2) * len(jobs)
            return self.engine.train(jobs)

    monkeypatch.setattr("learners.engines.batched.perf_counter", lambda: now_s[0])
    engine = MeasuredEngine()
    engine._engines = {name: Slow(name, one) for name, one in engine._engines.items()}  # type: ignore[misc]
    assert (engine.train(jobs[:1])[0].state, engine.seconds) == (SequentialEngine().train(jobs[:1])[0].state, {})
    tried.clear()
    with caplog.at_level(logging.WARNING):
        trained = engine.train(jobs)
    assert tried == [
        *(("sequential", 3, steps) for steps in (1, 3)), *(("batched", 4, steps) for steps in (1, 3)), (faster, 5, 3)
    ]  # fmt: skip
    assert engine.seconds == pytest.approx({"sequential": 0.2, "batched": 0.2} | {faster: 0.1})
    assert faster == engine.chosen == engine.choice.partition(" ")[0]
    assert [record.getMessage() for record in caplog.records] == [f"vnetsim: learning.engine = auto: {engine.choice}."]
    for ours, theirs in zip(trained, expected, strict=True):
        torch.testing.assert_close(flat(ours), theirs)
    engine.train(jobs)
    assert tried[-1] == (faster, 5, 3)
    assert len(tried) == 6, "it is measured once"
    pair = MeasuredEngine()
    pair.train(jobs[:2])
    assert pair.seconds, "two can be stacked"


def test_a_resumed_run_goes_on_with_the_engine_it_had(context: LearnerContext, tiny: object) -> None:  # noqa: ARG001
    def learner() -> Any:
        made = FLSimCo.create(context, FLSimCo.Settings(**SETTINGS["contrastive"]))
        made._task.engine = MeasuredEngine()
        return made

    before, after = learner(), learner()
    assert not any(name.startswith("engine.") for name in before.state_dict())
    assert "Engine" not in before.describe().facts
    before._task.engine.seconds = {"sequential": 0.002, "batched": 0.001}
    after.load_state_dict(before.state_dict())
    assert after._task.engine.seconds == {"sequential": 0.002, "batched": 0.001}
    assert (
        after.describe().facts["Engine"].startswith("batched (first steps on this device, a vehicle: sequential 2 ms")
    )
    before._task.engine.seconds["batched"] = np.inf
    after.load_state_dict(before.state_dict())
    assert after._task.engine.choice == before._task.engine.choice
    elsewhere = FLSimCo.create(context, FLSimCo.Settings(**SETTINGS["contrastive"]))
    elsewhere.load_state_dict(before.state_dict())
    assert not any(name.startswith("engine.") for name in elsewhere.state_dict())


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

    def draw(training: LocalTraining, generator: torch.Generator) -> Tensors:
        fails(training.silo)
        return silos.draw(training, 4, generator)

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


@pytest.mark.parametrize("make", [SideBySideEngine, lambda: SideBySideEngine(workers=1), StackedEngine])
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


@pytest.mark.parametrize("engine", [SideBySideEngine(workers=3), StackedEngine()], ids=["side by side", "stacked"])
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
    engines = {**{name: make() for name, make in ENGINES.items()}, "measured": MeasuredEngine()}
    for name, engine in engines.items():
        for order in (range(6), range(5, -1, -1)):
            found = dict(zip(order, engine.train([jobs[i] for i in order]), strict=True))
            assert all(torch.equal(flat(found[i]), expected[i]) for i in order), name
    assert not before.moved, "those of the process are left as they were"
    assert caplog.messages.count(batched.ONE_BY_ONE) == 4  # by three workers, two stacks and the measured
    assert engines["measured"].choice == "sequential (several vehicles cannot be trained at once)"  # type: ignore[attr-defined]
    plain = [flat(one) for one in SequentialEngine().train(toy_jobs(*[5] * 6))]
    assert not any(torch.equal(ours, theirs) for ours, theirs in zip(expected, plain, strict=True))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vehicles were trained at a time, call by call."""
    sizes: list[int] = []
    for name in ("side_by_side", "train_stacked"):
        real = getattr(batched, name)

        def call(given: Sequence[Any], *workers: int, real: Callable[..., Any] = real) -> Any:
            sizes.append(*workers or [len(given)])
            return real(given, *workers)

        monkeypatch.setattr(batched, name, call)
    return sizes


@pytest.mark.parametrize(
    ("engine", "sizes"), [(SideBySideEngine(workers=7), [7, 4, 2, 2]), (StackedEngine(), [8, 4, *[2] * 8])]
)
def test_how_many_do_not_fit_at_a_time_is_halved_and_remembered(
    engine: Engine, sizes: list[int], at_once: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: int) -> None:
        if at_once[-1:] > [2]:
            raise torch.OutOfMemoryError("out of memory")

    jobs = toy_jobs(*[5] * 8, fails=fails)
    expected = SequentialEngine().train(jobs)
    with caplog.at_level(logging.WARNING):
        trained = engine.train(jobs) + engine.train(jobs)
    assert at_once == sizes
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
        monkeypatch.setattr(batched, "available_bytes", partial(int, 2 * steps * 48))
        SideBySideEngine(workers=workers, large_step_bytes=large).train(jobs)
    assert at_once == [2, 1, 1, 4, 1], "from large_step_bytes on a step has all cores to itself"
    monkeypatch.setattr(batched, "LARGE_STEP_BYTES", 48)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    for threads in (2, 1):
        monkeypatch.setattr(torch, "get_num_threads", partial(int, threads))
        SideBySideEngine(workers=3).train(jobs)
    assert at_once[5:] == [3], "but not where torch has one thread"


def test_other_work_on_vehicles_keeps_to_the_cores(at_once: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VNETSIM_CORES", "2")
    for device, count in (("cpu", 3), ("cpu", 1), ("cpu", 0), ("cuda", 3)):
        assert batched.run_each([partial(int, i) for i in range(count)], torch.device(device)) == list(range(count))
    assert batched.run_each([torch.get_num_threads], torch.device("cpu")) == [1]
    assert at_once == [2, 1, 1]


def test_free_memory_is_that_of_the_machine_or_of_the_containers_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched, "Path", lambda _: tmp_path)
    monkeypatch.setattr("os.sysconf", {"SC_AVPHYS_PAGES": 5, "SC_PAGE_SIZE": 100}.__getitem__)
    found = [batched.available_bytes()]
    for limit, used in (("max", 300), (700, 300), (9000, 300), (300, 400)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        found.append(batched.available_bytes())
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
