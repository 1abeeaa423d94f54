"""A running SUMO process and the TraCI socket to it.

SUMO's own messages are kept off the terminal; if it fails, the reason is searched in them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, RunError
from vnetsim.traffic.sumo.config import options_of

QUIET = ("--no-step-log", "true", "--no-warnings", "true", "--verbose", "false")
"""Options that silence SUMO on the terminal; its log files are not affected."""

_CONNECT_S = 120.0
_CONNECTION_ERRORS = (
    "Process Error",
    "Could not load configuration",
    "connection closed",
    "TraCI server",
    "Connection ",
    "[Errno",
)
"""Prefixes of connection errors, which do not explain why SUMO is gone."""
EXIT_S = 10.0
"""Time (s) that SUMO may take to end."""


class SumoSession:
    """A running SUMO; ``api`` has the modules ``simulation``, ``vehicle``, ``junction``, ... of TraCI.

    ``options`` follow from the user's settings. ``outputs`` are options that redirect output files and are not part of
    ``command``; ``clean_message`` removes their paths from SUMO's messages. InputError with SUMO's reason if SUMO
    refuses the scenario; RunError if SUMO cannot be started.
    """

    def __init__(
        self,
        config: Path,
        *,
        gui: bool = False,
        options: Sequence[str] = (),
        outputs: Sequence[str] = (),
        clean_message: Callable[[str], str] = str,
    ) -> None:
        self._config = config
        self._outputs = tuple(outputs)
        self._clean_message = clean_message
        self.command = ("sumo-gui" if gui else "sumo", "-c", str(config), *QUIET, *options)
        self.command += ("--start", "true", "--quit-on-end", "true") if gui else ()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._open = True
        self.api: Any = None
        import polars as pl  # noqa: F401, PLC0415 - loading it later would undo the next line

        signal.siginterrupt(signal.SIGINT, True)  # Ctrl-C ends a wait at once, and no system call restarts
        try:
            self.api = self._connect()
        except BaseException:
            self.close()
            raise

    def make_run_error(self, error: Exception) -> RunError:
        """Return the RunError for an ``error`` in a step, with SUMO's reason; waits up to 10 s for SUMO to exit."""
        return RunError(f"{self._config}: SUMO failed while running: {self._find_reason(error)}")

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Context that turns errors of TraCI and of the connection into a RunError that gives SUMO's reason."""
        from traci.exceptions import FatalTraCIError, TraCIException  # noqa: PLC0415 - only for live SUMO

        try:
            yield
        except (FatalTraCIError, TraCIException, OSError) as error:
            raise self.make_run_error(error) from error

    def kill(self) -> None:
        """End SUMO at once; call ``close`` later to release the rest."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End SUMO and wait for it, at most 10 s; then kill it. May be called twice."""
        if not self._open:
            return
        self._open = False
        if self._process is not None:
            if self.api is not None:
                with contextlib.suppress(Exception):
                    self.api._socket.settimeout(EXIT_S)  # noqa: SLF001 - SUMO does not answer during a long step
                    self.api.close(wait=False)
                _close_socket(self.api)
            try:
                self._process.wait(EXIT_S if self.api is not None else 0.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def _crash_message(self, status: int) -> str:
        """Return the message about a SUMO that a signal ended; ``status`` is the negative number of the signal."""
        named = options_of(self._config)
        files = [named[key] for key in ("net-file", "net", "n", "additional-files", "additional", "a") if key in named]
        return (
            f"signal {signal.Signals(-status).name} ended SUMO. It crashes without a word on a damaged net or "
            f"additional file, and was given {', '.join(files) or 'no net'}: make the net again with netconvert or "
            "netedit. SIGKILL may have been a lack of memory."
        )

    def _connect(self) -> Any:
        """Start SUMO; return its TraCI connection; InputError if it refuses the scenario, RunError if it is silent."""
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        program = binary(self.command[0])
        # with the configuration's own port and number of clients, SUMO would wait for other clients
        command = [str(program), *self.command[1:], *self._outputs]
        command += ["--remote-port", str(port), "--num-clients", "1"]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the wheel's own binary, no shell
                command, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment()
            )
        except OSError as error:
            raise RunError(f"{program}: cannot start SUMO: {error.strerror}.") from error
        import traci  # noqa: PLC0415 - only for live SUMO, and while SUMO loads the scenario

        deadline = time.monotonic() + _CONNECT_S
        connection: Any = None
        while True:
            try:
                connection = traci.connect(port, numRetries=0, proc=self._process)
                connection.getVersion()
            except Exception as error:  # traci's exceptions share no class but Exception
                _close_socket(connection)
                if self._process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                if self._process.poll() is None:
                    raise RunError(f"{self._config}: SUMO did not answer within {_CONNECT_S:g} s.") from error
                raise InputError(f"{self._config}: SUMO refuses the scenario: {self._find_reason(error)}") from error
            return connection

    def _find_reason(self, error: Exception) -> str:
        """Wait up to 10 s for SUMO to exit; return its printed errors as one line, or else the exception's text."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_S)
            if (status := self._process.poll()) is not None and status < 0:
                return self._crash_message(status)
        self._log.seek(0)
        printed = self._log.read().decode(errors="replace")
        _, _, errors = printed.partition("Error: ")
        text = errors.replace("Error: ", "").replace("Quitting (on error).", "") or str(error)
        if text.startswith(_CONNECTION_ERRORS):
            text = _last_lines(printed) or "it printed no reason"
        if "display" in text and self.command[0] == "sumo-gui":
            text += " (--gui needs a display)"
        line = " ".join(self._clean_message(text).split()) or "no reason given"
        return line if line.endswith(".") else f"{line}."


def binary(name: str) -> Path:
    """Return the path of a program of the installed SUMO package, such as ``sumo``; it need not exist."""
    import sumo  # noqa: PLC0415 - only for live SUMO

    return Path(sumo.SUMO_HOME) / "bin" / name


def environment() -> dict[str, str]:
    """Return the environment variables for SUMO's programs; a ``SUMO_HOME`` that the user set is kept."""
    import sumo  # noqa: PLC0415 - only for live SUMO

    return {"SUMO_HOME": sumo.SUMO_HOME, **os.environ}


def drop_option(options: Sequence[str], name: str) -> list[str]:
    """Return a command line without the option ``name`` and its value, if it has them."""
    at = [index for index, part in enumerate(options) if part == name]
    return [part for index, part in enumerate(options) if index not in at and index - 1 not in at]


def _last_lines(printed: str) -> str:
    """Return the last three lines that SUMO printed, without routine ones, joined by spaces; empty if none."""
    everyday = ("Warning: ", "Loading ", "pj_obj_create", "Simulation ", "Step #")
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith(everyday)]
    return " ".join(lines[-3:])


def _close_socket(connection: Any) -> None:
    """Close the socket of a TraCI connection; None and all errors are ignored."""
    with contextlib.suppress(Exception):
        connection._socket.close()  # noqa: SLF001 - the package first sends a command, which may fail
