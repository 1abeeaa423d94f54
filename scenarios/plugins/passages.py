"""Traffic from a CSV file of passages: each vehicle drives straight through the disc of one RSU."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import ExitCause, TrafficInfo, VehiclePath
from vnetsim.errors import InputError
from vnetsim.errors.bounds import Within
from vnetsim.scenario.kinds import TrafficRequest
from vnetsim.traffic.paths import PathTraffic


@dataclass(frozen=True, kw_only=True)
class Passages:
    """One line per vehicle: vehicle, enter_s, speed_mps, bearing_deg (whence it comes), offset_m from the RSU.

    Args:
        file: the CSV file.
        range_m: coverage radius of the RSU (m).
    """

    name, source = "passages", "counted at the roadside"
    traffic_settings = ()

    file: str
    range_m: Annotated[float, Within(1, 1e5, "m", "no roadside radio reaches further")] = 250.0

    def open(self, _: TrafficRequest) -> PathTraffic:
        rsu = Rsu(id="roadside", x_m=0.0, y_m=0.0, range_m=self.range_m)
        paths = []
        with Path(self.file).open(newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.DictReader(lines), start=2):
                try:
                    paths.append(_path(row, rsu))
                except (KeyError, TypeError, ValueError) as error:
                    raise InputError(f"{self.file}: line {number}: not a passage: {error!r}.") from error
        paths.sort(key=lambda path: path[0].time_s[0])
        end_s = max((path.time_s[-1] for path, _ in paths), default=0.0)
        about = {"kind": self.name, "step_s": None, "seed": None, "inputs": (self.file,), "whole_paths": True}
        return PathTraffic([rsu], TrafficInfo(begin_s=0.0, end_s=end_s, **about), lambda: paths)


def _path(row: dict[str, str], rsu: Rsu) -> tuple[VehiclePath, ExitCause]:
    enter_s, speed_mps, offset_m = (float(row[name]) for name in ("enter_s", "speed_mps", "offset_m"))
    bearing = math.radians(float(row["bearing_deg"]))
    east, north = -math.sin(bearing), -math.cos(bearing)  # where it heads
    half_m = math.sqrt(rsu.range_m**2 - offset_m**2)
    return VehiclePath(
        vehicle_id=row["vehicle"], vehicle_type="", rsu_id=rsu.id,
        entry_cause="crossing", entry_edge=row["bearing_deg"],
        time_s=[enter_s, enter_s + 2 * half_m / speed_mps],
        x_m=[along_m * east + offset_m * north for along_m in (-half_m, half_m)],
        y_m=[along_m * north - offset_m * east for along_m in (-half_m, half_m)],
        speed_mps=[speed_mps, speed_mps],
    ), "crossing"  # fmt: skip
