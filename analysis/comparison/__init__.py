"""Paired differences, verdicts, tables and a page from the cells of a study."""
