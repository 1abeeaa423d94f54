"""From one run directory to its page: headline, sections, record."""
