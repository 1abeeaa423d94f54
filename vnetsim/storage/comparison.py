"""What a comparison's record may say, for those who write and those who read it."""

from __future__ import annotations

from typing import Literal

RECORD = "comparison.json"
"""The file itself, in the folder of a comparison."""

PLACES = ("cells", "traffic")
"""Where the run directories of a comparison lie in its folder."""

COMPARED = ("experiment.toml", "manifest.json", "[!/]*.parquet")
"""What a comparison reads of a cell."""

Interval = Literal["sign-flip", "t"]
"""How differences between arms get their p-values and intervals: the sign-flip test and all shifts that it does not
reject, or Student's t, which takes normal differences."""
