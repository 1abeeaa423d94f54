"""One run from its settings to a complete run directory: resumable at any instant."""
