"""Folders of the user's own with the names of vnetsim's packages, where Python looks first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEARNER = "from vnetsim.learning.kinds import LEARNERS; print(LEARNERS.find('fedavg').__module__)"


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with packages ``analysis`` and ``learners`` of its own."""
    for name in ("analysis", "learners"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    return tmp_path


def python(folder: Path, *arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python where the packages of a folder come first; in that folder, unless it is called in another."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd or folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_command_line_finds_its_own(project, tmp_path):
    """Nor does ``python -m vnetsim`` bring modules of the folder it is called in; the installed command never looks."""
    trace, folder = tmp_path / "executed", tmp_path / "received"
    folder.mkdir()
    for name in ("numpy", "polars", "matplotlib", "cyclopts", "tomllib", "cattrs"):
        (folder / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    out = ("--out", project / "traffic", "--set", "traffic.end_s=20")
    done = python(project, "-m", "vnetsim", "mobility", "gaussian", *out, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "traffic" / "report.html").is_file()
    assert not trace.exists()


@pytest.mark.all_only
def test_a_script_finds_a_learner_and_vnetsims_names_are_right_beside_any_folder(project):
    script = project / "script.py"
    script.write_text(f"""{LEARNER}
import sys
from vnetsim.learners.cdl import Cdl
from vnetsim.analysis import formatting
import vnetsim.learners.tasks.task, learners.cdl, analysis.formatting
assert learners.cdl.Cdl is Cdl and sys.modules["vnetsim.learners.cdl"] is learners.cdl
assert learners.cdl.__spec__.name == learners.cdl.__name__ == "learners.cdl"
assert analysis.formatting is formatting and not hasattr(learners, "MINE")
""")
    done = python(project, script)
    assert (done.returncode, done.stdout) == (0, "learners.fedavg\n"), done.stderr
    assert f"'import learners' gives vnetsim's package in this process, and hides {project / 'learners'}" in done.stderr


def test_another_that_is_loaded_already_is_named(project):
    done = python(project, "-c", f"import learners; {LEARNER}")
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: 'learners' is {project / 'learners'} in this process, and vnetsim has a package "
        "of that name, which cannot be loaded beside it: rename that one, or use vnetsim in a process that does not "
        "import it."
    )
