"""The command line: parse, call, print; nothing else."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Group, Parameter

import vnetsim
from vnetsim.cli.bench import bench
from vnetsim.cli.ending import status_of
from vnetsim.cli.lookup import check, cite, docs, init, learners, new, plugins, settings
from vnetsim.cli.options import (
    OUTPUT,
    Gui,
    LearningFlag,
    LearningText,
    OutputPath,
    Set,
    TimeLimit,
    TrafficOptions,
    TrainingOptions,
    Trust,
    settings_of,
    typed_command,
)
from vnetsim.errors import InputError, RunError
from vnetsim.own_packages import claim
from vnetsim.standard_streams import plain, tell

if TYPE_CHECKING:
    from vnetsim.api import Study
    from vnetsim.api.results import Page

app = App(
    name="vnetsim",
    help="Vehicular-network co-simulator: SUMO traffic at a roadside unit, coupled to federated learning.",
    help_epilogue="With --debug, any command shows the traceback of an error.",
    version=vnetsim.__version__,
    version_flags=("--version", "-V"),
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # status_of prints how to continue
)
app.register_install_completion_command(help="Install completion of commands and options for the shell in use.")
app["--help"].group = app["--version"].group = app["--install-completion"].group = Group("Options")

DEBUG = "--debug"  # option of every command: show the tracebacks of errors
WORKERS = Group("Workers")
NO_TRAFFIC_OPTIONS, NO_TRAINING_OPTIONS = TrafficOptions(), TrainingOptions()

Scenario = Annotated[
    str,
    Parameter(
        help="A .sumocfg, an FCD recording (.xml, .xml.gz, .csv, .parquet), an experiment .toml, the word gaussian, "
        "a run directory whose traffic is replayed, or a traffic source as path/to/file.py:CLASS."
    ),
]
Out = Annotated[Path | None, Parameter(group=OUTPUT, help="Run directory to make; default: a new folder below runs/.")]
Seed = Annotated[int | None, Parameter(help="Seed of every random stream (default 0).")]


def _print_page(page: Page, *, title: str, last: str = "") -> None:
    """Print warnings, tables, notes and path; for a page without tables headline, notes, and ``last`` or the path."""
    from vnetsim.cli.terminal import print_headline, print_results  # noqa: PLC0415 - keeps --help quick

    for line in page.warnings:
        tell(line)
    if page.tables:
        print_results(page.tables, page.notes, page.path, title=title)
    else:
        print_headline(page.headline, page.notes, last or f"report: {page.path}", title=title)


def _report_study(study: Study, scenario: str) -> None:
    """Write the page of a comparison and print its results; do nothing if all cells failed."""
    cells = study.record["cells"]
    if len(study.failed) < len(cells):
        arms = ", ".join(dict.fromkeys(cell["arm"] for cell in cells))
        _print_page(study.report(), title=study.record.get("title") or f"{arms} on {Path(scenario).name}")


@app.command
def run(
    scenario: Scenario,
    /,
    *,
    learner: LearningText = None,
    training: TrainingOptions = NO_TRAINING_OPTIONS,
    data: LearningText = None,
    data_root: LearningText = None,
    data_download: LearningFlag = False,
    seed: Seed = None,
    traffic: TrafficOptions = NO_TRAFFIC_OPTIONS,
    gui: Gui = False,
    out: Out = None,
) -> int:
    """Simulate traffic, train a learner over the vehicles that commit, and report.

    Args:
        learner: Learner (default flsimco), or one of a file as path/to/file.py:CLASS.
        data: Data set, one of vnetsim plugins data_sets, or of a file as path/to/file.py:CLASS; default: the learner's.
        data_root: Folder or file that contains the data.
        data_download: Fetch missing data into --data-root.
    """
    made = vnetsim.run(
        scenario,
        learner=learner,
        seed=seed,
        data__name=data,
        data__root=data_root,
        data__download=data_download or None,
        **traffic.settings(gui=gui),
        **training.arguments(),
        out=out,
        command=typed_command(),
    )
    name = made.settings["learner"].rpartition(":")[2]
    _print_page(made.report(), title=f"{name} on {Path(made.settings['scenario']).name}")
    return 0


@app.command
def mobility(
    scenario: Scenario,
    /,
    *,
    seed: Seed = None,
    traffic: TrafficOptions = NO_TRAFFIC_OPTIONS,
    gui: Gui = False,
    set_: Set = (),
    out: Out = None,
    report: Annotated[bool, Parameter(group=OUTPUT)] = True,
) -> int:
    """Record coverage windows and report traffic and blur; no learner, no torch.

    Args:
        report: Write report.html as well as the tables.
    """
    if report:  # this process is idle while SUMO runs, so load the report's modules now
        threading.Thread(target=importlib.import_module, args=("analysis.report.page",), daemon=True).start()
    given = traffic.settings(gui=gui)
    made = vnetsim.mobility(scenario, seed=seed, **given, settings=settings_of(set_), out=out, command=typed_command())
    page, last = (made.report(), "") if report else (made.summary(), str(made.path))
    _print_page(page, title=f"traffic of {Path(made.settings['scenario']).name}", last=last)
    return 0


@app.command
def place(
    scenario: Scenario,
    /,
    *,
    budget: int,
    candidates: str = "signalised",
    by: Literal["commits", "covered"] = "commits",
    seed: Seed = None,
    traffic: TrafficOptions = NO_TRAFFIC_OPTIONS,
    set_: Set = (),
    out: OutputPath = None,
) -> int:
    """Choose places for RSUs that together reach most vehicles, on all traffic recorded once; no run per candidate.

    Args:
        budget: Number of RSUs to place.
        candidates: Where they may be: signalised (junctions), junctions (all), or FILE.xml, a SUMO additional file with
            POIs of type rsu.
        by: Vehicles that count: commits, those that stay in range of one RSU as long as a participation takes in the
            median (an estimate), or covered, those that come in range.
        out: Folder of the results and of the recorded traffic; a second call with it does not record again. Default:
            runs/SCENARIO-place.
    """
    from vnetsim.cli.terminal import print_results  # noqa: PLC0415 - keeps --help quick

    found = vnetsim.place(
        scenario,
        budget=budget,
        candidates=candidates,
        by=by,
        seed=seed,
        **traffic.settings(),
        settings=settings_of(set_),
        out=out,
        command=typed_command(),
    )
    page, title = found.page, f"vnetsim place {Path(scenario).name}"
    print_results(page.tables, page.notes, page.path, title=title, kind="page")
    print(plain(f"for --rsu: {found.file}"))
    return 0


@app.command
def compare(
    scenario: str,
    /,
    *,
    learners: LearningText = None,
    seeds: LearningText = None,
    size: str | None = None,
    equal_schedule: LearningText = None,
    sharp_control: LearningFlag = False,
    training: TrainingOptions = NO_TRAINING_OPTIONS,
    traffic: TrafficOptions = NO_TRAFFIC_OPTIONS,
    part: Annotated[str | None, Parameter(group=WORKERS)] = None,
    workers: Annotated[int | None, Parameter(group=WORKERS)] = None,
    engine: Annotated[Literal["local", "ray"], Parameter(group=WORKERS)] = "local",
    address: Annotated[str | None, Parameter(group=WORKERS)] = None,
    out: OutputPath = None,
    yes: Annotated[bool, Parameter(group=OUTPUT, negative="")] = False,
) -> int:
    """Compare arms over seeds on the same recorded traffic; a second call runs only what is missing.

    Args:
        scenario: A study file (.toml with [[arms]]), or a scenario as for vnetsim run, with --learners.
        learners: Learners of one task, as a,b,c; one of a file as path/to/file.py:CLASS.
        seeds: FIRST:END, where 0:10 are the seeds 0 to 9, or a list such as 0,3,7. Default: the study's, or 0:10.
        size: Size of the study; default: its first one, if it has any.
        equal_schedule: Give all arms payload and work of this learner, or arm of the study: the same vehicles then
            commit.
        sharp_control: Run each arm a second time with a camera that blurs no image: what blur alone costs.
        part: K/N: run only every N-th cell, from the K-th on; other processes, also on other machines that share the
            folder, run the other parts. Without it, what is missing is run, and the page written.
        workers: Cells to run at once, each in a process of its own. Default: 1; on CUDA up to 8, as its free memory
            (8 GiB each) and the cores allow.
        engine: Where cells run: here, or on a Ray cluster.
        address: Address of the Ray cluster; default: a cluster of this machine.
        out: Folder of the comparison; an earlier call of it is continued. Default: runs/SCENARIO-compare, or
            runs/STUDY-SIZE.
        yes: Allow any number of runs.
    """
    from vnetsim.api.studies import CellsFailedError  # noqa: PLC0415 - keeps --help quick

    try:
        study = vnetsim.compare(
            scenario,
            learners=learners,
            seeds=seeds,
            size=size,
            equal_schedule=equal_schedule,
            sharp_control=sharp_control,
            **traffic.settings(),
            **training.arguments(),
            workers=workers,
            engine=engine,
            address=address,
            out=out,
            yes=yes,
            part=part,
            command=typed_command(),
        )
    except CellsFailedError as error:
        if part is not None:
            raise
        _report_study(error.study, scenario)
        failed, cells = len(error.study.failed), len(error.study.record["cells"])
        raise RunError(f"{failed} of {cells} cells failed; the same command runs them again.") from error
    if part is None:
        _report_study(study, scenario)
    else:
        tell(f"part {part} has finished; when all have, the same command without --part writes the page.")
    return 0


@app.command
def resume(
    run_directory: Path,
    /,
    *,
    learner: str | None = None,
    trust: Trust = False,
    accept_changed_plugin: Annotated[bool, Parameter(negative="")] = False,
    time_limit_s: TimeLimit = None,
) -> int:
    """Continue an interrupted run to the result it would have had.

    Args:
        run_directory: Run directory of a run that was interrupted or killed.
        learner: The run's learner, if it comes from a file (path/to/file.py:CLASS), whose code is then run.
        accept_changed_plugin: Continue although a plug-in's file has changed, for example after a bug was fixed; the
            manifest records it.
    """
    done = (run_directory / "manifest.json").is_file() and vnetsim.load(run_directory)
    already_finished = isinstance(done, vnetsim.Traffic) and done.status == "finished"
    made = vnetsim.resume(
        run_directory,
        learner=learner,
        trust=trust,
        accept_changed_plugin=accept_changed_plugin,
        time_limit_s=time_limit_s,
        command=typed_command(),
    )
    written = already_finished and (run_directory / "report.html").is_file()
    _print_page(made.summary() if written else made.report(), title=run_directory.name)
    if already_finished:
        tell(f"{run_directory}: the run had already finished; nothing to do.")
    return 0


@app.command
def report(*run_directories: Path, beside: Path | None = None) -> int:
    """Rebuild figures and report.html of run directories, or comparison.html of comparisons.

    Args:
        run_directories: Run directories, or folders of comparisons.
        beside: Play this run beside the other, in step: beside.html.
    """
    if not run_directories:
        raise InputError("vnetsim report: name at least one run directory.")
    if beside is not None:
        if len(run_directories) != 1:
            raise InputError(f"vnetsim report: --beside takes one run directory, got {len(run_directories)}.")
        left, right = (vnetsim.load(folder) for folder in (*run_directories, beside))
        if isinstance(left, vnetsim.Study) or isinstance(right, vnetsim.Study):
            raise InputError(
                "vnetsim report: --beside plays two runs; a comparison holds its runs in folders of their own."
            )
        tell(f"page: {left.beside(right).path}")
        return 0
    for folder in run_directories:
        _print_page(vnetsim.load(folder).report(), title=folder.name)
    return 0


@app.command
def export(
    folder: Path,
    /,
    *,
    to: OutputPath = None,
    tensorboard: OutputPath = None,
    fcd: OutputPath = None,
    video: OutputPath = None,
) -> int:
    """Write results for a paper and for other tools; an existing file or a folder that is not empty is refused.

    Args:
        folder: Run directory, or folder of a comparison.
        to: Folder to make for a paper: figures as PDF and SVG, tables as LaTeX and CSV, methods, references, inputs.
        tensorboard: Folder to make for TensorBoard; of a comparison, a folder in it for each cell.
        fcd: File to make (.xml) of vehicles in coverage, as SUMO's floating-car data.
        video: File to make (.mp4 or .gif) of the page's playback, at most a minute long; .mp4 needs ffmpeg.
    """
    for made in vnetsim.export(folder, to=to, tensorboard=tensorboard, fcd=fcd, video=video):
        print(plain(str(made)))
    return 0


for command in (bench, learners, plugins, check, settings, cite, docs, init, new):
    app.command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed run, 2 wrong input, 75 unfinished, 130 interrupted."""
    sys.exit(_run_command(list(sys.argv[1:] if arguments is None else arguments)))


def _run_command(tokens: list[str]) -> int:
    """Run a command line and return the exit status; errors are printed, not raised, with ``--debug`` as tracebacks."""
    try:
        claim("analysis")
        status = app([token for token in tokens if token != DEBUG], exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return int(status or 0)
    except BaseException as error:  # noqa: BLE001 - the user must see one line, not a traceback
        return status_of(error, debug=DEBUG in tokens)
