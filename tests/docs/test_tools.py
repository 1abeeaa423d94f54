"""The examples of docs/how-to/tools.md run as they stand there, where their package is installed."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_runs import small_run

__all__ = ["small_run"]

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
PAGE, FLOWER = ((HOW_TO / name).read_text(encoding="utf-8") for name in ("tools.md", "flower.md"))
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n\n```python\n(.*?)```", PAGE, flags=re.MULTILINE | re.DOTALL))
IMPORTED = re.compile(r"^(?:import|from) (\w+)", flags=re.MULTILINE)


def test_each_is_at_most_ten_lines_and_there_is_one_for_every_tool():
    assert list(EXAMPLES) == ["pandas", "DuckDB", "Optuna", "Ray Tune", "MLflow"]
    for code in EXAMPLES.values():
        assert len([line for line in code.splitlines() if line]) <= 10


@pytest.mark.parametrize("tool", [pytest.param(tool, marks=pytest.mark.slow if "vnetsim.run" in code else ())
                                  for tool, code in EXAMPLES.items()])  # fmt: skip
def test_an_example_runs(tool, small_run, tmp_path):
    needed = [*IMPORTED.findall(EXAMPLES[tool]), *(["pandas"] if tool == "Ray Tune" else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    shutil.copytree(small_run("gaussian.toml")[0], tmp_path / "runs" / "first")
    assert printed(EXAMPLES[tool], tmp_path) or tool == "MLflow"


def printed(code: str, folder: Path) -> str:
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.slow
def test_energy_as_flower_users_read_it(tmp_path):
    found = printed(re.findall(r"```python\n(.*?)```", FLOWER, flags=re.DOTALL)[1], tmp_path)
    assert "committed" in found
    assert "train_j" in found
