"""One running SUMO: in this process through libsumo, or as a process of its own through a TraCI socket.

SUMO writes to the process's standard output and error below Python's; whatever it writes while it loads and closes is
caught, kept off the terminal, and searched for the reason when it fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from vnetsim.errors import InputError, RunError
from vnetsim.parent_process import crashing_means
from vnetsim.standard_streams import plain
from vnetsim.traffic.sumo.config import options_of

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
        outputs: further options, on where outputs go; not part of ``command``.
        cleaned: takes from SUMO's messages what ``outputs`` brought in.

    Raises:
        InputError: when SUMO refuses the scenario; carries SUMO's own reason.
        RunError: when SUMO cannot be started, or libsumo already runs a simulation in this process.
    """

    def __init__(
        self,
        config: Path,
        *,
        backend: str,
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
            crashing_means("")
        else:
            if self.api is not None:
                with contextlib.suppress(Exception):
                    self.api._socket.settimeout(_EXIT_S)  # noqa: SLF001 - in a long step SUMO does not answer
                    self.api.close(wait=False)
                _hang_up(self.api)
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
        self._survives()
        words = (
            f"{self._config}: SUMO crashed within this process {self._why()} What was finished before is kept, for "
            "vnetsim resume; without --backend libsumo SUMO has a process of its own."
        )
        crashing_means(plain(words))
        try:
            with _caught(self._log):
                libsumo.start([*self.command, *self._outputs])
        except Exception as error:
            # A failed start leaves a half-loaded simulation behind, which crashes when stepped and must be closed.
            with contextlib.suppress(Exception), _caught(self._log):
                libsumo.close()
            raise InputError(f"{self._config}: SUMO refuses the scenario: {self._reason(error)}") from error
        return libsumo

    def _survives(self) -> None:
        """Load the scenario in a process of its own first: a SUMO that crashes within this one takes it along.

        Raises:
            InputError: SUMO crashes. What else is wrong, libsumo tells in its own words.
        """
        begin = next((text for text in _option(self.command, self._config, "begin", "b") if text), "0")
        command = [*without(self.command[1:], "--end"), "--end", begin, *self._outputs]
        try:
            done = subprocess.run(  # noqa: S603 - the wheel's own binary, no shell
                [str(binary("sumo")), *command],
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env=environment(),
            )
        except OSError:
            return
        if done.returncode < 0:
            raise InputError(f"{self._config}: SUMO refuses the scenario: {self._crashed(done.returncode)}")

    def _crashed(self, status: int) -> str:
        """Return what is known of a SUMO that a signal ended."""
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        if -status in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            return f"something ended SUMO ({name}); for SIGKILL that may have been a lack of memory."
        return f"SUMO itself crashed ({name}) {self._why()}"

    def _why(self) -> str:
        """Return what makes SUMO crash, and the files that it was given."""
        named = options_of(self._config)
        files = [named[key] for key in ("net-file", "net", "n", "additional-files", "additional", "a") if key in named]
        return (
            "without a word, as it does on a damaged net or additional file. "
            f"It was given {', '.join(files) or 'no net'}; write the net anew with netconvert or netedit."
        )

    def _connect(self) -> Any:
        import traci  # noqa: PLC0415 - see _load
        from sumolib.miscutils import getFreeSocketPort  # noqa: PLC0415 - see _load

        port = getFreeSocketPort()
        program = binary(self.command[0])
        command = [str(program), *self.command[1:], *self._outputs, "--remote-port", str(port)]
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
            except Exception as error:  # see step()
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
                self._process.wait(_EXIT_S)
            if (status := self._process.poll()) is not None and status < 0:
                return self._crashed(status)
        self._log.seek(0)
        printed = self._log.read().decode(errors="replace")
        _, marker, errors = printed.partition("Error: ")
        errors = errors.replace("Error: ", "").replace("Quitting (on error).", "") if marker else ""
        text = str(error)
        generic = text.startswith(
            (
                "Process Error",
                "Could not load configuration",
                "connection closed",
                "TraCI server",
                "Connection ",
                "[Errno",
            )
        )
        text = errors if errors and (generic or self._process is not None) else text
        if generic and not errors and (words := _last_words(printed)):
            text = f"{words} (--gui needs a display)" if "display" in words and self.command[0] == "sumo-gui" else words
        elif text.startswith("Process Error") and not errors:
            text = f"it printed no reason; `sumo -c {self._config} --verbose` may show what it read last"
        return _one_line(self._cleaned(text))


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


def _option(command: Sequence[str], config: Path, name: str, short: str) -> Iterator[str]:
    """Yield what a command line, then its configuration, give for an option."""
    if f"--{name}" in command:
        yield command[command.index(f"--{name}") + 1]
    options = options_of(config)
    yield options.get(name, options.get(short, ""))


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
