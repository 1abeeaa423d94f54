"""Every command has help; a slip on the command line is one line and exit status 2."""

import subprocess
import sys

import pytest

from vnetsim.cli.commands import app, main
from vnetsim.scenario.settings_file import load_experiment

COMMANDS = (
    *("run", "mobility", "place", "compare", "resume", "report", "export", "bench"),
    *("learners", "plugins", "check", "settings", "cite", "docs", "init", "new"),
)


def status_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return int(stopped.value.code or 0)


def test_the_help_lists_every_command(capsys):
    assert status_of("--help") == 0
    text = capsys.readouterr().out
    names = {name for name in app.resolved_commands() if not name.startswith("-")}
    assert names == set(COMMANDS)
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_every_option_is_explained(command, capsys):
    assert status_of(command, "--help") == 0
    assert f"vnetsim {command}" in capsys.readouterr().out
    for argument in app[command].assemble_argument_collection(parse_docstring=True):
        assert argument.parameter.help, f"{command} {argument.name} has no help"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rum", "x"], 'Unknown command "rum". Did you mean "run"?'),
        (["run"], "SCENARIO requires an argument"),
        (["run", "gaussian", "--roudns", "3"], "Unknown option: --roudns. Did you mean --rounds?"),
        (["run", "gaussian", "--rounds", "many"], 'unable to convert "many" into int'),
        (["run", "gaussian", "--rounds", "0"], "rounds must be between"),
        (["run", "gaussian", "--learner", "flsimko"], "unknown learner 'flsimko'. Did you mean 'flsimco'?"),
        (["run", "gaussian", "--learner", "fednova"], "Did you mean 'fednova-classification'? Available: cdl"),
        (["new", "learner", "my-method"], "my-method: cannot name a class; take letters, digits and _"),
        (["run", "gaussian", "--set", "learning.bath=3"], "learning: unknown key 'bath'. Did you mean 'batch'?"),
        (["run", "gaussian", "--device", "tpu"], "--device tpu: must be auto, cpu, cuda or cuda:N"),
        (["run", "gaussian", "--set", "data.name=mnist"], "unknown data set 'mnist'"),
        (["run", "gaussian", "--data", "cifar10"], "data-root"),
        (["run", "nowhere.sumocfg"], "nowhere.sumocfg"),
        (["run", "pyproject.toml"], "it must name its traffic"),
        (["mobility", "notes.txt"], "notes.txt"),
        (["report"], "name at least one run directory"),
        (["report", "nowhere"], "nowhere"),
        (["resume", "nowhere"], "nowhere: not a run directory"),
        (["learners", "x"], "unknown learner 'x'"),
        (["settings", "qorum"], "unknown setting 'qorum'. Did you mean round.quorum? Tables: aggregation, arith"),
        (["settings", "round.qorum"], "Did you mean 'round.quorum'? Available: round.deadline_s"),
        (["settings", "silos.tau"], "Available: silos.approaches"),
        (["settings", "selection.margn"], "'selection.margn'. Did you mean 'selection.margin'? Available: "),
        (["settings", "radio.gain"], "unknown setting 'radio.gain'. Did you mean "),
        (["settings", "learning.tempratur"], "'learning.tempratur'. Did you mean 'learning.temperature'?"),
        (["plugins", "selctions"], "unknown kind of plug-in 'selctions'. Did you mean 'selections'?"),
        (["plugins", "paces", "quorun"], "unknown pace 'quorun'. Did you mean 'quorum'?"),
        (["cite", "cdk"], "unknown learner 'cdk'. Did you mean 'cdl'?"),
        (["init", "."], "not an empty folder"),
    ],
)
def test_a_slip_is_one_line_and_exit_status_2(arguments, message, capsys):
    assert status_of(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("vnetsim: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert captured.out == ""


def test_seed_0_replaces_a_recorded_seed(tmp_path):
    recorded, replayed = tmp_path / "recorded", tmp_path / "replayed"
    short = ("--no-report", "--set", "traffic.end_s=30")
    assert status_of("mobility", "gaussian", "--seed", "5", "--out", str(recorded), *short) == 0
    assert status_of("mobility", str(recorded), "--seed", "0", "--out", str(replayed), *short) == 0
    seeds = [load_experiment(str(folder / "experiment.toml")).seed for folder in (recorded, replayed)]
    assert seeds == [5, 0]


def test_a_traceback_only_with_debug(capsys):
    assert status_of("learners", "x", "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


def imported_by(*arguments: str) -> set[str]:
    code = f"import sys; sys.argv = {['vnetsim', *arguments]!r}\nfrom vnetsim.cli.commands import main\n"
    code += "try:\n    main()\nexcept SystemExit:\n    pass\nprint(' '.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_help_imports_nothing_heavy():
    modules = imported_by("--help")
    assert not modules & {"torch", "numpy", "polars", "scipy", "matplotlib", "simpy"}
    assert "vnetsim.cli.terminal" not in modules  # with it comes rich


@pytest.mark.slow
def test_mobility_imports_no_torch(tmp_path):
    modules = imported_by("mobility", "gaussian", "--out", str(tmp_path / "m"), "--set", "traffic.end_s=60")
    assert (tmp_path / "m" / "report.html").is_file()
    assert "polars" in modules
    assert not modules & {"torch", "torchvision", "learners", "scipy.stats"}
