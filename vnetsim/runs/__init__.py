"""One run, from its settings to a complete run directory; it can be stopped and resumed at any time."""
