"""What one takes home from a run or a comparison: a paper's parts, TensorBoard's curves, SUMO's floating-car data."""
