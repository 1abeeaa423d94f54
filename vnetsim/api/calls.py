"""Functions of the Python API; settings, checks and results are those of the commands of the same names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from vnetsim.api.results import Run, Traffic
from vnetsim.api.settings import (
    Rsus,
    Scenario,
    SettingTree,
    call_of,
    deadline_of,
    drop_objects,
    experiment_of,
    folder_of,
    join_values,
    learner_name,
    overrides_of,
    path_of,
    text_of,
)
from vnetsim.api.studies import CellsFailedError, Study
from vnetsim.display import progress_display
from vnetsim.errors import InputError
from vnetsim.experiment import ALL_ROUNDS
from vnetsim.experiment import Experiment as Settings
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import is_given, short_name
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import assemble
from vnetsim.runs.effect import with_given
from vnetsim.runs.runner import resume_run, start_or_resume, start_run
from vnetsim.runs.session import OnRound
from vnetsim.runs.traffic_recording import record_mobility
from vnetsim.runs.writer import choose_folder
from vnetsim.scenario.settings_file import LAPTOP
from vnetsim.storage.records import COMPARISON
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.parts import part_of
from vnetsim.study.request import plan_of
from vnetsim.study.runner import compare as run_comparison

Show = bool | ProgressDisplay | None
Engine = Literal["local", "ray"]


def run(
    scenario: Scenario,
    *,
    learner: str | type | None = None,
    time_s: float | None = None,
    rounds: int | None = None,
    scale: str = LAPTOP,
    seed: int | None = None,
    device: str | None = None,
    rsu: Rsus = None,
    out: str | os.PathLike[str] | None = None,
    settings: SettingTree | None = None,
    progress: Show = None,
    on_round: OnRound | None = None,
    trust: bool = False,
    timing_only: bool = False,
    time_limit_s: float | None = None,
    command: Sequence[str] | None = None,
    **keys: Any,
) -> Run:
    """Simulate traffic and train a learner over the vehicles that commit: ``vnetsim run``.

    The same arguments give the same tables and weights as the command line, bit for bit on a CPU with as many threads.

    Args:
        scenario: a ``.sumocfg``, an FCD recording, ``"gaussian"``, an experiment ``.toml``, a run directory whose
            traffic is replayed, or an ``Experiment``.
        learner: a name such as ``"fedefm"``, one of a file as ``"path/to/file.py:CLASS"``, or a class, which only this
            process knows: put it in a file to resume elsewhere; default ``"flsimco"``.
        time_s: simulated time to run (s); default 600 s, or until ``rounds`` are done where they are given.
        rounds: rounds to run; default as many as the time allows.
        scale: ``"laptop"`` trains with the defaults; ``"paper"`` with the method's published network, batch and steps,
            unless settings or files say otherwise. It changes what is trained, not what is timed.
        seed: of every random stream; default 0.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; default ``"auto"``.
        rsu: where to place RSUs: a junction or ``"x,y"``, each with ``":range_m"`` if wanted; or several;
            default the scenario's, see ``TrafficSettings.rsu``.
        out: folder to make; default a new one below ``runs/``.
        settings: any other setting, by dotted key, ``{"round.quorum": 10}``, or as tables.
        progress: True shows progress, False does not; None shows it in a notebook and on a terminal. Or an object with
            the methods of ``vnetsim.progress.ProgressDisplay``.
        on_round: called after every round with the number of finished rounds, summed over RSUs that aggregate by
            themselves, and the metrics then measured, by name. If it returns False, the run ends there as if its
            traffic had ended, and counts as finished.
        trust: let a run directory name code that is run, and fetch data.
        timing_only: play the rounds without training, over all of the traffic unless ``time_s`` or ``rounds`` ends it;
            ``Run.schedule`` then says who would train when.
        time_limit_s: seconds of wall time after which the run stops at the end of a round; every call finishes at
            least one new round. ``out`` must name its folder. A call with the same settings and ``out`` continues it
            (``on_round`` is called for earlier rounds too), and does nothing once it has finished.
        command: the command to record in the manifest; default this call.
        keys: further settings, with two underscores for the dot: ``round__quorum=10``. Plug-ins may be given by the
            name of their table, and as classes: ``selection="oort"``, ``encoder=MyEncoder``.

    Raises:
        InputError: an argument is wrong; nothing was written. Messages name options of the command line, which have the
            names of the arguments here.
        RunError: the run failed; finished rounds are kept.
        UnfinishedError: ``time_limit_s`` was reached; the same call continues to the same result, bit for bit.
        KeyboardInterrupt: the run was interrupted; ``vnetsim.resume`` continues it with the same result, bit for bit.

    Examples:
        >>> import vnetsim
        >>> run = vnetsim.run(
        ...     "gaussian", learner="fedavg-classification", rounds=2, seed=1, out="first",
        ...     settings={"silos.count": 10, "data.train_images": 400, "data.test_images": 50}, learning__steps=1)
        >>> run.rounds["committed"].to_list()
        [3, 3]
        >>> run.participations["outcome"].value_counts().columns
        ['outcome', 'count']
        >>> run.metrics.filter(name="accuracy")["unit"].unique().to_list()
        ['%']
    """
    deadline_s = deadline_of(time_limit_s)
    if time_limit_s is not None:
        if timing_only:
            raise InputError(
                "--time-limit: with --timing-only nobody is trained and no round is saved; leave one of them out."
            )
        if out is None:
            raise InputError("--time-limit: name the folder with --out, so that the same command continues there.")
    with display_of(progress) as display:
        display.stage("loading")
        ends = {"time_s": time_s, "rounds": rounds}
        named = overrides_of(settings, rsu=rsu, learner=learner, **ends, device=device, seed=seed, **keys)
        given = drop_objects(named, keys)
        if timing_only:
            named = [(("rounds",), ALL_ROUNDS), (("traffic", "repeat"), False), *named]
        command = command or call_of("run", scenario, out, named)
        assembly = assemble(*experiment_of(scenario, named, trust=trust, scale=text_of(scale, "scale")))
        assembly = with_given(assembly, None if isinstance(scenario, Settings) else path_of(scenario), given)
        name = f"{short_name(assembly.experiment.learner)}{'-timing' * timing_only}"
        folder = folder_of(out) or choose_folder(assembly.experiment, name)
        common: dict[str, Any] = {"command": command, "progress": display, "on_round": on_round}
        if time_limit_s is None:
            start_run(assembly, folder, timing_only=timing_only, **common)
        else:
            start_or_resume(assembly, folder, deadline_s=deadline_s, **common)
        return Run(folder)


def mobility(
    scenario: Scenario,
    *,
    seed: int | None = None,
    rsu: Rsus = None,
    out: str | os.PathLike[str] | None = None,
    settings: SettingTree | None = None,
    progress: Show = None,
    command: Sequence[str] | None = None,
    **keys: Any,
) -> Traffic:
    """Record coverage windows only, without a learner or torch, and return them: ``vnetsim mobility``.

    Arguments and errors are those of ``vnetsim.run``; after a failure the windows so far are kept, and after an
    interruption ``vnetsim.resume`` continues. The result can be replayed: ``vnetsim.run(traffic.path)``.

    Examples:
        >>> import vnetsim
        >>> traffic = vnetsim.mobility("gaussian", seed=2, traffic__end_s=60, out="traffic")
        >>> traffic.status, traffic.windows.columns[:4]
        ('finished', ['window', 'vehicle_id', 'vehicle_type', 'rsu_id'])
    """
    with display_of(progress) as display:
        named = overrides_of(settings, rsu=rsu, seed=seed, **keys)
        experiment, _ = experiment_of(scenario, named, learns=False)
        command = command or call_of("mobility", scenario, out, named)
        folder = folder_of(out) or choose_folder(experiment, "mobility")
        return Traffic(record_mobility(experiment, folder, command=command, progress=display))


def compare(
    scenario: str | os.PathLike[str],
    *,
    learners: str | Iterable[str | type] | None = None,
    seeds: str | int | Iterable[int] | None = None,
    size: str | None = None,
    equal_schedule: str | None = None,
    sharp_control: bool = False,
    time_s: float | None = None,
    rounds: int | None = None,
    scale: str = LAPTOP,
    device: str | None = None,
    rsu: Rsus = None,
    workers: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    out: str | os.PathLike[str] | None = None,
    settings: SettingTree | None = None,
    progress: Show = None,
    yes: bool = False,
    trust: bool = False,
    timing_only: bool = False,
    time_limit_s: float | None = None,
    part: str | None = None,
    command: Sequence[str] | None = None,
    **keys: Any,
) -> Study:
    """Compare learners, or the arms of a study, over seeds on the same recorded traffic: ``vnetsim compare``.

    A second call with the same ``out`` runs only missing cells. With ``workers`` above 1, or on CUDA, cells run in
    processes of their own.

    Args:
        scenario: a study file, or a scenario as for ``vnetsim.run`` together with ``learners``.
        learners: at least two learners of one task; with ``timing_only`` one is enough, by default the scenario's.
        seeds: such as ``range(8)``; default the study's, or 0 to 9.
        size: a size of the study file; default its first.
        equal_schedule: a learner, or an arm of the study, whose payload and work all arms get.
        sharp_control: run each arm again without blurred images, as "ARM, sharp camera"; one learner is then enough.
        time_s: see ``vnetsim.run``; the same for all arms.
        rounds: see ``vnetsim.run``.
        scale: see ``vnetsim.run``; the same for all arms.
        device: see ``vnetsim.run``.
        rsu: see ``vnetsim.run``.
        workers: cells to run at once; by default 1, but on CUDA up to 8, as its free memory (8 GiB each) and the cores
            allow, unless a class of this process takes part.
        engine: ``"local"``, or ``"ray"`` for a Ray cluster.
        address: of the Ray cluster.
        out: folder of the comparison; default ``runs/SCENARIO-compare`` or ``runs/STUDY-SIZE``.
        settings: see ``vnetsim.run``.
        progress: see ``vnetsim.run``.
        yes: allow any number of runs.
        trust: see ``vnetsim.run``.
        timing_only: compare who could take part, without training, over all of the traffic or in ``rounds``. One arm is
            enough, and every seed has its own traffic if the scenario has a seed.
        time_limit_s: seconds of wall time after which no cell begins and running cells stop at the end of a round; the
            same call continues. A recording of traffic is not stopped. Not with ``engine="ray"``.
        part: ``"K/N"``: run only every N-th cell, from the K-th on, while other processes, also on other machines that
            share the folder ``out``, run other parts. Calls without it are refused meanwhile; later they run what is
            missing.
        command: see ``vnetsim.run``.
        keys: see ``vnetsim.run``.

    Raises:
        InputError: see ``vnetsim.run``.
        RunError: cells failed; its attribute ``study`` has the others, and the same call runs the failed ones again.
        UnfinishedError: ``time_limit_s`` was reached, or another process runs what is missing; the same call continues.
        KeyboardInterrupt: the comparison was interrupted; the same call continues it.

    Examples:
        >>> import vnetsim
        >>> study = vnetsim.compare(
        ...     "gaussian", learners=["flsimco", "fedavg"], seeds=range(2), rounds=1, out="look",
        ...     settings={"silos.count": 10, "data.train_images": 400, "data.test_images": 50, "learning.steps": 1,
        ...               "learning.linear_probe": "never", "traffic.end_s": 60, "cost.model": "trained",
        ...               "round.quorum": 2})
        >>> study.differences.select("first", "second", "metric", "seeds").row(0)
        ('flsimco', 'fedavg', 'knn_accuracy', 2)
    """
    deadline_s = deadline_of(time_limit_s)
    if isinstance(workers, bool) or not isinstance(workers, int | None):
        raise InputError(f"workers: expected a whole number, got {workers!r}.")
    with display_of(progress) as display:
        display.stage("loading")
        named = overrides_of(settings, rsu=rsu, time_s=time_s, rounds=rounds, device=device, **keys)
        plan, name = plan_of(
            path_of(scenario),
            named,
            learners=join_values(learners, learner_name, "learners", "['flsimco', 'fedavg']"),
            seeds=join_values(seeds, str, "seeds", "range(8)"),
            size=None if size is None else text_of(size, "size"),
            sharp_control=sharp_control,
            scale=text_of(scale, "scale"),
            equal_schedule=None if equal_schedule is None else text_of(equal_schedule, "equal_schedule"),
            yes=yes,
            trust=trust,
            timing_only=timing_only,
        )
        plugins = [item for cell in plan.cells for item in cell.experiment.plugins().items()]
        for key, given in ((key, name) for key, name in plugins if is_given(name)):
            workers = 1 if workers is None else workers
            if workers != 1 or engine != "local":
                raise InputError(
                    f"{key}: {short_name(given)} is a class of this process, which its workers do not have; put it in "
                    "a file and name it as path/to/file.py:CLASS, or leave workers at 1."
                )
        folder = folder_of(out) or Path("runs") / name
        faults = run_comparison(
            plan,
            folder,
            command=command or call_of("compare", scenario, folder, named),
            progress=display,
            workers=workers,
            engine=engine,
            address=address,
            deadline_s=deadline_s,
            part=None if part is None else part_of(text_of(part, "part")),
        )
    study = Study(folder)
    if faults:
        failed, first = f"{len(faults)} of {len(plan.cells)} cells failed", next(iter(faults.values()))
        message = f"{failed}, the first by: {first} The same call runs them again; {folder} has the others."
        error = CellsFailedError(message)
        error.study = study
        raise error
    return study


def resume(
    path: str | os.PathLike[str],
    *,
    learner: str | type | None = None,
    progress: Show = None,
    trust: bool = False,
    accept_changed_plugin: bool = False,
    time_limit_s: float | None = None,
    command: Sequence[str] | None = None,
) -> Run | Traffic:
    """Continue an interrupted run or recording to the result it would have had, and return it: ``vnetsim resume``.

    Args:
        path: the run directory; a finished one is not changed.
        learner: the run's learner if it comes from a file or is a class, which allows its code to run.
        progress: see ``vnetsim.run``.
        trust: let the folder name code that is run, and start SUMO on a scenario in it.
        accept_changed_plugin: continue although a plug-in's file has changed, for example after a bug was fixed.
        time_limit_s: see ``vnetsim.run``; refused for a recording and for a run without training.
        command: see ``vnetsim.run``.

    Raises:
        InputError: the path is no run directory, or its inputs have changed. Other errors are those of ``vnetsim.run``.

    Examples:
        >>> import vnetsim
        >>> traffic = vnetsim.mobility("gaussian", traffic__end_s=30, out="traffic")
        >>> vnetsim.resume(traffic.path).status
        'finished'
    """
    deadline_s = deadline_of(time_limit_s)
    folder = Path(path_of(path, "path"))
    learner = LEARNERS.name_of(learner) if isinstance(learner, type) else learner
    with display_of(progress) as display:
        resume_run(
            folder,
            command=command or [f"vnetsim.resume({str(folder)!r})"],
            progress=display,
            learner=learner,
            trust=trust,
            accept_changed_plugin=accept_changed_plugin,
            deadline_s=deadline_s,
        )
    found = load(folder)
    assert not isinstance(found, Study)
    return found


def load(path: str | os.PathLike[str]) -> Run | Traffic | Study:
    """Return a run, recorded traffic or a comparison from its folder, finished or not; nothing in it is run.

    Raises:
        InputError: the folder is none of these, or its record is damaged.

    Examples:
        >>> import vnetsim
        >>> made = vnetsim.mobility("gaussian", traffic__end_s=30, out="traffic")
        >>> traffic = vnetsim.load("traffic")
        >>> type(traffic).__name__, traffic.windows.equals(made.windows)
        ('Traffic', True)
    """
    folder = RunDirectory(path_of(path, "path"))
    if (folder.path / COMPARISON).is_file():
        folder.comparison_record()  # raises now if it is damaged
        return Study(folder.path)
    return (Traffic if folder.manifest_record().kind == "mobility" else Run)(folder.path)


@contextmanager
def display_of(progress: Show) -> Iterator[ProgressDisplay]:
    """Yield ``progress`` if it is a display, a new display for None, True or False; InputError for anything else."""
    if progress is None or isinstance(progress, bool):
        with progress_display(progress) as display:
            yield display
    elif all(callable(getattr(progress, method, None)) for method in ("stage", "advance", "note")):
        yield progress
    else:
        raise InputError(f"progress: expected True, False or a ProgressDisplay, got {progress!r}.")
