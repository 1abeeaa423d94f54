"""The figures of the report: each function takes a ``RunData`` and returns a ``Panel``."""
