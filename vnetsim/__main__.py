"""Entry point of the program, as ``vnetsim`` and as ``python -m vnetsim``.

It sets up signals and standard streams, then loads the command line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

_AGAIN_S = 0.05
"""Delay (s) before an interruption that could not be raised is sent again."""


def main() -> None:
    """Run the command line and exit, with ``INTERRUPTED`` after a signal; see ``vnetsim.cli.commands.main``."""
    try:
        hear_signals()
        open_streams()
        from vnetsim.cli.commands import main as command_line  # noqa: PLC0415 - signals are heard while it loads
        from vnetsim.process import prepare_process  # noqa: PLC0415

        prepare_process()
        command_line()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # nobody reads it
            sys.stderr.write("vnetsim: interrupted.\n")
        from vnetsim.errors import INTERRUPTED  # noqa: PLC0415

        sys.exit(INTERRUPTED)


def hear_signals() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt like Ctrl-C, unless they have a handler or are ignored.

    After a first signal only Ctrl-C interrupts again, so that saving the run is not cut short.
    """
    interrupted: list[int] = []  # numbers of the signals so far

    def interrupt(number: int, _: object) -> None:
        """Raise KeyboardInterrupt for a first signal or Ctrl-C; ignore others. A handler of ``signal.signal``."""
        # not signal.SIG_IGN from here on: signals that arrive together are handled one after the other
        if number == signal.SIGINT or not interrupted:
            interrupted.append(number)
            raise KeyboardInterrupt

    def send_again(lost: sys.UnraisableHookArgs) -> None:
        """Send a signal again if its KeyboardInterrupt was lost, as in ``__del__``; report other errors as usual."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
        elif interrupted:
            number = interrupted.pop()
            again = threading.Timer(_AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, number))
            again.daemon = True
            again.start()

    usual = {"SIGINT": signal.default_int_handler, "SIGTERM": signal.SIG_DFL, "SIGHUP": signal.SIG_DFL}
    for name, handler in usual.items():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == handler:
            signal.signal(number, interrupt)
    sys.unraisablehook = send_again


def open_streams() -> None:
    """Connect closed standard streams to the null device, and print characters that they cannot encode as ``?``."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one; else a file of a run would
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - no path
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")


if __name__ == "__main__":
    from pathlib import Path

    # Python searches the current folder first; it may come from somebody else, so no module is imported from it
    if not sys.flags.safe_path and Path(sys.path[0]) == Path.cwd() != Path(__file__).parents[1]:
        del sys.path[0]
    main()
