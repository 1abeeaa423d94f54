"""The page of defaults names every setting of the default run that has a value of its own."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vnetsim
from vnetsim.experiment import DEFAULT_NAMES
from vnetsim.radio.models import Tr37885
from vnetsim.runs.assembly import assemble
from vnetsim.storage.structure import flat

ROOT = Path(__file__).resolve().parents[2]


NEUTRAL = {"none", "`none`", "`false`", "`auto`", 0.0, 1.0}
"""What a setting that the page leaves out may be: off, or taken from elsewhere."""
WORDS = {
    "learner", "learning.batchnorm", "learning.linear_probe", "learning.precision", "learning.trim",
    "radio.environment", "topology.peers", "topology.range_m", "traffic.length_unit", "traffic.repeat",
    "traffic.speed_unit", "traffic.time_unit", "traffic.vehicle_types",
}  # fmt: skip
"""Left out too: they only say what a name or unit means."""


def leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        elif field.name == "learning" and not prefix:
            yield from flat(value, "learning.").items()
        elif field.name in DEFAULT_NAMES and not prefix:
            yield f"{field.name}.name", DEFAULT_NAMES[field.name]
        elif field.name not in {"scenario", "source", "encoder", "own"}:
            yield prefix + field.name, value


def shown(value: Any) -> str:
    """Return a value as the page has it."""
    if value in (None, "", (), {}):
        return "none"
    if isinstance(value, tuple):
        (value,) = value
    return (
        f"`{value}`"
        if isinstance(value, str)
        else f"`{json.dumps(value)}`"
        if isinstance(value, bool)
        else float(f"{value:.3g}")
    )


def test_the_page_has_the_defaults_of_the_default_run():
    experiment = assemble(vnetsim.Experiment(ROOT / "scenarios" / "intersection.sumocfg")).experiment
    assert not any((experiment.radio, experiment.selection, experiment.pace, experiment.aggregation))
    page = (ROOT / "docs" / "explanation" / "defaults.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    told = {key: value if re.match(r"none|`", value) else float(value) for key, value, _ in rows}
    assert len(told) == len(rows)
    radio = {f"radio.{key}": value for key, value in leaves(Tr37885())}
    values = {key: shown(value) for key, value in (dict(leaves(experiment)) | radio).items()}
    assert told == {key: values[key] for key in told}
    assert {values[key] for key in values.keys() - told - WORDS} <= NEUTRAL
    certainties = {word for *_, words in rows for word in words.split(": ")[:1]}
    assert certainties <= {
        "standard", "one transcription", "derived", "memory", "paper", "measured", "assumption",
    }  # fmt: skip


def test_the_table_of_changes_has_the_conditions_of_its_study():
    folder = ROOT / "docs" / "explanation"
    rows = re.findall(r"^\| (.+?) \| [\d,]+ ± \d+ \|", (folder / "defaults.md").read_text(), re.MULTILINE)
    study = tomllib.loads((folder / "defaults.toml").read_text())
    assert [row.replace("`", "") for row in rows] == [condition["name"] for condition in study["conditions"]]
