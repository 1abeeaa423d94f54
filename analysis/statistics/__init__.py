"""Statistics of tables: dwell, bias, tests, power; no pages and no figures."""
