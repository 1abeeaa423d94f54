"""How the vehicles of a round are trained on one device: one after another, side by side, or stacked."""
