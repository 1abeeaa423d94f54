"""Convert a pNEUMA file: ``python pneuma.py FILE.csv OUT.parquet``; the origin is the mean position."""

import math
import sys
from pathlib import Path

import polars as pl

NAMES = ["timestep_time", "vehicle_id", "vehicle_type", "lon", "lat", "vehicle_speed"]
METRES_PER_DEGREE = 111_195

rows = []
for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()[1:]:
    track, kind, _, _, *samples = [cell.strip() for cell in line.strip().rstrip(";").split(";")]
    for k in range(0, len(samples), 6):
        lat, lon, kmh, _, _, time_s = map(float, samples[k : k + 6])
        rows.append((time_s, track, kind, lon, lat, kmh / 3.6))
table = pl.DataFrame(rows, schema=NAMES, orient="row")
shrink = math.cos(math.radians(table.select(pl.mean("lat")).item()))
table.with_columns(
    vehicle_x=(pl.col("lon") - pl.col("lon").mean()) * METRES_PER_DEGREE * shrink,
    vehicle_y=(pl.col("lat") - pl.col("lat").mean()) * METRES_PER_DEGREE,
).sort("timestep_time").write_parquet(sys.argv[2])
