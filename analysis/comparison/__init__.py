"""From the cells of a study to paired differences, verdicts, tables and a page."""
