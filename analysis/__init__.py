"""Tables, figures and reports from run directories. Reads files only; imports neither simulator nor learners."""
