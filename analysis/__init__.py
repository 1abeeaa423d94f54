"""From a run directory to tables, figures and a report. Reads files only; knows neither simulator nor learners."""
