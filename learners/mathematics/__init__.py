"""Equations that methods share: losses, weights, averages, mixing, distillation."""
