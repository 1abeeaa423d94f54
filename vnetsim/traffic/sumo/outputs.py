"""Redirects all files that a scenario makes SUMO write into one folder, whatever paths the scenario names.

SUMO puts the option ``output-prefix`` before the last part of the path of every output file. A prefix that climbs to
the root of the file system and down to a folder therefore redirects all outputs: those of options, detectors, probes,
devices, traffic lights and saved states, with relative and absolute paths. Files of VTK and JuPedSim ignore the prefix
and are redirected one by one. A configuration that makes SUMO write a file instead of simulating is refused.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from vnetsim.errors import InputError, RunError
from vnetsim.traffic.sumo.config import options_of

_UP = "../" * 64
_IGNORE_PREFIX = {
    "vtk-output": "vtk-output",
    "vtk": "vtk-output",
    "pedestrian.jupedsim.wkt": "pedestrian.jupedsim.wkt",
    "pedestrian.jupedsim.py": "pedestrian.jupedsim.py",
}
_NO_SIMULATION = {"save-configuration", "save-config", "C", "save-template", "save-schema"}
NOWHERE = ("", "NUL", "nul", "/dev/null", "stdout", "stderr", "-")
"""Names by which SUMO writes to no file."""


class SumoOutputs:
    """The folder for the outputs of one scenario, and the options that redirect them.

    ``folder`` may exist, as in a resumed run: SUMO overwrites its files, others stay. With None a temporary folder is
    used, which ``close`` removes. InputError if the folder is a file or contains a symbolic link, or the scenario makes
    SUMO write a file instead of simulating; RunError if the folder cannot be made.
    """

    def __init__(self, config: Path, folder: Path | None) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._options = options_of(config)
        for name in sorted(_NO_SIMULATION & self._options.keys()):
            raise InputError(f"{config}: option '{name}' has SUMO write a file in place of simulating; remove it.")
        self._is_kept = folder is not None
        if folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="vnetsim-")
            folder = Path(self._scratch.name) / "sumo"
        self.folder = folder = folder.absolute()
        try:
            if not os.path.lexists(folder):
                folder.mkdir(parents=True)
            _refuse_links_and_files(folder)
        except OSError as error:
            raise RunError(f"{folder}: cannot be made for SUMO's outputs: {error.strerror}.") from error
        shown = str(folder)
        # SUMO replaces TIME and ${...} in a prefix, and reads paths as UTF-8
        if "TIME" in shown or "$" in shown or not shown.isprintable() or len(shown) > 1000:
            self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="vnetsim-")
            alias = Path(self._scratch.name) / "outputs"
            alias.symlink_to(folder)
            shown = str(alias)
        self._root = f"{_UP}{shown.lstrip('/')}/"

    def options(self, number: int = 1) -> tuple[str, ...]:
        """Return SUMO's options that redirect its files of pass ``number`` (from 1) into ``folder``."""
        # slashes of the scenario's own prefix and suffix would lead to other folders
        own = self._options.get("output-prefix", "").replace("/", "_")
        passed = f"pass{number}_" if number > 1 else ""
        options = ["--output-prefix", f"{self._root}{passed}{own}"]
        if "/" in self._options.get("output-suffix", ""):
            options += ["--output-suffix", self._options["output-suffix"].replace("/", "_")]
        for name, option in _IGNORE_PREFIX.items():
            if self._options.get(name, "") not in NOWHERE:
                options += [f"--{option}", str(self.folder / f"{passed}{own}{Path(self._options[name]).name}")]
        return tuple(options)

    def clean_message(self, message: str) -> str:
        """Return a message of SUMO with the redirected paths of output files as the scenario names them."""
        return message.replace(self._root, "")

    def make_note(self) -> str:
        """Return a note for the user on where SUMO's outputs are; empty if there are none so far."""
        with suppress(OSError):
            if any(self.folder.iterdir()):
                where = f"go to {self.folder}" if self._is_kept else "go to a temporary folder and are discarded"
                return f"Files that the scenario has SUMO write {where}."
        return ""

    def close(self) -> None:
        """Remove temporary files, and the folder if it is empty; may be called twice."""
        with suppress(OSError):
            self.folder.rmdir()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


def _refuse_links_and_files(folder: Path) -> None:
    """Raise InputError for symbolic links, which would lead SUMO out of the folder, or a file in its place."""
    for path in (folder, *(folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ())):
        if path.is_symlink():
            raise InputError(f"{path}: a symbolic link; vnetsim has SUMO write nothing through it. Remove it.")
    if not folder.is_dir():
        raise InputError(f"{folder}: a file, where the folder of SUMO's outputs is to be. Take it away.")
