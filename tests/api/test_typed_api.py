"""A user's script is checked by mypy against the types that the package brings (``py.typed``, ``__init__.pyi``)."""

import subprocess
import sys

import pytest

SCRIPT = """\
import vnetsim

run = vnetsim.run("my.sumocfg", learner="fedefm", rounds=20, seed=1, out="first")
longest_s = run.windows["exit_s"].max()
study = vnetsim.compare("my.sumocfg", learners=["fedefm", "fedavg-classification"], seeds=range(8))
reveal_type(run)
reveal_type(run.windows)
reveal_type(study.differences)
vnetsim.run("my.sumocfg", out=3)
run.window
"""

# What lies behind the API is checked with the package itself; left out here, the check takes a tenth of the time.
SKIPPED = """
torch.* numpy.* scipy.* analysis.* learners.* vnetsim.runs.* vnetsim.study.* vnetsim.scenario.*
vnetsim.traffic.* vnetsim.simulation.* vnetsim.display.* vnetsim.storage.* vnetsim.learning.*
vnetsim.plugins.* vnetsim.radio.* polars._plr.*
"""
CONFIG = f"""\
[mypy]
strict = true
follow_imports = silent
[mypy-{",".join(SKIPPED.split())}]
follow_imports = skip
"""


@pytest.mark.slow
def test_a_users_script_is_typed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    options = ["--config-file", "mypy.ini", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = [line.removeprefix("script.py:") for line in done.stdout.splitlines()]
    assert [line for line in lines if "note: Revealed" in line] == [
        '6: note: Revealed type is "vnetsim.api.results.Run"',
        '7: note: Revealed type is "polars.dataframe.frame.DataFrame"',
        '8: note: Revealed type is "polars.dataframe.frame.DataFrame"',
    ]
    wrong = [line for line in lines if "error:" in line]
    assert len(wrong) == 2, done.stdout + done.stderr
    assert wrong[0].startswith('9: error: Argument "out" to "run" has incompatible type "int"')
    assert wrong[1].startswith('10: error: "Run" has no attribute "window"')
