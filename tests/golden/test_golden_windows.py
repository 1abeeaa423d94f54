"""The windows of the shipped scenarios, number for number.

The values belong to the versions they were made with (another SUMO drives differently); with others the comparison is
skipped. After a change that is meant to alter traffic or windows, look at the difference of

    pytest tests/golden --update-golden && git diff tests/golden
"""

import hashlib
import importlib.metadata
import json
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vnetsim.experiment import Experiment
from vnetsim.scenario.settings_file import load_experiment

DECIMALS = 6


def experiment_of(name: str, scenarios: Path) -> Experiment:
    """Return the experiment of a shipped scenario, played once."""
    path = next(
        scenarios / f"{name}{suffix}" for suffix in (".sumocfg", ".toml") if (scenarios / f"{name}{suffix}").exists()
    )
    return load_experiment(str(path), [(("traffic", "repeat"), False)])


def fixed(value: float) -> str:
    """Return ``value`` rounded, without a negative zero."""
    return f"{round(value, DECIMALS) + 0.0:.{DECIMALS}f}"


def summary(recording: Any) -> dict[str, Any]:
    """Return the golden values: readable totals first, then a hash of every window."""
    windows = sorted(recording.windows, key=lambda w: (w.rsu_id, w.enter_s, w.vehicle_id))
    lines = [
        "\t".join(
            (
                *(w.vehicle_id, w.vehicle_type, w.rsu_id, w.entry_cause, w.exit_cause, w.entry_edge, w.exit_edge),
                *(fixed(v) for v in (w.enter_s, w.exit_s, w.entry_speed_mps, w.mean_speed_mps)),
                *(fixed(v) for v in (w.max_speed_mps, w.path_length_m)),
            )
        )
        for w in windows
    ]
    return {
        "windows": len(windows),
        "vehicles": len({w.vehicle_id for w in windows}),
        "types": dict(sorted(Counter(w.vehicle_type for w in windows).items())),
        "entry_causes": dict(sorted(Counter(w.entry_cause for w in windows).items())),
        "exit_causes": dict(sorted(Counter(w.exit_cause for w in windows).items())),
        "dwell_s": round(sum(w.exit_s - w.enter_s for w in windows), DECIMALS),
        "path_length_m": round(sum(w.path_length_m for w in windows), DECIMALS),
        "first_window": lines[0],
        "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
    }


def made_with(recording: Any) -> dict[str, str]:
    """Return what decides the last digits: versions, and the platform, whose compilers order operations differently."""
    here = {"platform": f"{platform.system()} {platform.machine()}"}
    if recording.info.kind == "sumo":
        return here | {"sumo": recording.info.version}
    return here | {name: importlib.metadata.version(name) for name in ("numpy", "scipy")}


@pytest.mark.parametrize(
    "name",
    ["intersection", "expressway", "gaussian"]
    + [pytest.param(name, marks=pytest.mark.all_only) for name in ("urban", "studies/intersection")],
)
def test_windows_equal_the_golden_ones(name, scenarios, recorded, request):
    recording = recorded(experiment_of(name, scenarios))
    current = {"made_with": made_with(recording), **summary(recording)}
    golden_file = Path(__file__).parent / f"{name.replace('/', '-')}.json"
    if request.config.getoption("--update-golden", default=False):
        golden_file.write_text(json.dumps(current, indent=2) + "\n", encoding="utf-8")
        pytest.skip(f"{golden_file.name} rewritten")
    golden = json.loads(golden_file.read_text(encoding="utf-8"))
    if golden["made_with"] != current["made_with"]:
        pytest.skip(f"golden values were made with {golden['made_with']}, installed is {current['made_with']}")
    assert current == golden
