"""`vnetsim.testing` and `vnetsim check`: built-in plug-ins and the examples keep every law; broken ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_frames import own_frames

from vnetsim.cli.commands import main
from vnetsim.cli.lookup import kinds
from vnetsim.errors import InputError
from vnetsim.testing import check_plugin

__all__ = ["own_frames"]
SCENARIOS = Path(__file__).parents[2] / "scenarios"
NEEDS_DATA = {*("access-log", "cifar10", "driving-log", "folder", "gtsrb", "npz", "steering-npz", "table", "flower")}
"""What needs files, or a package that is not installed everywhere."""
BUILT_IN = [(kind, name) for kind in kinds() for name in kind.names() if name != "resnet18"]  # it takes a minute
SLOW = {
    "afl-delay", "alie", "cdl", "discard", "drive", "dsgd", "fedadam", "fedasync", "fedavg", "fedavg-steering",
    "fedavgm", "fedco", "fedefm", "feddyn-classification", "fednova-classification", "fedprox",
    "fedprox-classification", "fedprox-steering", "flsimco", "jumps", "moon-classification", "qsgd", "road", "scaffold",
    "scaffold-classification", "scaffold-steering", "sync", "float16", "float32", "free-rider", "honest", "int8", "ipm",
    "noise", "replay", "scaling", "sign-flip",
}  # fmt: skip
"""What trains or simulates for a second or more: `make test-all` checks it, and one or two of its kind run always."""
EXAMPLES = {
    "fedprox.py:FedProx": {},
    "scaffold.py:Scaffold": {},
    "plugins/gratings.py:Gratings": {},
    "plugins/growing_rounds.py:GrowingRounds": {},
    "plugins/half_hearted.py:HalfHearted": {},
    "plugins/half_life.py:HalfLife": {},
    "plugins/least_served.py:LeastServed": {},
    "plugins/own_frames.py:OwnFrames": {"data.file": "index.csv"},
    "plugins/passages.py:Passages": {"source.file": str(SCENARIOS / "plugins" / "passages.csv")},
    "plugins/perceptron.py:Perceptron": {},
    "plugins/plain_cnn.py:PlainCnn": {},
    "plugins/rotation.py:RotNet": {},
    "plugins/scaled_signs.py:ScaledSigns": {},
    "plugins/two_ray.py:TwoRay": {},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads wait for each other where cores are few."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, id=f"{kind.name}-{name}", marks=[pytest.mark.slow] if name in SLOW else [])
        for kind, name in BUILT_IN
    ],
)
def test_a_built_in_plugin_keeps_every_law(kind: Any, name: str) -> None:
    if name in NEEDS_DATA:
        with pytest.raises(InputError, match=r"source\.file|radio\.file|data\.root|needs the package flwr"):
            check_plugin(kind.find(name))
        return
    assert len(check_plugin(kind.find(name))) >= 4


def test_every_example_is_checked() -> None:
    files = {
        str(path.relative_to(SCENARIOS)) for path in [*SCENARIOS.glob("*.py"), *(SCENARIOS / "plugins").glob("*.py")]
    }
    assert files - {"flower_schedule.py"} == {name.partition(":")[0] for name in EXAMPLES}, "that is no plug-in"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(*one, id=one[0], marks=[pytest.mark.slow] * (one[0] == "scaffold.py:Scaffold"))
        for one in EXAMPLES.items()
    ],
)
def test_an_example_keeps_every_law(
    name: str, settings: dict[str, str], own_frames: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_frames.parent)
    assert len(check_plugin(f"{SCENARIOS / name}", settings)) >= 4


HEAD = "from dataclasses import dataclass\nimport random\n\n@dataclass(frozen=True, kw_only=True)\n"
SELECT = (
    HEAD
    + "class Mine:\n    name = source = 'mine'\n\n"
    + "    def select(self, candidates, free, context):\n        {}\n"
)
PACE = HEAD + (
    "class Mine:\n    name = source = 'mine'\n    exchange = False\n    closed_by = 'quorum'\n\n"
    "    def places(self, state):\n        {}\n\n    def closes(self, state):\n        return state.committed > 1\n"
)
DEADLINE = "\n    def deadline_s(self, state):\n        return -1.0\n"
RATES = ("downlink_bps", "uplink_bps", "sidelink_bps")
RADIO = (
    HEAD
    + "class Mine:\n    name = source = 'mine'\n    update_s = {}\n\n"
    + "".join(f"    def {part}(self, rsu, one_m, *others):\n        {{}}\n\n" for part in RATES)
)
FORGETFUL = (SCENARIOS / "plugins" / "rotation.py").read_text() + (
    "\n\nclass Mine(RotNet):\n    name = 'mine'\n\n    def load_state_dict(self, state):\n"
    "        super().load_state_dict({key: one * (1 if key[:6] != 'model.' else 0) for key, one in state.items()})\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            SELECT.format("return None"),
            "in select in round 0: it returned None, expected Iterable; see vnetsim.simulation.selection.Selection",
        ),
        (SELECT.format("return candidates * 2"), "is no candidate or was returned before"),
        (SELECT.format("return 1 / 0"), r"in select\(.*\): ZeroDivisionError: division by zero\. See line"),
        (SELECT.format("return sorted(candidates, key=lambda _: random.random())"), "a second run with the same"),
        (SELECT.format("context.memory.x; return ()"), "AttributeError: 'NoneType' object has no attribute 'x'"),
        (PACE.format("return float('nan')"), r"returned nan, expected a fin.* See line \d+ of .*mine\.py"),
        (PACE.format("return 0.5"), "places in round 0: it returned 0.5, expected a whole number; see"),
        (
            PACE.format("return 2") + DEADLINE,
            "deadline_s in round 0: it returned -1.0, expected a finite number between",
        ),
        (PACE.format("return 0"), "no round closed with an update"),
        (PACE.format("return random.random() > 0.5"), "another one when it was called again with the same arguments"),
        (PACE.format("state.invited += 1; return 1"), "changed an argument; change a copy of it"),
        (RADIO.format("None", *["return 1e9 / one_m[0]"] * 3), r"downlink_bps\(Rsu, \(0.0, 0.0\), None\): Z"),
        (RADIO.format("None", *["return -5.0"] * 3), r"returned -5.0, expected a finite number between"),
        (FORGETFUL, "round 1 after load_state_dict has other bits than without"),
        (RADIO.format("-1", *["return 1e6"] * 3), "update_s is -1"),
    ],
)
def test_a_broken_law_is_one_line_with_call_answer_and_cure(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(SystemExit) as stopped:
        main(["check", f"{file}:Mine"])
    said = capsys.readouterr()
    assert stopped.value.code == 2, said
    assert any(re.search(words, line) for line in said.err.splitlines()), said.err
    assert all(re.match(r"vnetsim: [a-z ]+ 'mine'", line) for line in said.err.splitlines()), said.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.py:Mine", "gone.py: no such file."),
        ("mine.py", "name the class as well, as mine.py:CLASS."),
        ("mine.py:Other", "unknown plug-in class 'Other'. Available: Mine, function."),
        ("mine.py:function", "not a class"),
        ("mine.py:Mine", "no plug-in; the nearest kind is selection policy, and it lacks select"),
        ("nothing", "unknown plug-in 'nothing'"),
    ],
)
def test_what_is_no_plugin_is_refused_in_one_line(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("class Mine:\n    name = source = 'mine'\n\n\ndef function():\n    pass\n")
    with pytest.raises(SystemExit) as stopped:
        main(["check", name])
    said = capsys.readouterr()
    assert (stopped.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert words in said.err


def test_what_was_checked_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["check", f"{SCENARIOS / 'plugins' / 'growing_rounds.py'}:GrowingRounds", "--set", "pace.every=1"])
    said = capsys.readouterr()
    assert (stopped.value.code, said.err) == (0, "")
    assert said.out.startswith("pace growing\n  ok  name and source")
    assert "  ok  rounds close with updates\n" in said.out
