"""``learning.engine = compiled``, with a compiler that works without a GPU and changes no operation."""

from __future__ import annotations

import pytest
import torch
from device_checks.correctness import apart
from device_checks.tiny_rounds import jobs_of, results, tiny_learner
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.exc import InductorError

from learners.data.moving import fixed_shapes
from learners.engines import compiled
from learners.engines.programs import SequentialEngine
from vnetsim.errors import InputError, RunError


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr("learners.tasks.task.require_compiler", lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), [("flsimco", {}), ("fedefm", {"precision": "bfloat16"}), ("cdl", {})])
@pytest.mark.usefixtures("without_gpu")
def test_a_compiled_step_computes_the_same(name: str, settings: dict[str, str]) -> None:
    found = []
    with fixed_shapes():
        for engine in ("sequential", "compiled"):
            calls = jobs_of(tiny_learner(name, "cpu", engine=engine, **settings))
            found.append(results(SequentialEngine(), calls))
    assert apart(found[1], found[0]) < (1e-2 if "precision" in settings else 1e-4)


def test_a_compiled_engine_needs_a_gpu_with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="is for a GPU, and this run trains on cpu; take auto"):
        tiny_learner("flsimco", "cpu", engine="compiled")
    monkeypatch.setattr(compiled, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="the Python package triton"):
        compiled.require_compiler(torch.device("cuda"))


def test_a_failed_compilation_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no compiler here")

    monkeypatch.setattr(compiled, "BACKEND", fails)

    def double(one: Tensor) -> Tensor:
        return one * 2

    with pytest.raises(RunError, match=r"torch.compile failed \(.*no compiler here.*take auto"):
        compiled.compile_call(double)(torch.ones(2))


def test_a_failed_compilation_of_a_backward_pass_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise InductorError(ValueError("no backward here"), None)

    monkeypatch.setattr(compiled, "BACKEND", aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=fails))
    monkeypatch.setattr("learners.tasks.task.require_compiler", lambda _: None)
    with fixed_shapes(), pytest.raises(RunError, match=r"torch.compile failed \(.*no backward here.*take auto"):
        jobs_of(tiny_learner("fedavg-classification", "cpu", engine="compiled"), rounds=1)
