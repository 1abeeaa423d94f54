"""Live SUMO: coverage windows while the simulation runs.

Only the modules of ``vnetsim.traffic.sumo`` talk to SUMO.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from vnetsim.coverage.placement import place_rsus
from vnetsim.coverage.rsu import degrees_hint, near_m
from vnetsim.coverage.windows import CoverageEvent, Floats, TrafficInfo
from vnetsim.errors import InputError, RunError
from vnetsim.errors.paths import resolve_path
from vnetsim.experiment import Experiment
from vnetsim.progress import ProgressDisplay
from vnetsim.traffic.paths import OpenedTraffic
from vnetsim.traffic.sumo.config import is_true, refuse_entities
from vnetsim.traffic.sumo.net import SumoNet, add_rsu_pois, find_lanes_around, lanes_for_maps
from vnetsim.traffic.sumo.outputs import SumoOutputs
from vnetsim.traffic.sumo.session import SumoSession
from vnetsim.traffic.sumo.steps import Pass
from vnetsim.traffic.vehicle_types import TypeFilter


class SumoTraffic(OpenedTraffic):
    """A ``.sumocfg``, played once or, with ``repeat``, again and again with the next seed.

    Pass ``k`` (from 0) uses seed ``seed + k``. From the second pass on, vehicle ids have the suffix ``#2``, ``#3`` and
    so on, and SUMO's own output files the prefix ``pass2_``, ``pass3_``. The last pass is the first in which no vehicle
    enters a disc. For the arguments see ``vnetsim.traffic.open_traffic``.

    InputError if SUMO refuses the scenario, it is mesoscopic, or an RSU cannot be placed.
    """

    def __init__(
        self, experiment: Experiment, *, repeat: bool, outputs: Path | None, progress: ProgressDisplay | None = None
    ) -> None:
        config, settings = Path(experiment.scenario), experiment.traffic
        if not config.is_file():
            raise InputError(f"{config}: no such file.")
        self._settings = settings
        self._repeat = repeat
        self._types: TypeFilter = TypeFilter(settings)
        self._glimpsed = Counter[str]()
        self._session: SumoSession | None = None
        self._play: Pass | None = None
        self._progress = progress
        self._config = config.absolute()
        refuse_entities(self._config)
        self._outputs = SumoOutputs(self._config, outputs)
        session: SumoSession | None = None
        try:
            session = self._start(self._settings.seed)
            with session.translate_errors():
                self._describe(session)
        except BaseException:
            if session is not None:
                session.kill()  # it may not answer
            self.close()
            raise

    def _describe(self, session: SumoSession) -> None:
        """Place the RSUs; set ``rsus``, ``time_s``, ``_info``, ``_radii_m``; InputError for an impossible scenario."""
        api = session.api
        option = api.simulation.getOption
        if is_true(option("mesosim")):
            raise InputError(
                f"{self._config}: mesosim: SUMO's mesoscopic model moves vehicles from one section of road to the next "
                "and has no positions to cover; remove it, or set it to false."
            )
        options = ("net-file", "route-files", "additional-files")
        files = [path for name in options for path in _listed_paths(option(name), self._config.parent)]
        net = SumoNet(api, self._config, self._options(self._settings.seed), self._progress)
        self.rsus, placed = place_rsus(self._settings, net, str(self._config))
        written = self._outputs.make_note()
        notes = [written] if written else []
        step_s: float = api.simulation.getDeltaT()
        begin_s: float = api.simulation.getTime()
        end_s: float = api.simulation.getEndTime()
        count_s = begin_s + self._settings.warmup_s
        if 0 <= end_s <= count_s:
            raise InputError(
                f"{self._config}: it ends at {end_s:g} s, before a warm-up of {self._settings.warmup_s:g} s "
                f"from {begin_s:g} s on is over; shorten --warmup or move --begin or --end."
            )
        self.time_s = count_s
        lanes: dict[str, Floats] = {}
        self._radii_m: list[float] = []
        for place, rsu in zip(add_rsu_pois(api, self.rsus), self.rsus, strict=True):
            around, fastest_mps = find_lanes_around(api, place, rsu)
            lanes |= around
            # 10 % and 5 m more: lane changes, and lanes drawn longer than their nominal length
            self._radii_m.append(rsu.range_m + 1.1 * fastest_mps * step_s + 5.0 + net.longest_jump_m)
            if not around:
                hint = degrees_hint(rsu.x_m, rsu.y_m)
                silent = f"RSU '{rsu.id}' has no road within {near_m(rsu):g} m; it sees no traffic.{hint}"
                placed = (*placed, silent)
        shown, fewer_lanes = lanes_for_maps(api, self.rsus, lanes)
        inputs = (self._config, *files, *map(Path, self._settings.rsu_files))
        self._info = TrafficInfo(
            kind="sumo",
            begin_s=count_s,
            end_s=end_s if end_s >= 0 and not self._repeat else None,
            step_s=step_s,
            seed=int(option("seed")) if self._settings.seed is None else self._settings.seed,
            command=session.command,
            version=api.getVersion()[1],
            inputs=tuple(dict.fromkeys(str(resolve_path(path)) for path in inputs)),
            notes=(*notes, *placed, *fewer_lanes),
            lanes=shown,
            vehicles=self._types.describe(),
            heights_m=self._types.heights_m,
            glimpsed=self._glimpsed,
            chosen_rsu="" if self._settings.rsu or net.rsu_pois() else self.rsus[0].id,
        )

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events of all passes; RunError if SUMO fails, or traffic was closed or already read."""
        shift_s, seed = 0.0, self._info.seed
        assert seed is not None
        for index in count():
            if index > 0:
                self._stop()
                self._start(seed + index, number=index + 1)
            if self._session is None:
                raise RunError(f"{self._config}: this traffic was closed or already read; open it again.")
            entered = False
            suffix = f"#{index + 1}" if index > 0 else ""
            with self._session.translate_errors():
                self._play = play = Pass(
                    self._session,
                    self.rsus,
                    self._radii_m,
                    suffix,
                    warmup_s=self._settings.warmup_s,
                    types=self._types,
                    glimpsed=self._glimpsed,
                )
            for time_s, events in play.batches(shift_s):
                self.time_s = max(time_s, self.time_s)
                if events:
                    entered = True
                    yield from events
            shift_s += play.duration_s - self._settings.warmup_s
            if not (self._repeat and entered):
                break
        self.time_s = max(self.time_s, self._info.begin_s + shift_s)
        self.close()

    def close(self) -> None:
        """End SUMO and remove temporary outputs; may be called twice."""
        self._stop()
        self._outputs.close()

    def _start(self, seed: int | None, *, number: int = 1) -> SumoSession:
        """Start SUMO for pass ``number`` (from 1), set and return ``_session``; ``seed`` None means the scenario's."""
        settings = self._settings
        self._session = SumoSession(
            self._config,
            gui=settings.gui,
            options=self._options(seed),
            outputs=self._outputs.options(number),
            clean_message=self._outputs.clean_message,
        )
        return self._session

    def _options(self, seed: int | None) -> tuple[str, ...]:
        """Return SUMO's options for seed, begin and end; those that are None get no option."""
        seeded = () if seed is None else ("--seed", str(seed), "--random", "false")
        times = {"--begin": self._settings.begin_s, "--end": self._settings.end_s}
        timed = [part for name, value in times.items() if value is not None for part in (name, f"{value:.15g}")]
        return (*seeded, *timed)

    def _stop(self) -> None:
        """End the pass and SUMO; does nothing if neither runs."""
        if self._play is not None:
            self._play.stop()
        if self._session is not None:
            self._session.close()
            self._session = None


def _listed_paths(option: str, folder: Path) -> tuple[Path, ...]:
    """Return the files that the value of a SUMO option lists: separated by commas, relative to ``folder``."""
    return tuple(folder / name.strip() for name in option.split(",") if name.strip())
