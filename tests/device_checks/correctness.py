"""Mathematics, engines and learners on a device against the CPU in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from device_checks.rows import CheckSetup, Row
from device_checks.tiny_data import draw_view_one, draw_view_two
from device_checks.tiny_rounds import Altered, AlteredEngine, Disturbed, Doubled, jobs_of, play, results, tiny_learner
from device_checks.transport_work import highs, problems
from learners.data.augment import apply_view
from learners.data.motion import motion_blur
from learners.engines.programs import SequentialEngine
from learners.engines.side_by_side import create_engine
from learners.mathematics.losses import divergence_rows, dual_temperature_loss
from learners.mathematics.robust import AveragingSettings, clip, combine
from learners.mathematics.transport import solve
from vnetsim.experiment import Arithmetic

DOUBLE, SINGLE = 1e-9, 1e-4
"""Largest relative deviation from the CPU's result in double precision: computed in double, and in single precision."""
MARGIN = 10
"""How much further than plain steps are from themselves, where a device adds in no fixed order."""
ROUNDS, SAMPLES, FARTHER, LEAST = 2, 2, 10, 1e-3
"""Played; float32 runs on the CPU that show what rounding does; how much coarser a device may be, as convolutions by
Winograd's algorithm are; a distance that is always allowed: a wrong result is off by more."""


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
    lengths = torch.rand(count, generator=generator) * 9
    one, two = draw_view_one(count, (32, 32), generator), draw_view_two(count, (32, 32), generator)
    return [
        both("motion blur", lambda x, length: [motion_blur(x, length)], (pictures_, lengths), device),
        both("first view, same draws", lambda x: [apply_view(x, one, mean, std)], (pictures_,), device),
        both("second view, same draws", lambda x: [apply_view(x, two, mean, std)], (pictures_,), device),
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
        here = combine([clip(state, base, settings) for state in states], weights, settings)
        there, base_there = (
            [{n: t.to(setup.device) for n, t in s.items()} for s in group] for group in (states, [base])
        )
        got = combine([clip(state, base_there[0], settings) for state in there], weights, settings)
        bound = f", clipped at {settings.clip_norm:g}" if settings.clip_norm else ""
        rows.append(judged(f"averaging: {settings.aggregation}{bound}", apart(list(got.values()), list(here.values())),
                           limit=1e-6))  # fmt: skip
    return rows


def transport(setup: CheckSetup) -> list[Row]:
    """The solver against HiGHS on a few problems, and against itself on the CPU."""
    rows, few = [], 2 if setup.tiny else 6
    for n in (16,) if setup.tiny else (16, 25, 49):
        case = problems(n, 8 if setup.tiny else 512, "cpu")
        here, _ = solve(*case)
        there, _ = solve(*(part.to(setup.device) for part in case), solver="interior-point")
        exact = torch.tensor(highs(*(part[:few] for part in case)), dtype=torch.float64)
        rows.append(judged(f"transport values, n = {n}", apart([there], [here]), limit=1e-8))
        rows.append(judged(f"transport values, n = {n}, {few} problems, against HiGHS",
                           apart([there[:few]], [exact]), limit=1e-8))  # fmt: skip
    return rows


VARIANTS: list[tuple[str, dict[str, Any], Arithmetic]] = [
    ("float32", {}, Arithmetic()),
    ("deterministic algorithms", {}, Arithmetic(deterministic=True)),
    ("TF32", {}, Arithmetic(tf32=True)),
    ("bfloat16", {"precision": "bfloat16"}, Arithmetic()),
    ("compiled", {"engine": "compiled"}, Arithmetic()),
]
"""Arithmetic by name, with the settings of the learner and of the run."""


def engines(setup: CheckSetup, name: str) -> list[Row]:
    """The engine that a run uses against plain steps, one vehicle after the other: the same bits.

    Both train the local trainings of two rounds twice: what is recorded in the first is only repeated in the second.
    Where plain steps differ from themselves, the engine may differ as much, ``MARGIN`` times.
    """
    rows = []
    variants = VARIANTS if name == "flsimco" and setup.cuda else VARIANTS[:1]  # a CPU has but one arithmetic
    for variant, settings, arithmetic in variants:
        with arithmetic.applied():
            calls = jobs_of(tiny_learner(name, setup.device, **settings))
            plain, engine = SequentialEngine(), create_engine("auto", torch.device(setup.device))
            exact, again = results(plain, calls), results(plain, calls)
            found = [results(engine, calls) for _ in range(2)]
        off, noise = max(apart(one, exact) for one in found), apart(again, exact)
        same = all(torch.equal(a, b) for one in found for a, b in zip(one, exact, strict=True))
        rows.append(
            Row(work=f"{name}: {len(exact)} local trainings of 2 rounds, twice, {variant}",
                reference="plain steps, one vehicle after the other", target="the same bits",
                seen="the same bits" if same else f"off by {off:.1e}; plain steps by {noise:.1e} from themselves",
                met=same or off <= MARGIN * noise, values={"off": off, "noise": noise})
        )  # fmt: skip
    return rows


def rounds(setup: CheckSetup, name: str) -> list[Row]:
    """Whole rounds of a learner in single precision, with evaluation: what a user runs, finite and near the CPU.

    Where an activation is almost 0, rounding decides about its gradient, and the rounds after it move apart. How far is
    measured on the CPU: float32 with initial weights off in their last place against float64, the largest distance of
    ``SAMPLES`` runs. The device may be ``FARTHER`` times as far from the CPU's float64.
    """
    exact, _ = states(tiny_learner(name, "cpu"), altered=Doubled("cpu"))
    allowed = torch.full((ROUNDS,), LEAST)
    for seed in range(SAMPLES):
        near, _ = states(tiny_learner(name, "cpu"), altered=Disturbed(seed))
        allowed = torch.maximum(allowed, FARTHER * distances(near, exact))
    there, told = states(tiny_learner(name, setup.device))
    off, finite = distances(there, exact), bool(torch.tensor(told).isfinite().all())
    return [
        Row(work=f"{name}: {ROUNDS} rounds with evaluation, float32",
            reference="CPU, trained in float64: distance of the states over how far they moved, round by round",
            target=f"<= {_rounded(allowed)}, all figures finite",
            seen=f"{_rounded(off)}{'' if finite else ', not finite'}",
            met=finite and bool((off <= allowed).all()), values={"distances": _rounded(off)})
    ]  # fmt: skip


def states(learner: Any, *, altered: Altered | None = None) -> tuple[list[Tensor], list[float]]:
    """Play rounds; return what a learner's state holds at first, before them and after each, and all figures."""
    if altered:
        learner._task.engine = AlteredEngine(altered)
    names = sorted(learner.state_dict())
    seen, told = [_flat_state(learner, names)], []
    for figures in play(learner, ROUNDS):
        told += figures.values()
        seen.append(_flat_state(learner, names))
    return seen, told


def distances(there: Sequence[Tensor], exact: Sequence[Tensor]) -> Tensor:
    """Return how far states are from the exact ones after each round, over how far these have moved since the first."""
    start = exact[0]
    return torch.stack([(a - b).norm() / (b - start).norm() for a, b in zip(there[1:], exact[1:], strict=True)])


def _flat_state(learner: Any, names: Sequence[str]) -> Tensor:
    state = learner.state_dict()
    return torch.cat([state[name].double().reshape(-1) for name in names if state[name].is_floating_point()])


def _rounded(row: Tensor) -> str:
    return ", ".join(f"{value:.0e}" for value in row.tolist())


def same_bits(setup: CheckSetup, name: str) -> list[Row]:
    """Whether the same seed gives the same bits twice under deterministic algorithms."""
    try:
        with Arithmetic(deterministic=True).applied():
            first, second = (states(tiny_learner(name, setup.device))[0] for _ in range(2))
        seen = "the same bits" if all(map(torch.equal, first, second)) else "other bits"
    except RuntimeError as error:  # an operation that has no such algorithm
        seen = f"refused: {error}"[:300]
    return [
        Row(work=f"{name}: {ROUNDS} rounds twice, deterministic algorithms", reference="the first time",
            target="the same bits", seen=seen, met=seen == "the same bits")
    ]  # fmt: skip
