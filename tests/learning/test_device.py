"""The device that a run asks for."""

from types import SimpleNamespace

import pytest

from vnetsim.errors import InputError
from vnetsim.learning.device import peak_memory, resolve_device


@pytest.mark.parametrize(
    ("asked", "devices", "given"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda"),
        ("cpu", 2, "cpu"),
        ("cuda", 2, "cuda"),
        ("cuda:1", 2, "cuda:1"),
        ("cuda:2", 2, "this machine has 2 CUDA"),
        ("cuda:0", 0, "no CUDA device is available"),
        ("cuda:", 2, "must be auto, cpu, cuda or cuda:N"),
        ("tpu", 2, "must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_the_device_is_the_one_asked_for(asked, devices, given, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: devices > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: devices)
    if " " in given:
        with pytest.raises(InputError, match=f"^--device {asked}: {given}"):
            resolve_device(asked)
    else:
        assert resolve_device(asked) == given


@pytest.mark.parametrize(("platform", "host"), [("linux", 5 * 1024), ("darwin", 5)])
def test_peak_memory_is_in_bytes_and_of_the_device_that_held_most(platform, host, monkeypatch):
    cuda = SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 2, max_memory_allocated=(7, 9).__getitem__)
    system = SimpleNamespace(platform=platform, modules={"torch": SimpleNamespace(cuda=cuda)})
    monkeypatch.setattr("vnetsim.learning.device.sys", system)
    monkeypatch.setattr("resource.getrusage", lambda _: SimpleNamespace(ru_maxrss=5))
    assert peak_memory() == {"host": host, "device": 9}
