"""Flower's strategies as aggregation rules, against our own rules and a few lines; skipped where flwr is missing."""

import re
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learners.aggregation.flower import METRICS, Flower
from learners.aggregation.means import FedAvgM, Sync
from learners.mathematics.weights import weighted_mean
from vnetsim.errors import InputError, RunError
from vnetsim.learning import ModelKey, Participant
from vnetsim.learning.aggregation import AGGREGATIONS, NextModel, RoundUploads, Upload

State = dict[str, Tensor]
WEIGHTS = (0.5, 0.2, 0.3)
ROOT = Path(__file__).resolve().parents[3]
PAGE, SCHEDULE = ROOT / "docs" / "how-to" / "flower.md", ROOT / "scenarios" / "flower_schedule.py"


def state(seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(3, 2, generator=generator),
        "bias": torch.randn(2, generator=generator),
        "running_var": torch.rand(2, generator=generator) + 0.1,
        "num_batches_tracked": torch.tensor(seed),
    }


def uploads(first: int = 1, weights: Sequence[float] = WEIGHTS, model: State | None = None, memory: Any = None) -> Any:
    given = [
        Upload(state=state(first + n), base=state(100), weight=weight, staleness=n, participant=Participant(
            round=n, base=ModelKey("single", 0), rsu_id="r", vehicle_id=f"car{n}", silo=10 + n, speed_mps=20.0 + n,
            level_px=3.0 + n, stay_s=30.0 + n, download_s=1.0, train_s=2.0, upload_s=3.0))
        for n, weight in enumerate(weights)
    ]  # fmt: skip
    return RoundUploads(
        model=model or state(0),
        uploads=given,
        parameters=frozenset({"weight", "bias"}),
        memory=memory or {},
        mean=lambda: weighted_mean([one.state for one in given], list(weights)),
    )


def close(found: State, expected: State, atol: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=atol)


def own(folder: Path, body: str, name: str = "Mine") -> str:
    """A strategy of a file, whose class has this body."""
    path = folder / "strategy.py"
    lines = "import random, numpy as np\nfrom collections import deque\nfrom flwr.serverapp.strategy import FedAvg\n"
    path.write_text(f"{lines}class {name}(FedAvg):\n{body}")
    return f"{path}:{name}"


def test_without_flower_it_is_refused_in_one_line(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "flwr"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(InputError, match=r"^aggregation\.name: 'flower' needs the package flwr: pip install 'vnetsim"):
        Flower()


class TestWithFlower:
    """What only a machine with Flower can tell."""

    @pytest.fixture(autouse=True)
    def _flower(self) -> None:
        pytest.importorskip("flwr")

    def test_fedavg_is_the_weighted_mean_to_rounding(self):
        found = Flower().aggregate(uploads())
        close(found.state, dict(Sync().aggregate(uploads()).state))
        assert list(found.shares) == list(WEIGHTS)
        assert AGGREGATIONS.find("flower") is Flower

    def test_fedavgm_is_ours_over_rounds_with_its_momentum_in_the_memory(self):
        theirs = Flower(strategy="FedAvgM", arguments={"server_learning_rate": 0.5, "server_momentum": 0.8})
        ours = FedAvgM(learning_rate=0.5, momentum=0.8)
        models: list[State] = [state(0), state(0)]
        memories: list[Any] = [{}, {}]
        for first in (1, 5, 9):
            made = [rule.aggregate(uploads(first, model=model, memory=memory))
                    for rule, model, memory in zip((theirs, ours), models, memories, strict=True)]  # fmt: skip
            models, memories = [dict(one.state) for one in made], [one.memory for one in made]
            close(models[0], models[1], atol=1e-5)

    def test_fedadam_moves_from_the_model_that_the_round_began_with(self):
        rule = Flower(strategy="FedAdam", arguments={"eta": 0.1, "tau": 0.01})
        first = rule.aggregate(uploads())
        moved = state(50)  # by a cloud, between two rounds
        second = rule.aggregate(uploads(5, model=moved, memory=first.memory))
        for name in ("weight", "bias"):
            delta = [sum(w * state(b + n)[name].double() for n, w in enumerate(WEIGHTS)) - base[name].double()
                     for b, base in ((1, state(0)), (5, moved))]  # fmt: skip
            m = 0.9 * 0.1 * delta[0] + 0.1 * delta[1]
            v = 0.99 * 0.01 * delta[0] ** 2 + 0.01 * delta[1] ** 2
            step = 0.1 * (1 - 0.99**3) ** 0.5 / (1 - 0.9**3) * m / (v.sqrt() + 0.01)
            torch.testing.assert_close(second.state[name].double(), moved[name].double() + step, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("name", ["FedMedian", "FedTrimmedAvg", "Krum", "Bulyan"])
    def test_robust_strategies_fold_parameters_and_statistics_are_averaged(self, name):
        given = uploads(weights=(0.25, 0.25, 0.25, 0.25))
        found = Flower(strategy=name).aggregate(given).state
        stacked = {key: torch.stack([one.state[key] for one in given.uploads]) for key in ("weight", "bias")}
        for key, sent in stacked.items():
            if name == "FedMedian":
                torch.testing.assert_close(found[key], sent.quantile(0.5, dim=0))
            elif name == "Krum":
                assert any(torch.equal(found[key], one) for one in sent)
            else:
                assert (found[key] >= sent.amin(0)).all()
                assert (found[key] <= sent.amax(0)).all()
        close({"running_var": found["running_var"]}, {"running_var": given.mean()["running_var"]})

    def test_a_strategy_of_a_file_reads_the_metrics_of_each_reply(self, tmp_path):
        body = (
            "    def __init__(self, path, **kwargs):\n"
            "        super().__init__(**kwargs)\n"
            "        self.path, self.seen = path, []\n"
            "    def aggregate_train(self, server_round, replies):\n"
            "        ids = [reply.content['config']['vehicle_id'] for reply in replies]\n"
            "        self.seen.append({'round': server_round, 'ids': ids})\n"
            "        with open(self.path, 'w') as file:\n"
            "            print(self.seen, [dict(reply.content['metrics']) for reply in replies], file=file)\n"
            "        return super().aggregate_train(server_round, replies[:1])\n"
        )
        told = tmp_path / "told"
        rule = Flower(strategy=own(tmp_path, body), arguments={"path": str(told)})
        made = rule.aggregate(uploads(memory=rule.aggregate(uploads()).memory))
        close({"bias": made.state["bias"]}, {"bias": state(1)["bias"]})
        seen, metrics = eval(f"({told.read_text().replace('] [', '], [')})")
        assert seen == [{"round": number, "ids": ["car0", "car1", "car2"]} for number in (1, 2)]
        assert [tuple(one) for one in metrics] == [("num-examples", *METRICS)] * 3
        assert metrics[2] == {"num-examples": 0.3, "weight": 0.3, "silo": 12, "staleness": 2, "level_px": 5.0,
                              "speed_mps": 22.0, "stay_s": 32.0, "download_s": 1.0, "train_s": 2.0,
                              "upload_s": 3.0}  # fmt: skip

    def test_the_strategy_of_the_page_weighs_by_staleness_and_blur(self, tmp_path):
        code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)[0]
        (tmp_path / "fresh.py").write_text(code)
        found = Flower(strategy=f"{tmp_path / 'fresh.py'}:Fresh", arguments={"half_life": 1.0}).aggregate(uploads())
        weights = np.array([w * 0.5 ** (n + (3 + n) / 10) for n, w in enumerate(WEIGHTS)])
        mean = weighted_mean([state(1 + n) for n in range(3)], list(weights / weights.sum()))
        close({"weight": found.state["weight"]}, {"weight": mean["weight"]})

    def test_a_round_that_it_gives_nothing_for_keeps_the_model(self, tmp_path):
        """Of a round with one upload."""
        body = (
            "    def __init__(self, least=1):\n"
            "        super().__init__(min_train_nodes=least)\n"
            "    def aggregate_train(self, server_round, replies):\n"
            "        return None, {}\n"
        )
        made = Flower(strategy=own(tmp_path, body)).aggregate(uploads(weights=(1.0,)))
        assert (made.state, list(made.shares)) == ({}, [0.0])

    def test_what_would_not_be_the_same_when_resumed_is_refused(self, tmp_path):
        body = (
            "    def aggregate_train(self, *given):\n"
            "        self.past = deque()\n"
            "        return super().aggregate_train(*given)\n"
        )
        with pytest.raises(RunError, match="keeps 'past', a deque, which no checkpoint holds"):
            Flower(strategy=own(tmp_path, body)).aggregate(uploads())

    def test_what_is_no_strategy_or_cannot_be_made_is_refused_before_anything_runs(self, tmp_path):
        with pytest.raises(InputError, match=r"aggregation\.strategy: unknown .* 'FedAdm'.*mean 'FedAdam'"):
            Flower(strategy="FedAdm")
        (tmp_path / "other.py").write_text("class Mine:\n    pass\n")
        with pytest.raises(InputError, match=r"unknown Flower strategy .*other\.py:Mine'"):
            Flower(strategy=f"{tmp_path / 'other.py'}:Mine")
        with pytest.raises(InputError, match=r"aggregation\.arguments: 'FedAvg' cannot be made: .*'eta'"):
            Flower(arguments={"eta": 1.0})
        old = "from flwr.server.strategy import FedAvg\nclass Old(FedAvg):\n    pass\n"
        (tmp_path / "old.py").write_text(old)
        with pytest.raises(InputError, match=r"old\.py:Old' has aggregate_fit.*flwr\.serverapp\.strategy"):
            Flower(strategy=f"{tmp_path / 'old.py'}:Old")

    def test_a_strategy_gets_the_model_before_it_asks_for_nodes(self, tmp_path):
        """It keeps what ``configure_train`` got, and no node is sampled, however many it wants."""
        body = (
            "    def configure_train(self, server_round, arrays, config, grid):\n"
            "        self.current_arrays = arrays\n"
            "        yield from super().configure_train(server_round, arrays, config, grid)\n"
            "    def aggregate_train(self, server_round, replies):\n"
            "        return self.current_arrays, None\n"
        )
        moved = state(50)
        rule = Flower(strategy=own(tmp_path, body), arguments={"min_available_nodes": 99})
        made = rule.aggregate(uploads(model=moved, memory=rule.aggregate(uploads()).memory))
        close({"weight": made.state["weight"]}, {"weight": moved["weight"]})

    def test_the_strategy_of_the_schedule_trains_older_models_and_averages_by_weight(self, tmp_path, monkeypatch):
        app = pytest.importorskip("flwr.app")
        for key in ("_run_id", "_node_id", "_task_id"):  # as in a server app
            monkeypatch.setattr(f"flwr.supercore.task_identity.TaskIdentity.{key}", 1)

        def reply(request: Any) -> Any:
            task = request.content["config"]
            trained = request.content["arrays"]["0"].numpy() + task["silo"] * task["work_share"]
            metrics = app.MetricRecord({"weight": task["weight"]})
            content = app.RecordDict({"arrays": app.ArrayRecord([trained]), "metrics": metrics})
            return app.Message(content, reply_to=request)

        rows = ["0,0,1,0.25,1.0", "0,0,2,0.75,1.5", "2,0,4,1.0,1.0", "3,3,8,0.5,1.0", "3,1,8,0.5,1.0"]
        (tmp_path / "schedule.csv").write_text("\n".join(["round,base_round,silo,weight,work_share", *rows]))
        strategy = runpy.run_path(str(SCHEDULE))["Scheduled"](tmp_path / "schedule.csv")
        grid = SimpleNamespace(
            get_node_ids=lambda: [1, 2], send_and_receive=lambda messages, **_: [reply(one) for one in messages]
        )
        strategy.start(grid, app.ArrayRecord([np.zeros(1)]), num_rounds=3)
        versions = {number: float(record["0"].numpy()[0]) for number, record in strategy.versions.items()}
        assert versions == {0: 0.0, 1: 0.25 * 1 + 0.75 * 3, 3: 4.0, 4: 0.5 * (4 + 8) + 0.5 * (2.5 + 8)}

    def test_memory_brings_back_what_a_strategy_knew(self):
        rule = Flower(strategy="FedYogi")
        first = rule.aggregate(uploads())
        saved = {name: tensor.clone() for name, tensor in first.memory.items()}
        model = dict(first.state)
        results: list[NextModel] = [replace(rule).aggregate(uploads(5, model=model, memory=one))
                                    for one in (first.memory, saved)]  # fmt: skip
        assert all(torch.equal(results[0].state[name], results[1].state[name]) for name in model)
        forgotten = rule.aggregate(uploads(5, model=model)).state
        assert not np.allclose(forgotten["weight"], results[0].state["weight"])
