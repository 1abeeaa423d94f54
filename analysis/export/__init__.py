"""Exports of a run or a comparison: parts of a paper, TensorBoard event files, SUMO floating-car data."""
