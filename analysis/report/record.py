"""What was run, in words: the manifest as titled tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.formatting import clean, count, duration, si, timestamp
from analysis.loading import RunData
from analysis.report.notices import rates
from vnetsim.storage.records import LearnerEntry

_ENDINGS = {"rounds": "all rounds were done", "traffic": "the traffic ended", "caller": "its caller ended it"}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A titled table of facts; ``code`` marks rows to set in a fixed-width font."""

    title: str
    rows: tuple[tuple[str, str, bool], ...]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(_value(item) for item in value) or "none", 300)
    if isinstance(value, Mapping):
        return clean(", ".join(f"{key} = {_value(item)}" for key, item in value.items()) or "none", 300)
    return "none" if value is None else clean(value, 300)


def _rows(*rows: tuple[str, Any] | tuple[str, Any, bool]) -> tuple[tuple[str, str, bool], ...]:
    kept = []
    for row in rows:
        value = row[1]
        if value not in (None, "", [], {}):
            code = len(row) == 3
            kept.append((row[0], value if isinstance(value, str) else _value(value), code))
    return tuple(kept)


def _run_facts(run: RunData) -> Facts:
    manifest = run.manifest
    stages = ", ".join(f"{clean(stage, 30)} {duration(seconds)}" for stage, seconds in manifest.wall_s.items())
    ending = _ENDINGS.get(manifest.ended_by or "")
    return Facts(
        title="Run",
        rows=_rows(
            ("vnetsim", manifest.vnetsim),
            ("command", clean(" ".join(manifest.command), 2000), True),
            ("seed", str(manifest.seed)),
            ("status", f"{manifest.status}: {ending}" if ending else manifest.status),
            ("changed meanwhile", clean(", ".join(manifest.changed_plugins), 400)),
            ("started", timestamp(manifest.created)),
            ("finished", timestamp(manifest.finished)),
            ("wall time", stages),
        ),
    )


def _traffic_facts(run: RunData) -> Facts:
    traffic, end = run.manifest.traffic, run.manifest.time_s
    inputs = [
        (f"input {clean(path.replace(chr(92), '/').rsplit('/', 1)[-1], 60)}", f"sha256 {clean(digest, 16)}", True)
        for path, digest in run.manifest.inputs.items()
    ]
    rsus = [
        (
            f"RSU {clean(rsu.id, 40)}",
            f"x {rsu.x_m:.1f} m, y {rsu.y_m:.1f} m, range {rsu.range_m:g} m"
            + (f", {clean(rsu.environment, 20)}" if rsu.environment else ""),
        )
        for rsu in run.rsus[:20]
    ]
    if len(run.rsus) > 20:
        rsus.append(("more RSUs", f"{count(len(run.rsus) - 20)}, listed in manifest.json"))
    return Facts(
        title="Traffic",
        rows=_rows(
            ("source", traffic.kind),
            ("simulator", traffic.version),
            ("its command", clean(" ".join(traffic.command), 2000), True),
            ("traffic seed", None if traffic.seed is None else str(traffic.seed)),
            ("vehicles", clean(traffic.vehicles, 400)),
            ("step", f"{traffic.step_s:g} s" if traffic.step_s else "none: exact times"),
            ("simulated time", None if end is None else f"{count(traffic.begin_s)} s to {count(end)} s"),
            *rsus,
            *inputs,
        ),
    )


def _machine_facts(run: RunData) -> Facts:
    host, device, peak = run.manifest.host, run.manifest.device, run.manifest.peak_memory_bytes
    memory = ", ".join(f"{si(value, 'B')} of the {clean(where, 20)}" for where, value in peak.items())
    return Facts(
        title="Machine and packages",
        rows=_rows(
            ("machine", ", ".join(str(host[key]) for key in ("machine", "os") if host.get(key))),
            ("cores", host.get("cores")),
            ("device", device.get("name")),
            ("threads", device.get("threads")),
            ("most memory held", memory),
            ("Python", host.get("python")),
            *((clean(name, 40), version) for name, version in run.manifest.packages.items()),
        ),
    )


def _exchange_words(run: RunData) -> str:
    """Return in words what a vehicle sends to each neighbour; empty for learners without exchange."""
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


def _learner_facts(run: RunData, learner: LearnerEntry) -> Facts:
    cost = learner.cost
    costs = f"{si(cost.download_bytes, 'B')} down, {si(cost.upload_bytes, 'B')} up, {si(cost.work_flop, 'FLOP')}"
    return Facts(
        title="Learner",
        rows=_rows(
            ("name", learner.name),
            ("task", learner.task),
            ("paper", clean(learner.paper, 400)),
            ("encoder", learner.encoder),
            ("trainable parameters", count(learner.parameters)),
            ("image (C, H, W)", " \u00d7 ".join(str(n) for n in learner.image_shape)),
            ("one participation", costs),
            ("exchange between vehicles", _exchange_words(run)),
            ("its settings", run.experiment.exchange if run.exchange_plan else None, True),
            *((clean(title, 40), _value(text)) for title, text in learner.facts.items()),
            *((clean(key, 40), _value(value), True) for key, value in learner.settings.items()),
        ),
    )


def _radio_facts(run: RunData) -> Facts:
    return Facts(
        title="Radio",
        rows=_rows(
            *((f"rates between {one.between}", one.words) for one in rates(run)),
            *((clean(key, 40), _value(value), True) for key, value in run.experiment.link.items()),
        ),
    )


def record(run: RunData) -> list[Facts]:
    """Return the tables of what was run; that of the learner only when there is one."""
    tables = [_run_facts(run), _traffic_facts(run)]
    if run.manifest.learner:
        tables += [_radio_facts(run), _learner_facts(run, run.manifest.learner)]
    tables.append(_machine_facts(run))
    return [facts for facts in tables if facts.rows]
