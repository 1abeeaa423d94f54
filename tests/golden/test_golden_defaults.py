"""What every built-in plug-in does where a user sets nothing, and its bounds, against ``defaults.json``.

A changed default changes what everybody's runs compute: it is a decision, and stands in the CHANGELOG.

    pytest tests/golden --update-golden && git diff tests/golden
"""

import json
from pathlib import Path
from typing import Any

import pytest

from vnetsim.api.settings import KINDS
from vnetsim.plugins import Kind
from vnetsim.scenario.kinds import TRAFFIC_SOURCES
from vnetsim.setting_texts import setting_texts

FILE = Path(__file__).with_name("defaults.json")


def ours(kind: Kind) -> list[str]:
    """Return the names of a kind that no other package installed."""
    return [one.name for one in kind.entries() if one.value.split(".")[0] in {"vnetsim", "learners"}]


def told(kind: Kind, name: str) -> dict[str, Any]:
    """Return the settings of a plug-in with default and bounds, its flags, and the defaults that a learner brings."""
    found = kind.find(name)
    texts = {text.key: text for text in setting_texts(kind.settings_of(found), kind.table)}
    facts = {key: getattr(found, key) for key in dir(found) if not key.startswith("_")}
    others = {key: value for key, value in facts.items() if f"{kind.table}.{key}" not in texts}
    return {
        **{key: f"{text.default} {text.bounds.partition(':')[0]}".strip() for key, text in texts.items()},
        **{key: value for key, value in others.items() if isinstance(value, bool | float)},
        **facts.get("defaults", {}),
    }


def test_defaults_and_bounds_of_every_built_in_plug_in(request):
    kinds = (*KINDS, TRAFFIC_SOURCES)
    made = {f"{kind.name} {name}": told(kind, name) for kind in kinds for name in ours(kind)}
    if request.config.getoption("--update-golden", default=False):
        FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        pytest.skip(f"{FILE.name} rewritten")
    assert json.loads(json.dumps(made)) == json.loads(FILE.read_text(encoding="utf-8"))
