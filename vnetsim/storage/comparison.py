"""What a comparison's record may say, for those who write and those who read it."""

from __future__ import annotations

from typing import Literal

RECORD = "comparison.json"
"""The file itself, in the folder of a comparison."""

PLACES = ("cells", "traffic")
"""Where the run directories of a comparison lie in its folder."""

COMPARED = ("experiment.toml", "manifest.json", "[!/]*.parquet")
"""What a comparison reads of a cell."""

Interval = Literal["sign-flip", "t", "bca"]
"""How differences between arms get their p-values and intervals: the sign-flip test and all shifts that it does not
reject; Student's t, which takes normal differences; the bootstrap (BCa), which takes many."""

LEAST_FOR_BCA = 15
"""At fewer seeds its intervals cover too little: a nominal 95 % are 86 to 89 at 6 to 8."""
