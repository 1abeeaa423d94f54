"""Training by steps that are recorded once and replayed, for a GPU that is faster than its kernels can be launched.

A step launches the same kernels for every vehicle of a program. So it is recorded once, as a CUDA graph, on tensors
that keep their place in memory. A local training copies its tensors there, replays the step, each time with other
draws, and copies the result out. The kernels are those of ``SequentialEngine``, and so are the bits.

A recording needs steps that read no value of a tensor and whose shapes do not depend on one. Other programs are trained
one vehicle after the other, with a warning. A recording is compared with the step itself when a program begins to use
it, and in later calls again, to find steps that depend on more than their arguments. See also ``store``.
"""

from __future__ import annotations

import copy
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from learners.data.moving import copy_each, copy_into, pack, packed_sizes, to_device, unpack
from learners.engines.lanes import Lane
from learners.engines.programs import (
    Program,
    SequentialEngine,
    Tensors,
    Trained,
    TrainingJob,
    add_given,
    device_of,
    mix_into,
    run_if_memory_suffices,
    summarise,
)
from learners.engines.store import MOST_RECORDINGS, RecordingStore, Replicas
from vnetsim.errors import RunError
from vnetsim.learning.device import out_of_memory
from vnetsim.learning.global_generators import GlobalGenerators

LOGGER = logging.getLogger(__name__)

RATE = "learning rate"
"""Name of the step size among the draws of a step; no draw has a space in its name."""
MOST_LANES = 8
"""Vehicles that are trained at a time at most."""
GAIN = 0.9
"""With twice as many at a time, a vehicle must take at most this share of the time."""
TRIALS, TRIAL_STEPS = 3, 8
"""Local trainings, and their steps at most, of the measurement that chooses the number of lanes."""
COMPARED_CALLS, COMPARED_AGAIN = 4, 16
"""A recording is compared with its step in the first calls of ``train``, and then in every 16th."""
SPREAD, REPEATS = 8.0, 4
"""A replayed step may differ from the plain one this many times as much as the plain one does from its repetitions."""
NOISE = 0.01
"""More than this share of the largest value is no rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """The random draws of all steps of a local training, and its step size under the name ``RATE``."""

    rows: Tensor
    """Packed, one row per step, on the CPU; see ``unpack``."""
    like: Tensors
    """Tensors of the names, types and shapes in a row."""


def draw_all_steps(job: TrainingJob) -> Draws | None:
    """Return the draws of a job's steps, in pinned memory if they go to CUDA; None if shapes differ between steps."""
    generator = torch.Generator().manual_seed(job.training.seed)
    steps = list(job.program.draw(job.training, generator))
    if any(_shapes(step) != _shapes(steps[0]) for step in steps):
        return None
    rate = torch.tensor(job.training.learning_rate, dtype=torch.float64)
    like = {**steps[0], RATE: rate}
    pinned = device_of(job.program.network).type == "cuda"
    rows = torch.empty((len(steps), sum(packed_sizes(like))), dtype=torch.uint8, pin_memory=pinned)
    places = unpack(rows, like)
    places.pop(RATE).fill_(rate)
    for name, place in places.items():
        place.copy_(torch.stack([step[name] for step in steps]))  # faster than with out=place
    return Draws(rows=rows, like=like)


class Recording:
    """The local training of a program, recorded and replayed in ``lane``.

    It serves all jobs of the program whose tensors have the names, types and shapes of the example ``job`` and its
    ``draws``.
    """

    def __init__(self, job: TrainingJob, draws: Draws, lane: Lane) -> None:
        self.lane = lane
        self._device = device_of(job.program.network)
        with lane.activate():
            self._network = copy.deepcopy(job.program.network).train()
            self._base, self._given, self._optimizer_state = (
                {name: torch.empty(one.shape, dtype=one.dtype, device=self._device) for name, one in part.items()}
                for part in (job.base, job.given, job.optimizer)
            )
            self._row = draws.rows[0].to(self._device, copy=True)
            self._drawn = unpack(self._row, draws.like)
            rate = self._drawn.pop(RATE)
            self._copy_in(job)
            self._network.load_state_dict(self._base)
            self._optimizer = job.program.optimizer(dict(self._network.named_parameters()), rate, self._optimizer_state)
            self._figures: dict[str, Tensor] = {}
            # not an attribute: a program refers to all data of its run, and a graph needs the tensors alone
            self._step = lane.record(partial(self._take_step, job.program))
            self._restart = lane.record(self._load_copied)
            # each in a row of its own, so that an upload does not keep the optimizer's state alive
            self._saved = [(pack(tensors), tensors) for tensors in self._states()]
            self._save = lane.record(self._copy_out)

    def train(self, job: TrainingJob, draws: Draws, *, steps: int | None = None) -> Trained:
        """Return a job's result before ``summarise``; with ``steps``, that of its first steps without ``job.mixed``."""
        mixed, steps = (job.mixed, job.training.steps) if steps is None else ((), steps)
        due = [(round(share * steps), other) for share, other in mixed]
        with self.lane.activate():
            rows = draws.rows.to(self._device, non_blocking=True)
            figures = torch.empty((steps, *self._figure_row.shape), dtype=torch.uint8, device=self._device)
            self._copy_in(job)
            self._restart()
            for step in range(steps):
                mix_into(self._network, [other for when, other in due if when == step])
                self._row.copy_(rows[step])
                self._step()
                figures[step].copy_(self._figure_row)
            mix_into(self._network, [other for when, other in due if when == steps])
            self._save()
            state, optimizer = (unpack(row.clone(), tensors) for row, tensors in self._saved)
            return Trained(state=state, optimizer=optimizer, figures=unpack(figures, self._figures))

    def _copy_in(self, job: TrainingJob) -> None:
        """Copy a job's base, given tensors and optimizer state into the tensors that the recording reads."""
        for here, given in ((self._base, job.base), (self._given, job.given), (self._optimizer_state, job.optimizer)):
            there = to_device(given, self._device)
            copy_each(list(here.values()), [there[name].detach() for name in here])

    def _load_copied(self) -> None:
        """Set the network and the optimizer to the states that ``_copy_in`` copied."""
        copy_into(self._network, self._base)
        self._optimizer.restart(self._optimizer_state)

    def _take_step(self, program: Program) -> None:
        """Train the network for one step on the draws in ``_row``, and copy its metrics into ``_figure_row``."""
        batch = add_given(program.prepare(self._drawn), self._given)
        loss, figures = program.loss(self._network, batch, self._base)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        found = {name: figure.detach() for name, figure in figures.items()}
        if not self._figures:
            self._figure_row = pack(found)
            self._figures = unpack(self._figure_row, found)
        copy_each(list(self._figures.values()), [found[name] for name in self._figures])

    def _states(self) -> list[dict[str, Tensor]]:
        """Return the state of the network and that of the optimizer, in this order, not copied."""
        return [dict(self._network.state_dict()), self._optimizer.state()]

    def _copy_out(self) -> None:
        """Pack network and optimizer state into the rows ``_saved``, from which ``train`` copies its result."""
        for row, tensors in self._saved:
            copy_each(list(unpack(row, tensors).values()), list(tensors.values()))


class RecordedEngine:
    """Trains vehicles by replaying recorded steps, several vehicles at a time in lanes; see the module.

    ``lanes`` is the number of vehicles at a time; None: as many as a measurement shows to be fast for a program, and
    memory allows. Recordings in ``store`` are used again; None: those of this engine alone.
    """

    def __init__(
        self, make_lane: Callable[[], Lane], *, lanes: int | None = None, store: RecordingStore | None = None
    ) -> None:
        self._make_lane, self._lanes_given = make_lane, lanes
        self._store = store or RecordingStore()
        self._replicas: dict[object, Replicas] = {}
        self._refused: dict[object, str] = {}
        self._calls = 0
        self._alone = SequentialEngine()

    @property
    def remark(self) -> str:
        """How vehicles were trained, in words for manifest and report; empty before the first training."""
        counts = sorted({len(replicas.recordings) for replicas in self._replicas.values()})
        recorded = [f"recorded steps, {' or '.join(map(str, counts))} at a time"] if counts else []
        return "; ".join([*recorded, *sorted({f"one after the other: {why}" for why in self._refused.values()})])

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; RunError if there is not enough memory for one job alone."""
        with self._store.lock:
            self._calls += 1
            compares = self._calls <= COMPARED_CALLS or self._calls % COMPARED_AGAIN == 0
            for lane in self._store.lanes:
                lane.wait_for_others()
            results: dict[int, Trained] = {}
            alike = Counter(_batch_key(job) for job in jobs)
            seen: Counter[object] = Counter()
            for i, job in enumerate(jobs):
                if job.program in self._refused:
                    continue
                # in this thread, while the device computes: threads would wait for each other at Python's lock
                draws = run_if_memory_suffices(draw_all_steps, job)
                if draws is None:
                    self._refuse(job.program, "random draws whose shapes change, or that do not fit into memory")
                    continue
                key = job.program, *(_shapes(part) for part in (draws.like, job.given, job.optimizer))
                if key not in self._replicas:
                    self._record(key, job, draws)
                elif compares and not seen[key]:
                    self._compare(key, job, draws)
                replicas = self._replicas.get(key)
                if replicas:
                    if not seen[key]:
                        self._add_lanes(replicas, job, draws, wanted=alike[_batch_key(job)])
                    recordings = replicas.recordings
                    trained = run_if_memory_suffices(recordings[seen[key] % len(recordings)].train, job, draws)
                    results |= {} if trained is None else {i: trained}
                seen[key] += 1
            for lane in self._store.lanes:
                lane.let_others_wait()
            results = dict(zip(results, summarise(list(results.values())), strict=True))
            left = [i for i in range(len(jobs)) if i not in results]
            results |= zip(left, self._train_alone([jobs[i] for i in left]), strict=True)
            return [results[i] for i in range(len(jobs))]

    def _train_alone(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return results of unrecorded training; if memory is short, drop others' recordings and try once more."""
        try:
            return self._alone.train(jobs)
        except RunError:
            if not self._store.forget_others(self._replicas.values()):
                raise
        return self._alone.train(jobs)

    def _record(self, key: tuple[object, ...], job: TrainingJob, draws: Draws) -> None:
        """Set ``_replicas[key]``, found or new; else refuse the program or, after too many shapes, all new shapes."""
        if job.program in self._refused or None in self._refused:
            return
        if len(self._replicas) == MOST_RECORDINGS:
            self._refuse(None, f"steps of more than {MOST_RECORDINGS} shapes, as of small silos of many sizes")
            return
        found, full, before = None, False, GlobalGenerators(device_of(job.program.network))
        # shapes of few vehicles are spread over the lanes that others use
        most = max([1, *(len(replicas.recordings) for replicas in self._replicas.values())])
        lane = self._lane(len(self._replicas) % most)
        try:
            found = self._find_or_make(key, job, draws, lane)
            why = "" if found else "a replayed step differs from the step itself"
        except Exception as error:  # noqa: BLE001 - of any kind: the step may be the user's
            full, said = out_of_memory(error), f"{type(error).__name__}: {error}".partition("\n")[0]
            why = "out of memory for a recording" if full else said
        if not lane.usable:
            self._refuse(None, why)
        if before.moved:
            before.restore()
            why = "the network draws random numbers in its forward pass"
        if full and lane.usable and self._store.forget_others(self._replicas.values()):
            self._record(key, job, draws)
        elif why or found is None:
            self._refuse(job.program, why)
        else:
            self._replicas[key] = found
            self._store.keep(found)

    def _find_or_make(self, key: tuple[object, ...], job: TrainingJob, draws: Draws, lane: Lane) -> Replicas | None:
        """Return the store's recordings of a job's step or a new one; None if a replay differs from plain training."""
        steps, program = min(2, job.training.steps), job.program
        value = None if program.value is None else (program.value, _arithmetic_settings(), *key[1:])
        found = self._store.find(value, program.constants)
        if found is not None and self._agrees(found.recordings[0], job, draws, steps=steps):
            return found
        made = Recording(job, draws, lane)
        agrees = self._agrees(made, job, draws, steps=steps)
        return Replicas(value=value, constants=program.constants, recordings=[made]) if agrees else None

    def _add_lanes(self, replicas: Replicas, job: TrainingJob, draws: Draws, *, wanted: int) -> None:
        """Record ``replicas`` in up to ``wanted`` lanes; set ``enough`` if more are no faster or memory is short."""
        recordings, most = replicas.recordings, min(wanted, self._lanes_given or MOST_LANES)
        before_s = math.nan
        while not replicas.enough and len(recordings) < most:
            free, faster = self._lane(0).free_bytes(), False
            with suppress(RuntimeError):  # where memory is short, not only errors that say so
                if math.isnan(before_s) and not self._lanes_given:
                    before_s = _seconds_a_vehicle(recordings, job, draws)
                places = range(len(recordings), min(2 * len(recordings), most))
                both = [*recordings, *(Recording(job, draws, self._lane(i)) for i in places)]
                taken_s = before_s if self._lanes_given else _seconds_a_vehicle(both, job, draws)
                faster = bool(self._lanes_given) or taken_s < GAIN * before_s
            replicas.enough = not faster or 2 * (free - self._lane(0).free_bytes()) > free
            if not replicas.enough:
                recordings[:], before_s = both, taken_s

    def _compare(self, key: object, job: TrainingJob, draws: Draws) -> None:
        """Replay a job's first step; if it differs from the plain one, drop ``key`` and refuse the program."""
        recordings = self._replicas[key].recordings
        try:
            agrees = self._agrees(recordings[self._calls % len(recordings)], job, draws, steps=1)
        except RunError:  # no memory for the plain step besides
            return
        if not agrees:
            self._store.drop(self._replicas.pop(key))
            self._refuse(
                job.program,
                "the step depends on more than its arguments; results of up to the last "
                f"{COMPARED_AGAIN} rounds of training may be wrong",
            )

    def _agrees(self, recording: Recording, job: TrainingJob, draws: Draws, *, steps: int) -> bool:
        """Return whether replaying ``steps`` steps equals plain training up to noise; RunError if memory is short."""

        def replay() -> Trained:
            """Return the result of replayed steps; the current stream waits for it."""
            found = recording.train(job, draws, steps=steps)
            recording.lane.let_others_wait()
            return found

        alone = [replace(job, training=replace(job.training, steps=steps), mixed=())]
        ours, [theirs] = replay(), self._alone.train(alone)
        apart = _difference(ours, theirs)
        # on a device whose sums depend on the order of its threads, both may differ from themselves, often or seldom
        return apart == 0 or any(
            apart <= min(NOISE, SPREAD * _difference(theirs, self._alone.train(alone)[0]))
            or _difference(replay(), theirs) == 0
            for _ in range(REPEATS)
        )

    def _refuse(self, program: Program | None, why: str) -> None:
        """Train a program (None: all shapes not recorded yet) without recordings from now on; warn once per reason."""
        if why not in self._refused.values():
            LOGGER.warning("vnetsim: vehicles are trained one after the other: %s.", why)
        self._refused.setdefault(program, why)

    def _lane(self, i: int) -> Lane:
        """Return the store's lane ``i``, made if it does not exist yet; call only with the store's lock held."""
        return self._store.lane(i, self._make_lane)


def _batch_key(job: TrainingJob) -> tuple[object, int]:
    """Return program and images per step, equal for jobs whose batches have the same shapes."""
    return job.program, job.program.count(job.training.silo)


def _arithmetic_settings() -> tuple[bool, ...]:
    """Return torch's settings that decide which kernels a step launches."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    choices = convolutions.allow_tf32, convolutions.deterministic, convolutions.benchmark
    return products.allow_tf32, *choices, torch.are_deterministic_algorithms_enabled()


def _seconds_a_vehicle(recordings: Sequence[Recording], job: TrainingJob, draws: Draws) -> float:
    """Return the measured seconds per vehicle of the job's first steps, trained by all recordings at the same time."""
    begin_s = 0.0
    for repeats in (1, TRIALS):  # the first time takes longer
        begin_s = perf_counter()
        for recording in [*recordings] * repeats:
            recording.train(job, draws, steps=min(TRIAL_STEPS, job.training.steps))
        for recording in recordings:
            recording.lane.synchronize()
    return (perf_counter() - begin_s) / len(recordings)


def _shapes(tensors: Tensors) -> tuple[tuple[str, torch.dtype, torch.Size], ...]:
    """Return names, types and shapes of tensors, to compare them."""
    return tuple((name, tensor.dtype, tensor.shape) for name, tensor in tensors.items())


def _difference(one: Trained, other: Trained) -> float:
    """Return the largest difference as a share of the largest value in that part; inf for integers; NaN equals NaN."""
    shares = [0.0]
    # a single tensor may be noise throughout, as a bias before BatchNorm is under Adam
    for part in ("state", "optimizer", "figures"):
        pairs = [(tensor, getattr(other, part)[name]) for name, tensor in getattr(one, part).items()]
        apart, largest = [], []
        for a, b in pairs:
            differs = (a != b) & ~(a.isnan() & b.isnan())
            if not a.is_floating_point():
                shares.append(math.inf if bool(differs.any()) else 0.0)
            else:
                apart.append((a - b).where(differs, 0.0).abs().amax().double())
                largest.append(b.abs().amax().double())
        if apart and bool(torch.stack(apart).ne(0).any()):
            shares.append(float((torch.stack(apart).amax() / torch.stack(largest).amax()).nan_to_num(nan=math.inf)))
    return max(shares)
