"""The start and the end of the program: signals before anything is loaded, standard streams that fail."""

import errno
import io
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vnetsim.cli import commands as cli
from vnetsim.cli import terminal
from vnetsim.display import live_line
from vnetsim.standard_streams import tell

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
LAUNCH = "from vnetsim.__main__ import main; main()"
EARLY = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), int(sys.argv[2]))
sys.meta_path.insert(0, Pressed())
from vnetsim.__main__ import main
main()
"""


def launched(*arguments: object, code: str = LAUNCH, **options: Any) -> subprocess.CompletedProcess[str]:
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], text=True, check=False, env=ENVIRONMENT, **given
    )


@pytest.mark.parametrize("pressed", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("module", ["vnetsim.cli.commands", "cyclopts"])
def test_a_signal_while_the_program_loads_is_one_line(module, pressed):
    done = launched(module, int(pressed), code=EARLY)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "vnetsim: interrupted.\n")


def test_an_ignored_signal_stays_ignored_as_under_nohup_and_a_second_one_waits():
    code = """
import os, signal
from vnetsim.__main__ import hear_signals
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
hear_signals()
os.kill(os.getpid(), signal.SIGHUP)
try:
    os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGTERM)
    print("saved")
"""
    done = launched(code=code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "saved\n", "")


@pytest.mark.parametrize("pressed", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_callback_of_a_weak_reference_interrupts_a_moment_later(pressed):
    code = """
import os, signal, sys, time, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
from vnetsim.__main__ import hear_signals
hear_signals()
class Thing: pass
thing = Thing()
def called(_):
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(0)
watched = weakref.ref(thing, called)
del thing
try:
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = launched(int(pressed), code=code, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_signals_that_come_together_interrupt_once():
    code = """
import signal
from vnetsim.__main__ import hear_signals
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
hear_signals()
both = {signal.SIGTERM, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, both)
for number in both:
    signal.raise_signal(number)
try:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
    print("heard nothing")
except KeyboardInterrupt:
    print("saved")
"""
    done = launched(code=code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "saved\n", "")


@pytest.mark.parametrize("call", [pytest.param("cite", marks=pytest.mark.all_only), "run --help"])
def test_a_reader_who_has_seen_enough_is_not_spoken_of(call):
    ours, theirs = os.pipe()
    os.close(ours)
    done = launched(*call.split(), stdout=theirs)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_for_the_shipped_scenarios(tmp_path):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = launched("init", tmp_path / "mine", preexec_fn=limit)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"vnetsim: {tmp_path / 'mine'}: cannot copy the scenarios there: ")


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("nonsense",)])
def test_other_commands_end_without_a_traceback(arguments):
    with Path("/dev/full").open("w") as full:
        done = launched(*arguments, stdout=full)
        assert done.returncode == (2 if arguments == ("nonsense",) else 1)
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("vnetsim: ")
        assert launched(*arguments, stdout=full, stderr=full).returncode == done.returncode


HOSTILE, SHOWN = "a\x1b[2Jb\x9b1m[/red]\u202ec\td", "a\\x1b[2Jb\\x9b1m[/red]\\u202ec\\td"


def test_control_characters_of_names_reach_no_terminal(capsys, tmp_path):
    tell(f"{HOSTILE}\ne\rf 5\u202f%")
    assert capsys.readouterr().err == f"vnetsim: {SHOWN} e f 5\u202f%\n"
    terminal.print_headline([(HOSTILE, HOSTILE)], [HOSTILE], HOSTILE, title=HOSTILE)
    row = [HOSTILE, "1.5"]
    terminal.print_results([(HOSTILE, row, [row], HOSTILE)], [HOSTILE], tmp_path / HOSTILE, title=HOSTILE)
    shown = capsys.readouterr().out
    assert not set(shown) & set("\x1b\x9b\u202e\t")
    assert "".join(shown.split()).count("a\\x1b[2Jb") == 12


def test_control_characters_and_markup_of_names_reach_no_live_line(monkeypatch):
    printed = io.StringIO()
    monkeypatch.setattr("sys.stderr", printed)
    for name in ("FORCE_COLOR", "TTY_INTERACTIVE"):
        monkeypatch.setenv(name, "1")
    with live_line() as line:
        line.stage(f"cell {HOSTILE}")
        line.note(HOSTILE)
    assert SHOWN in printed.getvalue()
    assert f"cell {SHOWN}" in printed.getvalue()
    assert "\x1b[2J" not in printed.getvalue()


SMALL = ("mobility", "gaussian", "--set", "traffic.end_s=20", "--no-report", "--out")


def test_a_terminal_that_is_not_utf_8_gets_what_it_can_take(monkeypatch, tmp_path):
    """A narrow space in a figure ended a finished run with status 1."""
    monkeypatch.setitem(ENVIRONMENT, "PYTHONIOENCODING", "ascii")
    done = launched(*SMALL, tmp_path / "\u6f22 \u202f")
    assert done.returncode == 0, done.stderr
    assert "Median speed at entry" in done.stdout
    assert done.stdout.endswith("? \n") or done.stdout.rstrip().endswith("?")
    assert done.stdout.isascii()


FORK = """
import os, sys, vnetsim
vnetsim.mobility("gaussian", traffic__end_s=20, out=sys.argv[1] + "/first")
child = os.fork()
if not child:
    try:
        vnetsim.mobility("gaussian", traffic__end_s=20, out=sys.argv[1] + "/second")
    except vnetsim.InputError as error:
        print(error, flush=True)
        os._exit(2)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_forked_after_a_run_is_refused_in_place_of_waiting_for_ever(tmp_path):
    done = launched(tmp_path, code=FORK, timeout=120)
    assert done.returncode == 2
    assert "this process was forked from one that had used vnetsim" in done.stdout
    assert "multiprocessing.get_context('spawn')" in done.stdout


class PanicException(BaseException):
    """As a library below Python raises it; no ``Exception``."""


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (KeyboardInterrupt(), "interrupted.\n", 130),
        (KeyboardInterrupt("interrupted after 3 rounds."), "interrupted after 3 rounds.\n", 130),
        (
            PanicException("called on an Err value: PyErr { type: <class 'KeyboardInterrupt'> }"),
            "interrupted; go on with vnetsim resume, or with the same command.\n",
            130,
        ),
        (
            PanicException("index\nout of bounds"),
            "internal error: PanicException: index out of bounds (--debug shows where).\n",
            1,
        ),
        (MemoryError(), "no memory was left.\n", 1),
        (MemoryError("an array of 9 TiB"), "no memory was left: an array of 9 TiB.\n", 1),
        (SystemExit(3), "a plug-in, or what it uses, ended the program (SystemExit: 3).", 1),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "Resource temporarily unavailable.", 1),
    ],
)
def test_what_ends_the_program_from_below_is_one_line(error, line, status, monkeypatch, capsys):
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == status
    assert capsys.readouterr().err.startswith(f"vnetsim: {line}")
