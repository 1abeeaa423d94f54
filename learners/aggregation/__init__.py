"""Aggregation rules, one file each: what the RSU makes of a round's uploads; see ``vnetsim.learning.aggregation``."""
