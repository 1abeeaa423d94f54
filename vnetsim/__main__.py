"""``python -m vnetsim`` is the command line."""

from vnetsim.cli import main

main()
