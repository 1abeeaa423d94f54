"""The manifest of a run as titled tables of facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.formatting import THIN, clean, count, duration, percent, si, timestamp
from analysis.loading import RunData
from analysis.report.notices import describe_codecs, describe_rates
from vnetsim.storage.records import LearnerEntry

_ENDINGS = {
    "rounds": "all rounds were done",
    "time": "its time had passed",
    "traffic": "the traffic ended",
    "caller": "its caller ended it",
}
_MOST_RSUS = 20

Row = tuple[str, Any] | tuple[str, Any, bool]
"""Name and value of a fact; a third item sets it in a fixed-width font. Facts without a value are left out."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A titled table of facts: name, value, and whether to use a fixed-width font."""

    title: str
    rows: Sequence[tuple[str, str, bool]]


def record(run: RunData) -> list[Facts]:
    """Return the tables of facts: run, traffic, radio, computers and learner (with a learner only), machine."""
    tables: dict[str, list[Row]] = {"Run": _run_facts(run), "Traffic": _traffic_facts(run)}
    if run.manifest.learner:
        tables["Radio"] = [(f"rates between {between}", words) for between, words, _ in describe_rates(run)]
        if radio := run.manifest.plugins.get("radio"):
            tables["Radio"] += [("model", clean(radio.name, 40)), *_setting_facts(radio.settings)]
        tables["Computers"] = _computer_facts(run)
        tables["Learner"] = _learner_facts(run, run.manifest.learner)
    tables["Machine and packages"] = _machine_facts(run)
    result = []
    for title, rows in tables.items():
        kept = [
            (row[0], row[1] if isinstance(row[1], str) else value_words(row[1]), len(row) == 3)
            for row in rows
            if row[1] not in (None, "", [], {})
        ]
        result += [Facts(title=title, rows=kept)] if kept else []
    return result


def value_words(value: Any) -> str:
    """Return a value as text, at most 300 characters: "yes" or "no", items with commas, "none" for None or no items."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(value_words(item) for item in value) or "none", 300)
    if isinstance(value, Mapping):
        return clean(", ".join(f"{key} = {value_words(item)}" for key, item in value.items()) or "none", 300)
    return "none" if value is None else clean(value, 300)


def _setting_facts(values: Mapping[str, Any]) -> list[Row]:
    """Return a fact per setting: its key and value, in a fixed-width font."""
    return [(clean(key, 40), value_words(value), True) for key, value in values.items()]


def _run_facts(run: RunData) -> list[Row]:
    """Return facts on version, command, seed, status, changed plug-ins and times."""
    manifest = run.manifest
    ending = _ENDINGS.get(manifest.ended_by or "")
    return [
        ("vnetsim", manifest.vnetsim),
        ("command", clean(" ".join(manifest.command), 2000), True),
        ("seed", str(manifest.seed)),
        ("status", f"{manifest.status}: {ending}" if ending else manifest.status),
        ("changed meanwhile", clean(", ".join(manifest.changed_plugins), 400)),
        ("started", timestamp(manifest.created)),
        ("finished", timestamp(manifest.finished)),
        ("wall time", ", ".join(f"{clean(stage, 30)} {duration(spent)}" for stage, spent in manifest.wall_s.items())),
    ]


def _format_seconds(value: float) -> str:
    """Return a time (s) as text, to a tenth of a second, with thin spaces between thousands."""
    return f"{round(value, 1):,.10g} s".replace(",", THIN)


def _traffic_facts(run: RunData) -> list[Row]:
    """Return facts on the simulator, simulated time, RSUs and input files."""
    traffic, end = run.manifest.traffic, run.manifest.time_s
    rows: list[Row] = [
        ("source", traffic.kind),
        ("simulator", traffic.version),
        ("its command", clean(" ".join(traffic.command), 2000), True),
        ("traffic seed", None if traffic.seed is None else str(traffic.seed)),
        ("vehicles", clean(traffic.vehicles, 400)),
        ("equipped share", f"{traffic.equipped:g}" if traffic.equipped < 1 else None),
        ("step", f"{traffic.step_s:g} s" if traffic.step_s else "none: exact times"),
        ("simulated time", None if end is None else f"{_format_seconds(traffic.begin_s)} to {_format_seconds(end)}"),
    ]
    for rsu in run.rsus[:_MOST_RSUS]:
        environment = f", {clean(rsu.environment, 20)}" if rsu.environment else ""
        place = f"x {rsu.x_m:.1f} m, y {rsu.y_m:.1f} m, range {rsu.range_m:g} m{environment}"
        rows.append((f"RSU {clean(rsu.id, 40)}", place))
    if len(run.rsus) > _MOST_RSUS:
        rows.append(("more RSUs", f"{count(len(run.rsus) - _MOST_RSUS)}, listed in manifest.json"))
    for path, digest in run.manifest.inputs.items():
        name = path.replace("\\", "/").rsplit("/", 1)[-1]
        rows.append((f"input {clean(name, 60)}", f"sha256 {clean(digest, 16)}", True))
    return rows


def _computer_facts(run: RunData) -> list[Row]:
    """Return a fact per computer (share or type of the vehicles, speed, power), and one on the radio unit's power."""
    rows: list[Row] = []
    for one in run.manifest.computers:
        power = "power not known, no energy reckoned" if one.watts is None else f"{one.watts:g} W while it trains"
        speed = f"{si(one.median_flops, 'FLOP/s')} in the median{' (given by hand)' if one.by_hand else ''}"
        whose = f"{percent(one.share, 0)} of the vehicles"
        if one.vehicle_type:
            whose = f"vehicles of type {clean(one.vehicle_type, 40)}"
        rows.append((clean(one.preset, 40), f"{whose}, {speed}, {power}"))
    if any(one.watts is not None for one in run.manifest.computers):
        watts = run.manifest.radio_unit_w
        unit = ", ".join(f"{value:g} W {clean(name, 20)}" for name, value in watts.items())
        rows.append(("radio unit", f"{unit}, both assumed"))
    return rows


def _machine_facts(run: RunData) -> list[Row]:
    """Return facts on the machine, its memory use and the versions of packages."""
    host, device, peak = run.manifest.host, run.manifest.device, run.manifest.peak_memory_bytes
    return [
        ("machine", ", ".join(str(host[key]) for key in ("machine", "os") if host.get(key))),
        ("processor", host.get("processor")),
        ("cores", host.get("cores")),
        ("device", device.get("name")),
        ("threads", device.get("threads")),
        ("most memory held", ", ".join(f"{si(value, 'B')} of the {clean(where, 20)}" for where, value in peak.items())),
        ("Python", host.get("python")),
        *((clean(name, 40), version) for name, version in run.manifest.packages.items()),
    ]


def _describe_exchange(run: RunData) -> str:
    """Return in words what vehicles send each other, and when; empty for a learner without exchange."""
    plan = run.exchange_plan
    if plan is None:
        return ""
    words = f"{si(plan.send_bytes, 'B')} to each neighbour"
    if plan.work_flop:
        words += f", {si(plan.work_flop, 'FLOP')} there"
    if plan.return_bytes:
        words += f", {si(plan.return_bytes, 'B')} back"
    words += ", before its own training" if plan.before_training else ", after its own training"
    return f"{words}; counts {'only when both directions completed' if plan.mutual else 'each way on its own'}"


def _learner_facts(run: RunData, learner: LearnerEntry) -> list[Row]:
    """Return facts on the learner: model, costs of a participation, exchange, its own facts and settings."""
    cost = learner.cost
    costs = f"{si(cost.download_bytes, 'B')} down, {si(cost.upload_bytes, 'B')} up, {si(cost.work_flop, 'FLOP')}"
    return [
        ("name", learner.name),
        ("task", learner.task),
        ("paper", clean(learner.paper, 400)),
        ("encoder", learner.encoder),
        ("trainable parameters", count(learner.parameters)),
        ("image (C, H, W)", " \u00d7 ".join(str(n) for n in learner.image_shape)),
        ("one participation", costs),
        ("codec", describe_codecs(run)),
        ("exchange between vehicles", _describe_exchange(run)),
        ("its settings", asdict(run.experiment.exchange) if run.exchange_plan else None, True),
        *((clean(title, 40), value_words(text)) for title, text in learner.facts.items()),
        *_setting_facts(learner.settings),
    ]
