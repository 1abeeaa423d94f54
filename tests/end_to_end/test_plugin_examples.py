"""The examples in ``scenarios/plugins``: short, and each runs from its file; what is wrong with others is one line."""

import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from small_runs import interrupted_at

from learners.flsimco import FLSimCo
from vnetsim.cli.lookup import kinds, word
from vnetsim.learning.global_generators import GlobalGenerators
from vnetsim.storage.run_directory import RunDirectory

FOLDER = Path(__file__).resolve().parents[2] / "scenarios" / "plugins"
QUICK = (
    *("--device", "cpu", "--rounds", "3", "--set", "silos.count=6", "--set", "learning.steps=2"),
    *("--set", "learning.batch=8", "--set", "data.train_images=120", "--set", "data.test_images=40"),
    *("--set", "compute.median_flops=4e9", "--set", "cost.model=trained"),
)


def test_each_is_at_most_75_lines_and_has_a_page():
    table = (FOLDER / "README.md").read_text()
    pages = {path.name: path.read_text() for path in FOLDER.glob("*.md") if path.name != "README.md"}
    examples = sorted(FOLDER.glob("*.py"))
    for path in examples:
        assert path.read_text().count("\n") <= 75, path
        (page,) = [name for name, text in pages.items() if f"[{path.name}]({path.name})" in text]
        assert re.search(rf"\]\({page}\) \|.* \[{path.name}\]\({path.name}\)", table)
    assert all(any(f"]({path.name})" in text for path in examples) for text in pages.values())


@pytest.mark.parametrize("kind", kinds(), ids=word)
def test_each_kind_has_a_row_and_a_page_that_names_its_protocol_and_key(kind):
    rows = (FOLDER / "README.md").read_text().splitlines()
    told = f"| `{kind.key}` | `{kind.table}` | `{word(kind)}` |"
    (page, *_) = [match[1] for row in rows if row.endswith(told) and (match := re.match(r"\| \[.*?\]\((.*?)\)", row))]
    text = (FOLDER / page).read_text()
    assert re.search(rf"\b{kind.protocol.__name__}\b", text)
    assert kind.key in text or f"--{kind.key}" in text or kind.key == "scenario"


GRATINGS = ("--set", f"data.name={FOLDER / 'gratings.py'}:Gratings")
PLAIN_CNN = ("--set", f"learning.encoder={FOLDER / 'plain_cnn.py'}:PlainCnn")
CONTRASTIVE = ("--set", "learning.bank=60", "--set", "learning.linear_probe=never")


def test_a_data_set_and_an_encoder_are_used_and_recorded(cli, scenarios, tmp_path):
    own = (*GRATINGS, "--set", "data.noise=0.5", *PLAIN_CNN, "--set", "encoder.width=8")
    done = cli("run", scenarios / "gaussian.toml", *QUICK, *CONTRASTIVE, *own, "--out", tmp_path / "run")
    assert (done.status, done.err) == (0, "")
    run = RunDirectory(tmp_path / "run")
    assert set(run.read("silos")["class_name"]) == {"horizontal", "rising", "vertical", "falling"}
    manifest = run.manifest()
    assert manifest["plugins"]["data"] == {
        "name": "gratings",
        "source": "drawn by the program",
        "settings": {"period_px": 8.0, "noise": 0.5},
    }
    assert manifest["plugins"]["encoder"]["settings"] == {"width": 8, "layers": 3}
    assert {Path(name).name for name in manifest["inputs"]} >= {"gratings.py", "plain_cnn.py"}
    # three convolutions of 8, 16 and 32 channels with their norms, and the projection
    convolutions = sum(9 * a * b + b + 2 * b for a, b in ((3, 8), (8, 16), (16, 32)))
    assert manifest["learner"]["parameters"] == convolutions + 32 * 128 + 128


RANDOM = """
import random
from dataclasses import dataclass

import torch
from torch import nn


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.dropout, self.second = nn.Conv2d(3, 4, 3, 2), nn.Dropout2d(), nn.Conv2d(4, 4, 3, 2)
        self.projection = torch.randn(4, 1, 1)  # stands in no file

    def forward(self, images):
        noise = torch.rand(len(images), 1, 1, 1)  # in evaluation as well
        return self.second(self.dropout(self.first(images + noise)).relu()) * self.projection * (1 + random.random())


@dataclass(frozen=True, kw_only=True)
class Random:
    \"\"\"Draws wherever it can.\"\"\"

    name = source = "random"

    def build(self):
        return Trunk(), 4
"""


def test_an_encoder_that_draws_gives_the_same_bits_for_a_seed_wherever_it_lies_also_resumed(
    cli, scenarios, results_of, monkeypatch, tmp_path
):
    for folder in (tmp_path / "here", tmp_path / "deep" / "there"):
        folder.mkdir(parents=True)
        (folder / "mine.py").write_text(RANDOM)
    monkeypatch.setenv("VNETSIM_CORES", "2")
    monkeypatch.setattr("learners.tasks.evaluation.PASS", 20)
    command = ("run", scenarios / "gaussian.toml", *QUICK, *CONTRASTIVE, "--out")
    before = GlobalGenerators()
    own = f"learning.encoder={tmp_path / 'here' / 'mine.py'}:Random"
    assert cli(*command, tmp_path / "run", "--set", own).status == 0
    assert not before.moved
    torch.rand(7)
    random.random()
    with interrupted_at(FLSimCo, "aggregate", 1):
        own = own.replace("here", "deep/there")
        assert cli(*command, tmp_path / "deep" / "there" / "again", "--set", own).status == 130
    shutil.move(tmp_path / "deep" / "there" / "again", tmp_path / "again")
    assert cli("resume", tmp_path / "again", "--trust").status == 0
    first, again = results_of(tmp_path / "run"), results_of(tmp_path / "again")
    assert {name for name in first if first[name] != again[name]} == set()
    assert not any(str(tmp_path).encode() in content for content in first.values()), "nobody's folders"
    assert b'\\"encoder\\": \\"mine.py:Random\\"' in first["model.safetensors"]
