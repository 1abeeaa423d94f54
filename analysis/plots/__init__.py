"""Figures of the report: each public function takes a ``RunData`` and returns one or more ``Panel``."""
