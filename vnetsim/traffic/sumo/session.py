"""One running SUMO, a process of its own, and the TraCI socket to it.

What SUMO prints is kept off the terminal, and searched for the reason when it fails.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, RunError
from vnetsim.traffic.sumo.config import options_of

QUIET = ("--no-step-log", "true", "--no-warnings", "true", "--verbose", "false")
"""Options that keep a scenario's own verbosity off the terminal; its log files still get everything."""

_CONNECT_S = 120.0
_SAYS_NOTHING = (
    "Process Error",
    "Could not load configuration",
    "connection closed",
    "TraCI server",
    "Connection ",
    "[Errno",
)
"""How errors of the connection begin, which do not tell why SUMO is gone."""
EXIT_S = 10.0
"""How long SUMO may take for what it is at, when it is to end."""


class SumoSession:
    """A started SUMO; ``api`` offers the modules ``simulation``, ``vehicle``, ``junction``, ... of TraCI.

    Args:
        outputs: further options, on where outputs go; not part of ``command``.
        cleaned: takes from SUMO's messages what ``outputs`` brought in.

    Raises:
        InputError: when SUMO refuses the scenario; carries SUMO's own reason.
        RunError: when SUMO cannot be started.
    """

    def __init__(
        self,
        config: Path,
        *,
        gui: bool = False,
        options: Sequence[str] = (),
        outputs: Sequence[str] = (),
        cleaned: Callable[[str], str] = str,
    ) -> None:
        self._config = config
        self._outputs = tuple(outputs)
        self._cleaned = cleaned
        self.command = ("sumo-gui" if gui else "sumo", "-c", str(config), *QUIET, *options)
        if gui:
            self.command = (*self.command, "--start", "true", "--quit-on-end", "true")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._open = True
        self.api: Any = None
        _hear_interrupts()
        try:
            self.api = self._connect()
        except BaseException:
            self.close()
            raise

    def failed(self, error: Exception) -> RunError:
        """Return what to raise when SUMO failed in a step."""
        return RunError(f"{self._config}: SUMO failed while running: {self._reason(error)}")

    @contextlib.contextmanager
    def answers(self) -> Iterator[None]:
        """Turn what a SUMO that is gone raises into an error that says why.

        Raises:
            RunError: SUMO does not answer any more.
        """
        from traci.exceptions import FatalTraCIError, TraCIException  # noqa: PLC0415 - only for live SUMO

        try:
            yield
        except (FatalTraCIError, TraCIException, OSError) as error:
            raise self.failed(error) from error

    def kill(self) -> None:
        """End SUMO at once, in whatever state the connection is."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End SUMO; may be called twice."""
        if not self._open:
            return
        self._open = False
        if self._process is not None:
            if self.api is not None:
                with contextlib.suppress(Exception):
                    self.api._socket.settimeout(EXIT_S)  # noqa: SLF001 - in a long step SUMO does not answer
                    self.api.close(wait=False)
                _hang_up(self.api)
            try:
                self._process.wait(EXIT_S if self.api is not None else 0.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def _crashed(self, status: int) -> str:
        """Return what is known of a SUMO that a signal ended."""
        named = options_of(self._config)
        files = [named[key] for key in ("net-file", "net", "n", "additional-files", "additional", "a") if key in named]
        return (
            f"signal {signal.Signals(-status).name} ended SUMO. It crashes without a word on a damaged net or "
            f"additional file, and was given {', '.join(files) or 'no net'}: write the net anew with netconvert or "
            "netedit. SIGKILL may have been a lack of memory."
        )

    def _connect(self) -> Any:
        import traci  # noqa: PLC0415 - only for live SUMO, like the next
        from sumolib.miscutils import getFreeSocketPort  # noqa: PLC0415

        port = getFreeSocketPort()
        program = binary(self.command[0])
        # the configuration's own port and number of clients would have SUMO wait for somebody else
        command = [str(program), *self.command[1:], *self._outputs]
        command += ["--remote-port", str(port), "--num-clients", "1"]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the wheel's own binary, no shell
                command,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment(),
            )
        except OSError as error:
            raise RunError(f"{program}: cannot start SUMO: {error.strerror}.") from error
        deadline = time.monotonic() + _CONNECT_S
        connection: Any = None
        while True:
            try:
                connection = traci.connect(port, numRetries=0, proc=self._process)
                connection.getVersion()
            except Exception as error:  # traci's exceptions share no class but Exception
                _hang_up(connection)
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
                self._process.wait(EXIT_S)
            if (status := self._process.poll()) is not None and status < 0:
                return self._crashed(status)
        self._log.seek(0)
        printed = self._log.read().decode(errors="replace")
        _, _, errors = printed.partition("Error: ")
        text = errors.replace("Error: ", "").replace("Quitting (on error).", "") or str(error)
        if text.startswith(_SAYS_NOTHING):
            text = _last_words(printed) or "it printed no reason"
        if "display" in text and self.command[0] == "sumo-gui":
            text += " (--gui needs a display)"
        return _one_line(self._cleaned(text))


def _hear_interrupts() -> None:
    """Let Ctrl-C end a wait at once: polars, when it is loaded, makes SIGINT restart the system call it comes into."""
    import polars as pl  # noqa: F401, PLC0415 - so that it is not loaded afterwards, by another thread

    signal.siginterrupt(signal.SIGINT, True)


def binary(name: str) -> Path:
    """Return a program of the SUMO package."""
    import sumo  # noqa: PLC0415 - only for live SUMO

    return Path(sumo.SUMO_HOME) / "bin" / name


def environment() -> dict[str, str]:
    """Return the environment that SUMO's programs run in."""
    import sumo  # noqa: PLC0415 - only for live SUMO

    return {"SUMO_HOME": sumo.SUMO_HOME, **os.environ}


def without(options: Sequence[str], name: str) -> list[str]:
    """Return a command line without one option and its value: SUMO refuses an option that is given twice."""
    at = [index for index, part in enumerate(options) if part == name]
    return [part for index, part in enumerate(options) if index not in at and index - 1 not in at]


def _last_words(printed: str) -> str:
    """Return the last lines a process printed that are not everyday ones."""
    everyday = ("Warning: ", "Loading ", "pj_obj_create", "Simulation ", "Step #")
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith(everyday)]
    return " ".join(lines[-3:])


def _hang_up(connection: Any) -> None:
    """Close the socket of a connection that cannot be closed in order."""
    with contextlib.suppress(Exception):
        connection._socket.close()  # noqa: SLF001 - the package closes it only after a farewell that may fail


def _one_line(text: str) -> str:
    line = " ".join(text.split()) or "no reason given"
    return line if line.endswith(".") else f"{line}."
