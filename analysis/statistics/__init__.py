"""What tables say in numbers: dwell, bias, tests, power; no page and no figure."""
