"""Places for RSUs from Python: ``vnetsim place``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from vnetsim.api.calls import Show, display_of
from vnetsim.api.results import Page
from vnetsim.api.settings import Scenario, SettingTree, experiment_of, folder_of, overrides_of, text_of
from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.paths import path_name, resolve_path
from vnetsim.own_packages import claim


@dataclass(frozen=True)
class Placement:
    """Chosen places for RSUs.

    Attributes:
        file: a SUMO additional file with the RSUs, for SUMO and for ``rsu=`` of ``vnetsim.run``.
        rsus: one row for each RSU, in the order of choice: ``id``, position ``x_m`` and ``y_m``, ``range_m``, ``adds``,
            the number of vehicles that no earlier RSU reaches, ``reached``, all so far, and ``share`` of all traffic.
        vehicles: number of all vehicles.
        page: the page with map, curve and table.
    """

    file: Path
    rsus: pl.DataFrame
    vehicles: int
    page: Page


def place(
    scenario: Scenario,
    *,
    budget: int,
    candidates: str = "signalised",
    by: Literal["commits", "covered"] = "commits",
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    settings: SettingTree | None = None,
    progress: Show = None,
    command: Sequence[str] | None = None,
    **keys: Any,
) -> Placement:
    """Choose places for RSUs that together reach most vehicles: ``vnetsim place``.

    All traffic is recorded once; every candidate is compared on the recorded paths. Each step takes the candidate that
    reaches most vehicles that no earlier RSU reaches; all together reach at least 63 % of what the best choice does.
    After an interruption the same call continues.

    Args:
        scenario: a ``.sumocfg``, an FCD recording with ``traffic__net``, or an experiment ``.toml`` of one.
        budget: number of RSUs; fewer are placed if no other candidate adds a vehicle.
        candidates: ``"signalised"`` junctions, all ``"junctions"``, or a SUMO additional file with POIs of type
            ``rsu``.
        by: a vehicle is reached if it stays in range of one RSU for as long as a participation takes in the median
            (``"commits"``), or if it comes in range at all (``"covered"``).
        seed: draws among places that add equally many vehicles; default 0.
        out: folder of results and recorded traffic, which a second call uses; default ``runs/SCENARIO-place``.
        settings: see ``vnetsim.run``; ``traffic.range_m`` is the range of the RSUs.
        progress: see ``vnetsim.run``.
        command: see ``vnetsim.run``.
        keys: see ``vnetsim.run``.

    Raises:
        InputError: an argument is wrong, the scenario has no road net, or no candidate reaches a vehicle.
        RunError: SUMO failed.
    """
    from vnetsim.study.place import RSUS, By  # noqa: PLC0415 - other calls need not wait for it
    from vnetsim.study.place import place as choose  # noqa: PLC0415

    if isinstance(budget, bool) or not isinstance(budget, int):
        raise InputError(f"budget: expected a whole number, got {budget!r}.")
    if by not in get_args(By):
        raise unknown_name("value", str(by), get_args(By), where="by")
    with display_of(progress) as display:
        experiment, _ = experiment_of(scenario, overrides_of(settings, seed=seed, **keys), learns=False)
        stem = resolve_path(experiment.scenario).name.split(".")[0]
        folder = folder_of(out) or Path("runs") / path_name(stem, "place")
        command = command or [f"vnetsim.place({experiment.scenario!r}, budget={budget})"]
        candidates = text_of(candidates, "candidates")
        found = choose(
            experiment, folder, budget=budget, candidates=candidates, by=by, command=command, progress=display
        )
    claim("analysis")
    from analysis.report.places import PAGE, places_page  # noqa: PLC0415 - matplotlib only for figures

    name, seen = Path(experiment.scenario).name, (found.candidates, found.lanes, found.vehicles, found.notes)
    table, finding = places_page(folder, name, found.rsus, *seen)
    page = Page(folder / PAGE, tables=[(table.title, table.head, table.rows, "")], notes=[finding, *found.notes])
    return Placement(folder / RSUS, found.rsus, found.vehicles, page)
