"""vnetsim: a vehicular-network co-simulator tied to SUMO."""

__version__ = "0.1.0"
