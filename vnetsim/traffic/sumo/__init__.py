"""Traffic of a live SUMO."""
