"""The command line: parse, call, print; nothing else."""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from vnetsim import __version__
from vnetsim.errors import InputError, RunError, VnetsimError

INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended

app = App(
    name="vnetsim",
    help="Vehicular-network co-simulator: SUMO traffic at a roadside unit, coupled to federated learning.",
    version=__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # main says how to go on
)
app["--help"].group = app["--version"].group = Group("Options")

TRAFFIC, LEARNING, OUTPUT = Group("Traffic"), Group("Learning"), Group("Output")
WORKERS = Group("Workers")

Scenario = Annotated[
    str,
    Parameter(
        help="A .sumocfg, an FCD recording (.xml, .xml.gz, .csv, .parquet), an experiment .toml, the word gaussian, "
        "or a run directory whose traffic is replayed."
    ),
]
Out = Annotated[Path | None, Parameter(group=OUTPUT, help="Run directory to make; default: a new folder below runs/.")]
Set = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="Any setting as table.key=value, e.g. round.quorum=10. Repeatable."),
]
Rsu = Annotated[
    tuple[str, ...],
    Parameter(
        group=TRAFFIC,
        negative="",
        help="Place an RSU at JUNCTION or x,y, with :range_m if wanted. Repeatable. Default: the scenario's "
        "POIs of type rsu, else the busiest signalised junction.",
    ),
]
Seed = Annotated[int | None, Parameter(help="Seed of every random stream (default 0).")]
Backend = Annotated[
    Literal["auto", "libsumo", "traci"] | None,
    Parameter(
        group=TRAFFIC,
        help="SUMO in this process (libsumo) or beside it, over a socket (traci). Default auto: libsumo, but traci for "
        "vnetsim mobility.",
    ),
]
Gui = Annotated[bool, Parameter(group=TRAFFIC, negative="", help="Show sumo-gui (implies --backend traci).")]
Net = Annotated[str | None, Parameter(group=TRAFFIC, help="Net file that names the junctions of an FCD recording.")]
Debug = Annotated[bool, Parameter(group=OUTPUT, negative="", help="Show tracebacks.")]


def _overrides(set_: Sequence[str], **options: object) -> list[tuple[tuple[str, ...], Any]]:
    """Return ``--set`` values, then the options' own, as paths and values; options left out are skipped."""
    from vnetsim.settings_file import parse_override  # noqa: PLC0415 - keeps --help quick

    # 0 equals False, and is a seed that the user may mean
    given = [
        (tuple(key.split("__")), value)
        for key, value in options.items()
        if value is not None and value is not False and value != ()
    ]
    return [*(parse_override(text) for text in set_), *given]


def _traffic(rsu: Rsu, backend: Backend, gui: Gui, net: Net) -> dict[str, object]:
    """Return the traffic options by the setting each one sets."""
    return {"traffic__rsu": rsu, "traffic__backend": backend, "traffic__gui": gui, "traffic__net": net}


def _command() -> list[str]:
    return ["vnetsim", *sys.argv[1:]]


def _finish(run: Path, *, what: str) -> None:
    """Build the report and print its headline numbers and path; for a comparison, its verdicts."""
    if (run / "comparison.json").is_file():
        _finish_comparison(run, what=what)
        return
    from analysis.report import build_report  # noqa: PLC0415 - matplotlib only when a report is made
    from vnetsim.terminal import print_headline  # noqa: PLC0415

    result = build_report(run)
    print_headline(result.headline, result.path, title=what)


def _finish_comparison(folder: Path, *, what: str) -> None:
    from analysis.comparison import build_comparison  # noqa: PLC0415 - see _finish
    from vnetsim.terminal import print_verdicts  # noqa: PLC0415

    result = build_comparison(folder)
    for line in result.warnings:
        print(f"vnetsim: {line}", file=sys.stderr)
    print_verdicts(result.verdicts, result.path, title=what)


@app.command
def run(
    scenario: Scenario,
    /,
    *,
    learner: Annotated[
        str | None,
        Parameter(group=LEARNING, help="Learner (default flsimco), or one of a file as path/to/file.py:CLASS."),
    ] = None,
    rounds: Annotated[int | None, Parameter(group=LEARNING, help="Rounds to run (default 20).")] = None,
    device: Annotated[str | None, Parameter(group=LEARNING, help="auto, cpu, cuda or cuda:N (default auto).")] = None,
    data: Annotated[
        str | None,
        Parameter(
            group=LEARNING,
            help="signs or road (built in), cifar10, npz, folder, driving-log, steering-npz; default: the learner's.",
        ),
    ] = None,
    data_root: Annotated[str | None, Parameter(group=LEARNING, help="Folder or file that holds the data.")] = None,
    data_download: Annotated[
        bool, Parameter(group=LEARNING, negative="", help="Fetch missing data into --data-root.")
    ] = False,
    seed: Seed = None,
    rsu: Rsu = (),
    backend: Backend = None,
    gui: Gui = False,
    net: Net = None,
    set_: Set = (),
    out: Out = None,
    debug: Debug = False,  # noqa: ARG001 - read by main
) -> int:
    """Simulate traffic, train a learner over the vehicles that commit, and report."""
    from vnetsim.registry import find_learner, short_name  # noqa: PLC0415
    from vnetsim.runner import start_run  # noqa: PLC0415
    from vnetsim.settings_file import load_experiment  # noqa: PLC0415
    from vnetsim.terminal import progress_display  # noqa: PLC0415

    overrides = _overrides(
        set_,
        learner=learner,
        rounds=rounds,
        device=device,
        seed=seed,
        data__name=data,
        data__root=data_root,
        data__download=data_download,
        **_traffic(rsu, backend, gui, net),
    )
    with progress_display() as progress:
        progress.stage("loading")
        experiment = load_experiment(scenario, overrides, find_learner=find_learner)
        folder = start_run(experiment, out, command=_command(), progress=progress)
    _finish(folder, what=f"{short_name(experiment.learner)} on {Path(experiment.scenario).name}")
    return 0


@app.command
def mobility(
    scenario: Scenario,
    /,
    *,
    seed: Seed = None,
    rsu: Rsu = (),
    backend: Backend = None,
    gui: Gui = False,
    net: Net = None,
    set_: Set = (),
    out: Out = None,
    report: Annotated[bool, Parameter(group=OUTPUT, help="Write report.html as well as the tables.")] = True,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Record coverage windows and report traffic and blur; no learner, no torch."""
    from vnetsim.runner import record_mobility  # noqa: PLC0415
    from vnetsim.settings_file import load_experiment  # noqa: PLC0415
    from vnetsim.terminal import progress_display  # noqa: PLC0415

    experiment = load_experiment(
        scenario,
        _overrides(
            set_,
            seed=seed,
            **_traffic(rsu, backend, gui, net),
        ),
    )
    if report:  # SUMO leaves this process idle time enough to load what the report needs
        threading.Thread(target=importlib.import_module, args=("analysis.report",), daemon=True).start()
    with progress_display() as progress:
        folder = record_mobility(experiment, out, command=_command(), progress=progress)
    if report:
        _finish(folder, what=f"traffic of {Path(experiment.scenario).name}")
    else:
        print(folder)
    return 0


@app.command
def compare(
    scenario: Annotated[
        str,
        Parameter(help="A study file (.toml with [[arms]]), or a scenario as for vnetsim run, with --learners."),
    ],
    /,
    *,
    learners: Annotated[
        str | None,
        Parameter(group=LEARNING, help="Learners of one task, as a,b,c; one of a file as path/to/file.py:CLASS."),
    ] = None,
    seeds: Annotated[
        str | None,
        Parameter(
            group=LEARNING,
            help="FIRST:END, where 0:10 are the seeds 0 to 9, or a list such as 0,3,7. Default: the study's, or 0:10.",
        ),
    ] = None,
    size: Annotated[str | None, Parameter(help="Size of the study; default: its first one, if it has any.")] = None,
    equal_schedule: Annotated[
        str | None,
        Parameter(
            group=LEARNING,
            help="Give all arms payload and work of this learner, or arm of the study: the same vehicles then commit.",
        ),
    ] = None,
    rounds: Annotated[int | None, Parameter(group=LEARNING, help="Rounds to run (default 20).")] = None,
    device: Annotated[str | None, Parameter(group=LEARNING, help="auto, cpu, cuda or cuda:N (default auto).")] = None,
    rsu: Rsu = (),
    backend: Backend = None,
    net: Net = None,
    set_: Set = (),
    workers: Annotated[int, Parameter(group=WORKERS, help="Cells to run at once, each in a process of its own.")] = 1,
    engine: Annotated[
        Literal["local", "ray"], Parameter(group=WORKERS, help="Where cells run: on this machine, or on a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None, Parameter(group=WORKERS, help="Address of the Ray cluster; default: a cluster of this machine.")
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(
            group=OUTPUT,
            help="Folder of the comparison; one that holds it already is gone on with. Default: runs/SCENARIO-compare, "
            "or runs/STUDY-SIZE.",
        ),
    ] = None,
    yes: Annotated[bool, Parameter(group=OUTPUT, negative="", help="Run however many cells these are.")] = False,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Compare arms over seeds on the same recorded traffic; a second call runs only what is missing."""
    from vnetsim.study_command import Request, refuse_unlike_exchanges  # noqa: PLC0415
    from vnetsim.study_runner import compare as run_comparison  # noqa: PLC0415
    from vnetsim.terminal import progress_display  # noqa: PLC0415

    request = Request(
        scenario=scenario, learners=learners, seeds=seeds, size=size, equal_schedule=equal_schedule, yes=yes
    )
    options = _overrides(set_, rounds=rounds, device=device, **_traffic(rsu, backend, gui=False, net=net))
    with progress_display() as progress:
        progress.stage("loading")
        study, name = request.plan(options)
        refuse_unlike_exchanges(study)
        folder = out or Path("runs") / name
        result = run_comparison(
            study, folder, command=_command(), progress=progress, workers=workers, engine=engine, address=address
        )
    cells, failed = len(study.cells), len(result.failed)
    if failed < cells:
        arms = dict.fromkeys(cell.arm for cell in study.cells)
        _finish(folder, what=study.title or f"{', '.join(arms)} on {Path(scenario).name}")
    if failed:
        raise RunError(f"{failed} of {cells} cells failed; the same command runs them again.")
    return 0


@app.command
def resume(
    run_directory: Annotated[Path, Parameter(help="Run directory of a run that was interrupted or killed.")],
    /,
    *,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Continue an interrupted run to the result it would have had."""
    from vnetsim.runner import resume_run  # noqa: PLC0415
    from vnetsim.terminal import progress_display  # noqa: PLC0415

    with progress_display() as progress:
        already_finished = resume_run(run_directory, command=_command(), progress=progress)
    if already_finished:
        print(f"vnetsim: {run_directory}: the run had already finished; nothing to do.", file=sys.stderr)
    _finish(run_directory, what=run_directory.name)
    return 0


@app.command
def report(
    *run_directories: Annotated[Path, Parameter(help="Run directories, or folders of comparisons.")],
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Rebuild figures and report.html of run directories, or comparison.html of comparisons."""
    if not run_directories:
        raise InputError("vnetsim report: name at least one run directory.")
    for folder in run_directories:
        _finish(folder, what=folder.name)
    return 0


@app.command
def learners(
    name: Annotated[
        str | None, Parameter(help="Explain this learner, installed or of a file as path/to/file.py:CLASS.")
    ] = None,
    /,
    *,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """List the learners there are: name, task, payload, paper; with NAME also equations, settings and defaults."""
    from vnetsim.registry import find_learner, learner_names  # noqa: PLC0415
    from vnetsim.terminal import print_learner, print_learners  # noqa: PLC0415

    if name is not None:
        print_learner(find_learner(name))
        return 0
    found, faults = {}, []
    for known in learner_names():
        try:
            found[known] = find_learner(known)
        except RunError as error:  # one package at fault must not hide the others
            faults.append(str(error))
    print_learners(found)
    for fault in faults:
        print(f"vnetsim: {fault}", file=sys.stderr)
    return RunError.exit_code if faults else 0


@app.command
def init(
    folder: Annotated[Path, Parameter(help="Folder to fill; made when missing, must be empty.")],
    /,
    *,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Copy the shipped scenarios into a folder, to run and to change."""
    from vnetsim.scenarios import copy_scenarios  # noqa: PLC0415

    for path in copy_scenarios(folder):
        print(path)
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed run, 2 wrong input, 130 interrupted."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_exit_status(tokens))


def _exit_status(tokens: list[str]) -> int:
    debug = "--debug" in tokens
    try:
        status = app(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _fail(" ".join(str(error).split()), InputError.exit_code, debug=debug)
    except VnetsimError as error:
        return _fail(str(error), error.exit_code, debug=debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}.", RunError.exit_code, debug=debug)
    except Exception as error:  # noqa: BLE001 - the last line of defence of the user's terminal
        name = type(error).__name__
        message = " ".join(str(error).split())
        return _fail(f"internal error: {name}: {message} (--debug shows where).", RunError.exit_code, debug=debug)
    except BaseException as error:
        interrupted = str(error) or "interrupted."
        if not isinstance(error, KeyboardInterrupt):
            # Ctrl-C inside a library written in Rust arrives as its own kind of panic, which is no Exception
            if "KeyboardInterrupt" not in interrupted:
                raise
            interrupted = "interrupted; go on with vnetsim resume, or with the same command."
        return _fail(interrupted, INTERRUPTED, debug=debug)
    return int(status or 0)


def _fail(message: str, status: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"vnetsim: {message}", file=sys.stderr)
    return status
