"""Comparisons are made without their figures."""

from small_runs import undrawn

__all__ = ["undrawn"]
