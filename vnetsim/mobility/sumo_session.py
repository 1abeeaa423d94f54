"""One running SUMO: in this process through libsumo, or as a process of its own through a TraCI socket.

SUMO writes to the process's standard output and error below Python's; whatever it writes while it loads and closes is
caught, kept off the terminal, and searched for the reason when it fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from vnetsim.errors import InputError, RunError

QUIET = ("--no-step-log", "true", "--no-warnings", "true", "--verbose", "false")
"""Options that keep a scenario's own verbosity off the terminal; its log files still get everything."""

_CONNECT_S = 120.0
_EXIT_S = 10.0


class SumoSession:
    """A started SUMO; ``api`` offers the modules ``simulation``, ``vehicle``, ``junction``, ... of TraCI.

    Args:
        config: the ``.sumocfg``.
        backend: ``"libsumo"`` or ``"traci"``.
        gui: show sumo-gui; needs ``"traci"``.
        options: further command-line options.

    Raises:
        InputError: when SUMO refuses the scenario; carries SUMO's own reason.
        RunError: when SUMO cannot be started, or libsumo already runs a simulation in this process.
    """

    def __init__(self, config: Path, *, backend: str, gui: bool = False, options: Sequence[str] = ()) -> None:
        self._config = config
        self.command = ("sumo-gui" if gui else "sumo", "-c", str(config), *QUIET, *options)
        if gui:
            self.command = (*self.command, "--start", "true", "--quit-on-end", "true")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._open = True
        self.api: Any = None
        try:
            self.api = self._connect() if backend == "traci" else self._load()
        except BaseException:
            self.close()
            raise

    @property
    def remote(self) -> bool:
        """Whether SUMO is a process of its own."""
        return self._process is not None

    def failed(self, error: Exception) -> RunError:
        """Return what to raise when SUMO failed in a step."""
        return RunError(f"{self._config}: SUMO failed while running: {self._reason(error)}")

    def kill(self) -> None:
        """End a SUMO of its own process at once, in whatever state the connection is; nothing for the library."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End SUMO; may be called twice."""
        if not self._open:
            return
        self._open = False
        if self._process is None:
            if self.api is not None:
                with contextlib.suppress(Exception), _caught(self._log):
                    self.api.close()
        else:
            if self.api is not None:
                with contextlib.suppress(Exception):
                    self.api.close(wait=False)
            try:
                self._process.wait(_EXIT_S if self.api is not None else 0.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def _load(self) -> Any:
        import libsumo  # noqa: PLC0415 - 0.2 s that other kinds of traffic need not pay

        if libsumo.simulation.isLoaded():
            raise RunError("libsumo already runs a simulation in this process; use --backend traci for a second one.")
        try:
            with _caught(self._log):
                libsumo.start(list(self.command))
        except Exception as error:
            # A failed start leaves a half-loaded simulation behind, which crashes when stepped and must be closed.
            with contextlib.suppress(Exception), _caught(self._log):
                libsumo.close()
            raise InputError(f"{self._config}: SUMO refuses the scenario: {self._reason(error)}") from error
        return libsumo

    def _connect(self) -> Any:
        import sumo  # noqa: PLC0415 - see _load
        import traci  # noqa: PLC0415 - see _load
        from sumolib.miscutils import getFreeSocketPort  # noqa: PLC0415 - see _load

        port = getFreeSocketPort()
        binary = Path(sumo.SUMO_HOME) / "bin" / self.command[0]
        command = [str(binary), *self.command[1:], "--remote-port", str(port)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the wheel's own binary, no shell
                command,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={"SUMO_HOME": sumo.SUMO_HOME, **os.environ},
            )
        except OSError as error:
            raise RunError(f"{binary}: cannot start SUMO: {error.strerror}.") from error
        deadline = time.monotonic() + _CONNECT_S
        while True:
            try:
                connection = traci.connect(port, numRetries=0, proc=self._process)
                connection.getVersion()
            except Exception as error:  # see step()
                if self._process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                if self._process.poll() is None:
                    raise RunError(f"{self._config}: SUMO did not answer within {_CONNECT_S:g} s.") from error
                raise InputError(f"{self._config}: SUMO refuses the scenario: {self._reason(error)}") from error
            return connection

    def _reason(self, error: Exception) -> str:
        """Return SUMO's own reason in one line: the lines it printed as errors, else the exception's text."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_S)
        self._log.seek(0)
        printed = self._log.read().decode(errors="replace")
        _, marker, errors = printed.partition("Error: ")
        errors = errors.replace("Error: ", "").replace("Quitting (on error).", "") if marker else ""
        text = str(error)
        generic = text.startswith(
            ("Process Error", "Could not load configuration", "connection closed", "TraCI server")
        )
        text = errors if errors and (generic or self._process is not None) else text
        return _one_line(text)


def _one_line(text: str) -> str:
    line = " ".join(text.split()) or "no reason given"
    return line if line.endswith(".") else f"{line}."


@contextlib.contextmanager
def _caught(log: IO[bytes]) -> Iterator[None]:
    """Send what C and C++ code of this process prints to ``log``."""
    flush = ctypes.CDLL(None).fflush if os.name == "posix" else (lambda _: None)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    try:
        flush(None)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        yield
    finally:
        flush(None)
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        os.close(saved[0])
        os.close(saved[1])
