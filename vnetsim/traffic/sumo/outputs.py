"""Where the files go that a scenario has SUMO write: below the run directory, whatever path the scenario names.

SUMO opens an output file in one place only, and there puts the option ``output-prefix`` before the last part of its
path. A prefix that climbs to the root of the file system and down to a folder therefore leads every output there:
those of options and of detectors, probes, devices, traffic lights and saved states, with relative and absolute paths.
Two kinds go round it and are seen to one by one: VTK files and JuPedSim's. A configuration that has SUMO write a file
in place of simulating is refused: the file would lie wherever it says.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from vnetsim.errors import InputError, RunError
from vnetsim.traffic.sumo.config import options_of

_UP = "../" * 64
_PAST_THE_PREFIX = {
    "vtk-output": "vtk-output",
    "vtk": "vtk-output",
    "pedestrian.jupedsim.wkt": "pedestrian.jupedsim.wkt",
    "pedestrian.jupedsim.py": "pedestrian.jupedsim.py",
}
_INSTEAD = {"save-configuration", "save-config", "C", "save-template", "save-schema"}
NOWHERE = ("", "NUL", "nul", "/dev/null", "stdout", "stderr", "-")
"""Names by which SUMO writes to no file."""


class SumoOutputs:
    """A folder for the outputs of one scenario, and the options that lead them there.

    Args:
        config: the scenario.
        folder: the folder to make, or to go on with, as a resumed run does: SUMO writes its files anew, and what else
            is there stays. None takes a temporary one.

    Raises:
        InputError: something stands in the way that SUMO would write through, or the scenario has SUMO write a file in
            place of simulating.
        RunError: the folder cannot be made.
    """

    def __init__(self, config: Path, folder: Path | None) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._options = options_of(config)
        for name in sorted(_INSTEAD & self._options.keys()):
            raise InputError(f"{config}: option '{name}' has SUMO write a file in place of simulating; remove it.")
        self._kept = folder is not None
        if folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="vnetsim-")
            folder = Path(self._scratch.name) / "sumo"
        self.folder = folder = folder.absolute()
        try:
            if not os.path.lexists(folder):
                folder.mkdir(parents=True)
            _refuse_in_the_way(folder)
        except OSError as error:
            raise RunError(f"{folder}: cannot be made for SUMO's outputs: {error.strerror}.") from error
        shown = str(folder)
        # SUMO replaces TIME and ${...} in a prefix, and knows paths as UTF-8 only
        if "TIME" in shown or "$" in shown or not shown.isprintable() or len(shown) > 1000:
            self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="vnetsim-")
            alias = Path(self._scratch.name) / "outputs"
            alias.symlink_to(folder)
            shown = str(alias)
        self._root = f"{_UP}{shown.lstrip('/')}/"

    def options(self, number: int = 1) -> tuple[str, ...]:
        """Return SUMO's options for the ``number``-th pass of the scenario, counted from one."""
        own = _plain(self._options.get("output-prefix", ""))
        passed = f"pass{number}_" if number > 1 else ""
        options = ["--output-prefix", f"{self._root}{passed}{own}"]
        if "/" in self._options.get("output-suffix", ""):
            options += ["--output-suffix", _plain(self._options["output-suffix"])]
        for name, option in _PAST_THE_PREFIX.items():
            if self._options.get(name, "") not in NOWHERE:
                options += [f"--{option}", str(self.folder / f"{passed}{own}{Path(self._options[name]).name}")]
        return tuple(options)

    def cleaned(self, message: str) -> str:
        """Return a message of SUMO's with the paths of the outputs as the scenario has them."""
        return message.replace(self._root, "")

    def note(self) -> str:
        """Return what the user must know, empty when SUMO was asked for no output so far."""
        with suppress(OSError):
            if any(self.folder.iterdir()):
                where = f"go to {self.folder}" if self._kept else "go to a temporary folder and are discarded"
                return f"Files that the scenario has SUMO write {where}."
        return ""

    def close(self) -> None:
        """Remove what is temporary, and the folder when nothing was written."""
        with suppress(OSError):
            self.folder.rmdir()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


def _refuse_in_the_way(folder: Path) -> None:
    """Refuse what would lead SUMO's outputs out of the folder."""
    for path in (folder, *(folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ())):
        if path.is_symlink():
            raise InputError(f"{path}: a symbolic link; vnetsim has SUMO write nothing through it. Remove it.")
    if not folder.is_dir():
        raise InputError(f"{folder}: a file, where the folder of SUMO's outputs is to be. Take it away.")


def _plain(prefix: str) -> str:
    """Return a scenario's own prefix or suffix as a part of a name, which leads into no other folder."""
    return prefix.replace("/", "_")
