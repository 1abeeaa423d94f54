"""Traffic of a live SUMO, by libsumo or TraCI."""
