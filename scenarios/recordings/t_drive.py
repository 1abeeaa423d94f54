"""Convert T-Drive's taxis: ``python t_drive.py FOLDER OUT.parquet``; the origin is the mean position."""

import math
import sys

import polars as pl

COLUMNS = {"vehicle_id": pl.String, "when": pl.String, "lon": pl.Float64, "lat": pl.Float64}
METRES_PER_DEGREE = 111_195

table = pl.read_csv(f"{sys.argv[1]}/*.txt", has_header=False, schema=COLUMNS)
shrink = math.cos(math.radians(table.select(pl.mean("lat")).item()))
table.with_columns(
    timestep_time=pl.col("when").str.to_datetime().dt.epoch("s"),
    vehicle_x=(pl.col("lon") - pl.col("lon").mean()) * METRES_PER_DEGREE * shrink,
    vehicle_y=(pl.col("lat") - pl.col("lat").mean()) * METRES_PER_DEGREE,
).unique(["vehicle_id", "timestep_time"], keep="first").sort("timestep_time").write_parquet(sys.argv[2])
