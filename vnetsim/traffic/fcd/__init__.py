"""Traffic recorded as SUMO's floating car data: XML, CSV and Parquet."""
