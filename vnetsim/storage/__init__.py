"""Writes and reads folders of runs and comparisons: files, checksums, tables, records."""
