"""Count the participations of each track and seed that committed, and compare with the published number.

It needs Python alone, and the CSV files beside it. Each commit must lie in a coverage window of its vehicle.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def read(table: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table beside this file, by column."""
    with Path(__file__).with_name(f"{table}.csv").open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def window_key(row: dict[str, str]) -> tuple[str, ...]:
    """Return what identifies the coverage window of a row."""
    return tuple(row[name] for name in ("track", "seed", "vehicle_id", "rsu_id", "enter_s"))


if __name__ == "__main__":
    exit_s = {window_key(row): float(row["exit_s"]) for row in read("windows")}
    commits: Counter[tuple[str, str]] = Counter()
    for row in read("participations"):
        if row["outcome"] == "committed":
            sent_s = float(row["end_s"]) - float(row["backhaul_s"])
            if not float(row["enter_s"]) <= float(row["start_s"]) <= sent_s <= exit_s[window_key(row)]:
                raise SystemExit(f"not in coverage: {row}")
            commits[row["track"], row["seed"]] += 1
    for row in read("seeds"):
        found, published = commits[row["track"], row["seed"]], row["commits"] or "not"
        print(f"{row['track']}, seed {row['seed']}: {found} commits, {published} published")  # noqa: T201 - a script
        if row["commits"] and found != int(row["commits"]):
            raise SystemExit(1)
