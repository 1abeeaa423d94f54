"""Lanes of a GPU: streams in which recordings are replayed beside one another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch


class Lane(Protocol):
    """Where recordings are replayed one after the other, beside those of other lanes.

    Attributes:
        usable: whether more can be recorded; not after a recording that broke off.
    """

    usable: bool

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function a few times, and return a function that repeats its operations on the same tensors."""
        ...

    def entered(self) -> AbstractContextManager[None]:
        """Compute in this lane, in a ``with`` block."""
        ...

    def wait_for_others(self) -> None:
        """Let what the lane computes from now on begin after all that was begun outside."""
        ...

    def let_others_wait(self) -> None:
        """Let what is computed outside from now on begin after all that was begun in the lane."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was begun in the lane has ended."""
        ...

    def free_bytes(self) -> int:
        """Return the free memory of the device (bytes)."""
        ...


class CudaLane:
    """A stream of a CUDA device, and the memory of the graphs that are replayed in it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self.usable = True

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return the replay of a CUDA graph of the function; see ``Lane``.

        Raises:
            RuntimeError: the function waits for the device.
        """
        with self.entered():
            call()  # libraries allocate in the first call
            torch.cuda.synchronize(self._device)
            with _waits_refused():  # an error in a capture would leave the stream unusable
                call()
            graph = torch.cuda.CUDAGraph()
            try:  # other threads may allocate meanwhile
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    call()
            except BaseException:
                self.usable = False
                raise
        replay: Callable[[], None] = graph.replay
        return replay

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Launch kernels in this lane's stream, in a ``with`` block."""
        with torch.cuda.stream(self._stream):
            yield

    def wait_for_others(self) -> None:
        """See ``Lane``; others are the current stream."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def let_others_wait(self) -> None:
        """See ``Lane``; others are the current stream."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def synchronize(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()

    def free_bytes(self) -> int:
        """Return the free memory of the device (bytes)."""
        return int(torch.cuda.mem_get_info(self._device)[0])


@contextmanager
def _waits_refused() -> Iterator[None]:
    """Make torch raise RuntimeError where it sees a thread wait for the CUDA device within the ``with`` block."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)  # is called a prototype
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
