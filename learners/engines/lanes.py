"""Lanes of a GPU: streams in which recordings are replayed beside one another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Lane:
    """A stream of a CUDA device, in which recordings are replayed one after the other, and their memory."""

    usable = True
    """Whether more can be recorded; false after a recording that failed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call ``call`` thrice; return a function that replays its CUDA graph. RuntimeError if it waits for CUDA."""
        with self.activate():
            call()  # libraries allocate in the first call
            torch.cuda.synchronize(self._device)
            with _refuse_waits():  # an error in a capture would leave the stream unusable
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
    def activate(self) -> Iterator[None]:
        """Launch the kernels of the ``with`` block in this lane's stream."""
        with torch.cuda.stream(self._stream):
            yield

    def wait_for_others(self) -> None:
        """Make this stream's next kernels begin after those that the current stream has so far; return at once."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def let_others_wait(self) -> None:
        """Make the current stream's next kernels begin after those that this stream has so far; return at once."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def synchronize(self) -> None:
        """Block until all kernels of the stream have ended."""
        self._stream.synchronize()

    def free_bytes(self) -> int:
        """Return the free memory of the device (bytes)."""
        return int(torch.cuda.mem_get_info(self._device)[0])


@contextmanager
def _refuse_waits() -> Iterator[None]:
    """Make torch raise RuntimeError in the ``with`` block where it sees any thread wait for the CUDA device."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)  # is called a prototype
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
