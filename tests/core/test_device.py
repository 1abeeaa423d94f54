"""What a run asks of the machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from vnetsim.device import keep_freed_memory
{call}
faults = []
for _ in range(4):
    np.ones(2**26, dtype=np.uint8)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[-2])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_for_the_next_array() -> None:
    """In a process of its own, for it holds until the process ends."""
    command = [sys.executable, "-c", FAULTS.format(call="keep_freed_memory()")]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert faults < 16, "else 16,384 of 4 KiB, or 32 of 2 MiB"
