"""Federated learners: one file per method, and the mathematics, data and training they share."""
