"""How many cells run at once if the user does not say: one on a CPU, several on a GPU that is not there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vnetsim.study.workers import SHARE_BYTES, choose_workers, run_here

WALK = Path(__file__).with_name("walk_learners.py")
COMPARE = ("compare", "gaussian", "--learners", f"{WALK}:Walk,{WALK}:Shifted", "--seeds", "0", "--rounds", "2")
SHORT = ("--device", "cpu", "--set", "traffic.end_s=120")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Free memory of each GPU (bytes), for a test to fill; the machine has 16 cores."""
    free: list[int] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(free))
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(free))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda gpu: (free[int(str(gpu).removeprefix("cuda:"))], 0))
    monkeypatch.setenv("VNETSIM_CORES", "16")
    return free


@pytest.mark.parametrize(
    ("free", "device", "cores", "jobs", "expected"),
    [
        ([], "auto", 16, 20, 1),
        ([], "cuda", 16, 20, 1),  # refused when it runs
        ([139], "cpu", 16, 20, 1),
        ([139], "cuda", 16, 20, 8),
        ([139], "auto", 16, 20, 8),
        ([139], "cuda", 4, 20, 4),
        ([139], "cuda", 16, 3, 3),
        ([139], "cuda", 16, 0, 1),
        ([20], "cuda", 16, 20, 2),
        ([7], "cuda", 16, 20, 1),
        ([139, 139], "cuda", 16, 20, 16),
        ([20, 30], "cuda", 16, 20, 4),  # two on each: the first would not hold three
        ([139, 5], "cuda", 16, 20, 1),  # half of them would get the full one
        ([20, 30], "cuda:1", 16, 20, 3),
        ([20, 30], "cuda:2", 16, 20, 1),
    ],
)
def test_cells_share_a_gpu_as_memory_and_cores_allow(
    free: list[int], device: str, cores: int, jobs: int, expected: int, gpus: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.extend(gib * 2**30 for gib in free)
    monkeypatch.setenv("VNETSIM_CORES", str(cores))
    job: Any = SimpleNamespace(experiment=SimpleNamespace(device=device))
    assert choose_workers([job] * jobs) == expected


def test_a_mixed_study_and_a_failing_gpu_get_one(gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.append(100 * SHARE_BYTES)
    mixed: Any = [SimpleNamespace(experiment=SimpleNamespace(device=device)) for device in ("cpu", "cuda")]
    assert (choose_workers(mixed), choose_workers(mixed[1:] * 9)) == (1, 8)
    gpus.append(3 * SHARE_BYTES)
    named: Any = [SimpleNamespace(experiment=SimpleNamespace(device=f"cuda:{index}")) for index in (0, 1)]
    assert choose_workers(named * 9) == 3, "all may be in the smaller one"

    def fail(_: object) -> Any:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr("torch.cuda.mem_get_info", fail)
    assert choose_workers(mixed[1:] * 9) == 1


@pytest.mark.parametrize(("given", "workers"), [((), [2]), (("--workers", "1"), []), (("--workers", "3"), [3])])
def test_a_comparison_names_how_many_share_the_gpu(
    given: tuple[str, ...], workers: list[int], cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU that counts as a GPU where the number is chosen."""
    seen = []

    def run(jobs: Any, display: Any, *, workers: int) -> Any:
        seen.append(workers)
        return run_here(jobs, display)

    monkeypatch.setattr("vnetsim.study.workers.resolve_device", lambda _: "cuda")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (100 * SHARE_BYTES, 0))
    monkeypatch.setenv("VNETSIM_CORES", "16")
    monkeypatch.setattr("vnetsim.study.runner.run_in_processes", run)
    done = cli(*COMPARE, *SHORT, *given, "--out", tmp_path / "all")
    page = (tmp_path / "all" / "comparison.html").read_text()
    assert (done.status, seen) == (0, workers)
    chosen = not given
    assert ("2 cells run at a time on the GPU; --workers N runs N." in done.err) == chosen
    assert ("Up to 2 cells ran at a time on the GPU" in page) == chosen
