"""Mathematics, engines and learners on a device against the CPU in double precision."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from device_checks.rows import CheckSetup, NotRun, Row
from device_checks.schedule import registered
from device_checks.tiny_rounds import Doubled, jobs_of, play, results, tiny_learner
from device_checks.transport_work import highs, problems
from learners.data.augment import apply_view_one, apply_view_two, draw_view_one, draw_view_two
from learners.data.motion import motion_blur
from learners.engines.batched import StackedEngine
from learners.engines.programs import SequentialEngine
from learners.mathematics.losses import divergence_rows, dual_temperature_loss
from learners.mathematics.robust import AveragingSettings, clipped, combine
from learners.transport import emd_similarity, solve

ROOT = Path(__file__).parents[2]
DOUBLE, SINGLE = 1e-9, 1e-4
"""Largest relative deviation from the CPU's result in double precision: computed in double, and in single precision."""


def apart(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """Return the largest deviation of tensors relative to the largest value of each."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        exact = b.detach().cpu().double()
        scale = max(float(exact.abs().max()), 1e-300)
        worst = max(worst, float((a.detach().cpu().double() - exact).abs().max()) / scale)
    return worst


def judged(work: str, double: float, single: float | None = None, *, limit: float = DOUBLE) -> Row:
    """Return the row of a deviation from the CPU's result in double precision."""
    seen, target, met = f"{double:.1e}", f"<= {limit:.0e}", double <= limit
    if single is not None:
        seen, target = f"{seen}, float32 {single:.1e}", f"{target}, float32 <= {SINGLE:.0e}"
        met = met and single <= SINGLE
    return Row(
        work=work,
        reference="CPU, float64: largest relative deviation",
        target=target,
        seen=seen,
        met=met,
        values={"double": double, "single": single},
    )


def both(work: str, compute: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], device: str) -> Row:
    """Compare a function on the device, in both precisions, with the CPU's in double precision."""
    exact = compute(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs))
    deviations = []
    for dtype in (torch.float64, torch.float32):
        there = [tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in inputs]
        deviations.append(apart(compute(*there), exact))
    return judged(work, *deviations)


def with_gradients(loss: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """Return a function of the loss that also gives its gradients in all arguments."""

    def compute(*inputs: Tensor) -> list[Tensor]:
        leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
        value = loss(*leaves)
        return [value, *torch.autograd.grad(value, leaves)]

    return compute


def mathematics(setup: CheckSetup) -> list[Row]:
    """Losses with gradients, blur, augmentation, averaging and the transport solver."""
    generator = torch.Generator().manual_seed(0)
    count = 16 if setup.tiny else 256
    q, k = (torch.nn.functional.normalize(torch.randn(count, 32, generator=generator), dim=1) for _ in range(2))
    device = setup.device
    rows = [
        both("dual-temperature loss and its gradients", with_gradients(dual_temperature_loss), (q, k), device),
        both("InfoNCE and its gradients",
             with_gradients(lambda a, b: dual_temperature_loss(a, b, t_alpha=0.1, t_beta=0.1)), (q, k), device),
        both("CDL's divergence and its gradients", with_gradients(lambda a, b: divergence_rows(a, b, tau=4.0).mean()),
             (q, k), device),
    ]  # fmt: skip
    rows += pictures(setup, generator)
    rows += averaging(setup, generator)
    return rows + transport(setup)


def pictures(setup: CheckSetup, generator: torch.Generator) -> list[Row]:
    """Motion blur and augmentation, with the same draws."""
    count = 8 if setup.tiny else 128
    mean, std, device = (0.4, 0.4, 0.4), (0.2, 0.2, 0.2), setup.device
    pictures_ = torch.rand(count, 3, 32, 32, generator=generator)
    lengths, angle = torch.rand(count, generator=generator) * 9, torch.rand(count, generator=generator) * 3
    one, two = draw_view_one(count, (32, 32), generator), draw_view_two(count, (32, 32), generator)
    return [
        both("motion blur along rows", lambda x, length: [motion_blur(x, length)], (pictures_, lengths), device),
        both("motion blur at angles", lambda x, length, a: [motion_blur(x, length, a)], (pictures_, lengths, angle),
             device),
        both("first view, same draws", lambda x: [apply_view_one(x, one, mean, std)], (pictures_,), device),
        both("second view, same draws", lambda x: [apply_view_two(x, two, mean, std)], (pictures_,), device),
    ]  # fmt: skip


def averaging(setup: CheckSetup, generator: torch.Generator) -> list[Row]:
    """Every rule of averaging: the device computes in double precision too, so float32 comes out the same."""
    states = [{"a": torch.randn(50, 20, generator=generator), "n": torch.tensor(3 + i)} for i in range(5)]
    base = {name: tensor.clone() for name, tensor in states[0].items()}
    rows = []
    for settings in (
        AveragingSettings(),
        AveragingSettings(aggregation="median"),
        AveragingSettings(aggregation="trimmed-mean", trim=0.2),
        AveragingSettings(clip_norm=0.5),
    ):
        weights = [0.1, 0.2, 0.3, 0.15, 0.25]
        here = combine([clipped(state, base, settings) for state in states], weights, settings)
        there, base_there = (
            [{n: t.to(setup.device) for n, t in s.items()} for s in group] for group in (states, [base])
        )
        got = combine([clipped(state, base_there[0], settings) for state in there], weights, settings)
        clip = f", clipped at {settings.clip_norm:g}" if settings.clip_norm else ""
        rows.append(judged(f"averaging: {settings.aggregation}{clip}", apart(list(got.values()), list(here.values())),
                           limit=1e-6))  # fmt: skip
    return rows


def transport(setup: CheckSetup) -> list[Row]:
    """The solver against HiGHS on a few problems, and against itself on the CPU, with the similarity's gradients."""
    rows, few = [], 2 if setup.tiny else 6
    for n in (16,) if setup.tiny else (16, 25, 49):
        case = problems(n, 8 if setup.tiny else 512, "cpu")
        here, there = solve(*case), solve(*(part.to(setup.device) for part in case))
        exact = torch.tensor(highs(*(part[:few] for part in case)), dtype=torch.float64)
        rows.append(judged(f"transport values, n = {n}", apart([there.value], [here.value]), limit=1e-8))
        rows.append(judged(f"transport values, n = {n}, {few} problems, against HiGHS",
                           apart([there.value[:few]], [exact]), limit=1e-8))  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    u, v = (torch.randn(4, 16, 32, generator=generator, dtype=torch.float64) for _ in range(2))
    similarity = with_gradients(lambda a, b: emd_similarity(a, b).sum())
    found = similarity(u.to(setup.device), v.to(setup.device))
    return [*rows, judged("transport similarity and its gradients", apart(found, similarity(u, v)), limit=1e-6)]


def learners_of(setup: CheckSetup) -> list[str]:
    """Return the learners to try: all, or two of them to rehearse."""
    return ["cdl", "flsimco"] if setup.tiny else sorted(registered())


def engines(setup: CheckSetup) -> list[Row]:
    """Local trainings of every learner, one after the other and stacked, in double precision."""
    rows = []
    for name in learners_of(setup):
        # Adam turns the rounding of gradients that are almost 0 into steps of full length
        settings = {"optimizer": "sgd"} if name in {"cdl", "dsgd", "fedavg-steering"} else {}
        here, there = (jobs_of(tiny_learner(name, device, **settings)) for device in ("cpu", setup.device))
        on_cpu, on_device = Doubled("cpu"), Doubled(setup.device)
        pairs = [list(zip(a, b, strict=True)) for a, b in zip(here, there, strict=True)]
        exact = results(SequentialEngine(), [[on_cpu(a, a) for a, _ in call] for call in pairs])
        calls = [[on_device(a, b) for a, b in call] for call in pairs]
        for label, engine in (("sequential", SequentialEngine()), ("batched", StackedEngine())):
            work = f"{name}: {len(exact)} vehicles of 2 rounds, {label}"
            rows.append(judged(work, apart(results(engine, calls), exact)))  # type: ignore[arg-type]
    return rows


def rounds(setup: CheckSetup) -> list[Row]:
    """Whole rounds of every learner in single precision, with evaluation: what a user runs, finite and near the CPU."""
    rows = []
    for name in learners_of(setup):
        expected = play(tiny_learner(name, "cpu", engine="sequential"))[0]["mean loss"]
        for engine in ("sequential", "batched"):
            told_ = play(tiny_learner(name, setup.device, engine=engine))
            loss = told_[0]["mean loss"]
            off = abs(loss - expected) / max(abs(expected), 1e-12)
            finite = all(torch.tensor(list(chain.from_iterable(one.values() for one in told_))).isfinite().tolist())
            rows.append(Row(work=f"{name}: two rounds with evaluation, float32, {engine}",
                            reference="CPU, sequential, float32: relative deviation of the first round's loss",
                            target="<= 1e-2, all figures finite", seen=f"{off:.1e}{'' if finite else ', not finite'}",
                            met=off <= 1e-2 and finite, values={"deviation": off}))  # fmt: skip
    return rows


def same_bits(setup: CheckSetup) -> list[Row]:
    """Whether the same seed gives the same bits twice."""
    rows = []
    for name in learners_of(setup)[-1 if setup.tiny else 0 :]:
        for engine in ("sequential", "batched"):
            twice = []
            for _ in range(2):
                learner = tiny_learner(name, setup.device, engine=engine)
                play(learner, rounds=2)
                state = learner.state_dict()
                twice.append([state[key].detach().cpu().clone() for key in sorted(state)])
            same = all(torch.equal(a, b) for a, b in zip(*twice, strict=True))
            switch = "deterministic algorithms" if torch.are_deterministic_algorithms_enabled() else "torch's defaults"
            rows.append(Row(work=f"{name}: two rounds twice, {engine}, {switch}", reference="the first time",
                            target="the same bits",
 seen="the same bits" if same else "other bits", met=same))  # fmt: skip
    return rows


def pytest_on_cuda(setup: CheckSetup) -> list[Row]:
    """Run the learners' tests that are marked for CUDA, where pytest is installed."""
    if not setup.cuda:
        raise NotRun("the device is no GPU")
    if importlib.util.find_spec("pytest") is None:
        raise NotRun("pytest is not installed")
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "tests/learners", "-q", "-p", "no:cacheprovider",
               "--continue-on-collection-errors"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=max(10, setup.left_s), check=False)
    (Path(setup.folder) / "pytest.txt").write_text(done.stdout + done.stderr)
    lines = done.stdout.strip().splitlines()
    last = lines[-1].strip("= ") if lines else "nothing said"
    return [Row(work="pytest -m cuda tests/learners", reference="the tests' own", target="none fails",
                seen=f"{last} (pytest.txt); files that want more than this machine has are errors of collection",
                met=" failed" not in last and " passed" in last)]  # fmt: skip
