"""The page of one run directory: headline, sections, record."""
