"""Whole runs, from Python."""

from small_runs import cli, results_of, scenarios, small, small_run, toy, undrawn

__all__ = ["cli", "results_of", "scenarios", "small", "small_run", "toy", "undrawn"]
