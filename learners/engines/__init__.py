"""How the vehicles of a round are trained on one device or many: one after another, stacked, shipped to workers."""
