"""``python -m vnetsim`` is the command line."""

import sys
from pathlib import Path

# Python searches the current folder first, which may be a received one; no module of the program is taken from there
if not sys.flags.safe_path and Path(sys.path[0]) == Path.cwd() != Path(__file__).parents[1]:
    del sys.path[0]

from vnetsim.launch import main

main()
