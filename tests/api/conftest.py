"""Whole runs, from Python."""

from small_runs import results_of, scenarios, small, small_run, toy

__all__ = ["results_of", "scenarios", "small", "small_run", "toy"]
