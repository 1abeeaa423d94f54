"""Studies as text."""

import pytest

from vnetsim.scenario.settings_file import parse_override
from vnetsim.study.plan import Plan
from vnetsim.study.request import plan_of

ARMS = '[[arms]]\nname = "ours"\nlearner = "flsimco"\n[[arms]]\nlearner = "fedco"\n'


@pytest.fixture
def planned(tmp_path):
    """Writes a study and plans it: ``planned(text, *options, size=...)``; without arms it compares two learners."""

    def call(text: str, *options: str, arms: str = ARMS, scenario: str = "gaussian", **given: object) -> Plan:
        named = f'scenario = "{scenario}"\n' if scenario else ""
        (tmp_path / "notes.md").touch()
        (tmp_path / "study.toml").write_text(named + text + ("" if "arms" in text else arms))
        overrides = [parse_override(option) for option in options]
        return plan_of(str(tmp_path / "study.toml"), overrides, **given)[0]  # type: ignore[arg-type]

    return call
