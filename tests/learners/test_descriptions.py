"""What every learner says of itself: all that reports and model files show, and the costs, are those of a table.

The table holds each registered learner with its defaults, and a variant for every setting that words depend on. The
images are neither square nor as high as they have channels, so that no side stands for another. After a change that is
meant, and with the reason in the commit's message:

    PYTHONPATH=tests python tests/learners/test_descriptions.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from device_checks.schedule import learner_class, registered
from device_checks.tiny_data import tiny_images, tiny_roads
from device_checks.training_work import context

from vnetsim.experiment import DataSettings, ExchangeSettings

GOLDEN = Path(__file__).with_name("golden_descriptions.json")
WIDTH = 20
OTHERWISE = {"facts", "network", "exchange", "partition"}
"""Fields of a description that are told line by line, or are no text."""
ABSENT = "absent"
"""In the table the value of a line that a learner says by default alone."""
CONTRASTIVE: tuple[dict[str, Any], ...] = ({"batchnorm": "local", "linear_probe": "never", "bank": 40},)
STEERING: tuple[dict[str, Any], ...] = (
    {"optimizer": "adam-kept", "test_frames": 10},
    {"topology": "ring"},
    {"topology": "star"},
)
SKEWED = {"partition": "label-skew", "local_test": 5}
VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "flsimco": (*CONTRASTIVE, {"negatives": "plain"}),
    "fedavg": CONTRASTIVE,
    "discard": (),
    "fedco": (
        *CONTRASTIVE,
        {"key_encoder": "rsu"},
        {"key_encoder": "visit"},
        {"queue": 100},
        {"key_encoder": "rsu", "batchnorm": "local"},
    ),
    "fedefm": (
        SKEWED,
        {"variant": "guest-average"},
        {"server": "none", "max_teachers": 2, "overseas_steps": 3},
        {"server": "none", "variant": "guest-average"},
        {"variant": "labels-once", "beta": 0.25},
        {"similarity": "step"},
    ),
    "fedavg-classification": (SKEWED,),
    "cdl": (
        *STEERING,
        {"coupling": "beta", "beta": 0.25, "divergence_schedule": "linear"},
        {"coupling": "joint", "beta": 0.25, "divergence_schedule": "measured"},
    ),
    "dsgd": STEERING,
    "fedavg-steering": STEERING,
}


def wide(images: torch.Tensor) -> torch.Tensor:
    """Return images of 16 x ``WIDTH`` pixels."""
    return images.repeat(1, 1, 1, 2)[..., :WIDTH].contiguous()


def described(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a learner says of itself, line by line, in JSON's types; of a series the caption's beginning."""
    cls: Any = learner_class(name)
    settings = {setting: value for setting, value in changes.items() if setting not in {"topology", "partition"}}
    images, roads = tiny_images(), tiny_roads()
    images = replace(
        images, train=wide(images.train), test=wide(images.test), mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)
    )
    roads = replace(roads, train=wide(roads.train), test=wide(roads.test))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("learners.tasks.task.load_images", lambda *_, **__: images)
        patch.setattr("learners.tasks.steering.load_steering", lambda *_, **__: roads)
        where = context(
            "cpu",
            6,
            data=DataSettings(partition=changes.get("partition", "iid")),
            exchange=ExchangeSettings(topology=changes.get("topology", "contact")),
        )
        learner = cls.create(where, cls.Settings(**settings))
    record, cost = learner.describe(), learner.cost(1)
    network = record.network
    lines = {
        **{f.name: getattr(record, f.name) for f in fields(record) if f.name not in OTHERWISE},
        "silo_label_counts": record.silo_label_counts.tolist(),
        **{f"facts: {title}": text for title, text in record.facts.items()},
        **{f"network: {f.name}": getattr(network, f.name) for f in fields(network)},
        "network: module": type(network.module).__name__,
        **{f"cost: {f.name}": getattr(cost, f.name) for f in fields(cost) if f.name != "model"},
        "cost: exchange": None if cost.exchange is None else asdict(cost.exchange),
        "exchange": record.exchange and record.exchange.name,
        "series": [f"{one.name}: {one.caption[:30]}" for one in learner.series()],
    }
    found: dict[str, Any] = json.loads(json.dumps(lines))
    return found


def key(name: str, changes: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{setting}={value}" for setting, value in changes.items())])


ROWS = [(name, changes) for name in sorted(registered()) for changes in ({}, *VARIANTS[name])]


@pytest.mark.parametrize(
    ("name", "changes"), ROWS, ids=lambda value: value if isinstance(value, str) else key("", value)
)
def test_a_learner_says_of_itself_what_the_table_says(name: str, changes: Mapping[str, Any]) -> None:
    golden = json.loads(GOLDEN.read_text())
    expected = {**golden[name], **golden[key(name, changes)]}
    assert described(name, changes) == {line: value for line, value in expected.items() if value != ABSENT}


def test_nothing_is_left_out() -> None:
    assert json.loads(GOLDEN.read_text()).keys() == {key(name, changes) for name, changes in ROWS}
    assert VARIANTS.keys() == registered().keys()


if __name__ == "__main__":
    table: dict[str, dict[str, Any]] = {}
    for name, changes in ROWS:
        found = described(name, changes)
        known = table.get(name, {})
        absent = dict.fromkeys(known.keys() - found.keys(), ABSENT)
        table[key(name, changes)] = {
            line: value for line, value in (found | absent).items() if line not in known or known[line] != value
        }
    rows = (
        f"{json.dumps(row)}: {{\n"
        + ",\n".join(f"  {json.dumps(line)}: {json.dumps(value)}" for line, value in lines.items())
        + "\n}"
        for row, lines in table.items()
    )
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
