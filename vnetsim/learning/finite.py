"""Whether what was trained is finite."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any


def all_finite(groups: Sequence[Collection[Any]]) -> list[bool]:
    """Return of each group of torch's tensors, such as a model's, whether all values are finite.

    A device is waited for once, however many groups there are.
    """
    import torch  # noqa: PLC0415 - two seconds that only runs with a learner spend

    largest = []
    for group in groups:
        tensors = [one for one in group if (one.is_floating_point() or one.is_complex()) and one.numel()]
        # of each tensor its largest modulus, NaN where it holds one: a single pass over the memory
        norms = torch._foreach_norm(tensors, math.inf) if tensors else [torch.zeros(())]  # noqa: SLF001
        largest.append(torch.stack([norm.to(norms[0].device, torch.float64) for norm in norms]).amax())
    return torch.stack([one.to(largest[0].device) for one in largest]).isfinite().tolist() if largest else []
