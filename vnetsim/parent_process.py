"""A parent that outlives the program: libsumo runs within this process, and a crash of it could not be told from there.

Linux only; elsewhere such a crash ends the program without a word, and what was finished is kept all the same.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys

CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")
_FAILED = 1
_KILLED_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>

_last_words: mmap.mmap | None = None


def crashing_means(line: str) -> None:
    """Say what the user is to be told if this process crashes from now on; empty for nothing."""
    if _last_words is not None:
        content = line.encode(errors="replace")[: len(_last_words) - 1]
        _last_words[: len(content) + 1] = content + b"\0"


def be_outlived() -> None:
    """Go on in a child process; the parent passes signals on, waits, and exits as the child does.

    It must be called before any thread is started. After a crash the parent tells what ``crashing_means`` said.
    """
    global _last_words  # noqa: PLW0603 - one for the process
    if not sys.platform.startswith("linux"):
        return
    heard = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
    words = mmap.mmap(-1, mmap.PAGESIZE)
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    child = os.fork()
    if child:
        _end_like(_status(child, heard), words)
    ctypes.CDLL(None).prctl(_KILLED_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_FAILED)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
    _last_words = words


def _status(child: int, heard: set[signal.Signals]) -> int:
    """Wait for the child, passing on what only this process is told; return its status."""
    while True:
        came = signal.sigwaitinfo(heard)
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif came.si_code <= 0:  # sent by a process; what a terminal sends goes to the child as well
            os.kill(child, came.si_signo)


def _end_like(status: int, words: mmap.mmap) -> None:
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    line = words[:].partition(b"\0")[0].decode(errors="replace")
    if line and signal.Signals(number).name in CRASHES:
        begin = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # a progress line may stand there, without a cursor
        os.write(2, f"{begin}vnetsim: {line}\n".encode(errors="replace"))
        os._exit(_FAILED)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(_FAILED)
