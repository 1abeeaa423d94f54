"""The page of defaults names every setting of the default run that has a value of its own."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


NEUTRAL = {"none", "`none`", "`false`", "`auto`", "0", "1"}
"""What a setting that the page leaves out may be: off, or taken from elsewhere."""
WORDS = {
    "learner", "learning.batchnorm", "learning.linear_probe", "learning.precision", "learning.trim",
    "radio.environment", "topology.peers", "topology.range_m", "traffic.length_unit", "traffic.repeat",
    "traffic.speed_unit", "traffic.time_unit", "traffic.vehicle_types",
}  # fmt: skip
"""Left out too: they only say what a name or unit means."""


def test_the_page_of_defaults_has_those_of_the_default_run_with_certainty_and_source():
    spec: Any = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", generate.defaults_page(), re.MULTILINE)
    told = {key: value for key, value, *_ in rows}
    assert len(told) == len(rows) > 60
    assert told["radio.carrier_hz"] == "5.9e9"
    assert told["round.quorum"] == "3"
    assert told["silos.by"] == "`arrival`"
    values = generate.default_values()
    assert {values[key] for key in values.keys() - told - WORDS} <= NEUTRAL
    assert {certainty for _, _, certainty, _ in rows} <= set(generate.CERTAINTIES)


def test_the_table_of_changes_has_the_conditions_of_its_study():
    folder = ROOT / "docs" / "explanation"
    rows = re.findall(r"^\| (.+?) \| [\d,]+ ± \d+ \|", (folder / "defaults.md").read_text(), re.MULTILINE)
    study = tomllib.loads((folder / "defaults.toml").read_text())
    assert [row.replace("`", "") for row in rows] == [condition["name"] for condition in study["conditions"]]
