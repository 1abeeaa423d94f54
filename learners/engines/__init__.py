"""How the vehicles of a round are trained: one after the other, side by side on a CPU, by recorded steps on a GPU."""
