"""What a person sees while it runs: a line on a terminal, silence in a pipe; Ctrl-C as the terminal sends it."""

import contextlib
import os
import pty
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from small_runs import held

from vnetsim.storage.run_directory import RunDirectory

WALK = Path(__file__).with_name("walk_learners.py")


def on_a_terminal(
    arguments: Sequence[object], *, at: bytes = b"\0", press: Callable[[int], None] = lambda _: None
) -> tuple[int, str]:
    """Return exit status and what was shown on standard error; ``press`` gets the process id when ``at`` appears."""
    ours, theirs = pty.openpty()
    with held(*arguments, stderr=theirs) as process:
        os.close(theirs)
        shown, pressed = b"", False
        with contextlib.suppress(OSError):  # Linux says so when the other side has closed
            while piece := os.read(ours, 4096):
                shown += piece
                if not pressed and at in shown:
                    press(process.pid)
                    pressed = True
        process.wait()
    os.close(ours)
    return process.returncode, shown.decode(errors="replace")


def test_a_run_on_a_terminal_is_ended_as_by_ctrl_c(
    cli: Callable[..., Any], results_of: Callable[[Path], dict[str, bytes]], tmp_path: Path
) -> None:
    arguments = ("run", "gaussian", "--learner", f"{WALK}:Walk", "--rounds", "4", "--set", "traffic.end_s=120")
    folder = tmp_path / "run"
    status, shown = on_a_terminal(
        (*arguments, "--out", folder), at=b"running", press=lambda pid: os.kill(pid, signal.SIGTERM)
    )
    assert status == 130
    assert "of 4 rounds." in shown
    assert "vnetsim resume" in shown
    assert "Traceback" not in shown
    assert RunDirectory(folder).manifest()["status"] == "interrupted"
    assert cli("resume", folder, "--trust").status == 0
    assert cli(*arguments, "--out", tmp_path / "whole").status == 0
    assert results_of(folder) == results_of(tmp_path / "whole")
