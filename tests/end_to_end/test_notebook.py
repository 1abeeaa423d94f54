"""The tutorial as a notebook. A notebook is JSON: its cells are run without Jupyter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[2] / "scenarios" / "tutorial.ipynb"
RUN = """
import json, sys
space = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
print(space["study"].differences.height, space["page"].path, len(space["run"].windows))
"""


def test_the_tutorial_runs_and_holds_no_output(tmp_path: Path) -> None:
    told = json.loads(NOTEBOOK.read_text())
    assert (told["nbformat"], told["nbformat_minor"]) == (4, 5)
    assert all(cell.get("outputs", []) == [] for cell in told["cells"])
    command = [sys.executable, "-c", RUN, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    differences, page, windows = done.stdout.split()
    assert int(differences) > 0
    assert int(windows) > 0
    assert (tmp_path / page).is_file()
