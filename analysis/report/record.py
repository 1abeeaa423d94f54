"""What was run, in words: the manifest as titled tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.formatting import clean, count, duration, si, timestamp
from analysis.loading import RunData
from analysis.statistics.radio import rates

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


def _command(words: Any) -> str:
    return clean(" ".join(str(word) for word in words), 2000) if isinstance(words, list | tuple) else clean(words, 2000)


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
    walls = manifest.get("wall_s") or {}
    stages = ", ".join(f"{clean(stage, 30)} {duration(float(seconds))}" for stage, seconds in walls.items())
    status = str(manifest["status"])
    if ending := _ENDINGS.get(str(manifest.get("ended_by"))):
        status += f": {ending}"
    return Facts(
        title="Run",
        rows=_rows(
            ("vnetsim", manifest.get("vnetsim")),
            ("command", _command(manifest.get("command") or ""), True),
            ("seed", str(manifest["seed"])),
            ("status", clean(status)),
            ("changed meanwhile", clean(", ".join(manifest.get("changed_plugins") or ()), 400)),
            ("started", timestamp(manifest.get("created"))),
            ("finished", timestamp(manifest.get("finished"))),
            ("wall time", stages),
        ),
    )


def _traffic_facts(run: RunData) -> Facts:
    traffic = run.manifest["traffic"]
    step = traffic.get("step_s")
    begin, end = float(traffic.get("begin_s") or 0.0), run.manifest.get("time_s")
    inputs = [
        (f"input {clean(str(path).replace(chr(92), '/').rsplit('/', 1)[-1], 60)}", f"sha256 {clean(digest, 16)}", True)
        for path, digest in (run.manifest.get("inputs") or {}).items()
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
            ("source", traffic.get("kind")),
            ("simulator", traffic.get("version")),
            ("its command", _command(traffic.get("command") or ""), True),
            ("traffic seed", str(traffic["seed"]) if traffic.get("seed") is not None else None),
            ("vehicles", clean(traffic.get("vehicles") or "", 400) or None),
            ("step", f"{float(step):g} s" if step else "none: exact times"),
            ("simulated time", f"{count(begin)} s to {count(float(end))} s" if end is not None else None),
            *rsus,
            *inputs,
        ),
    )


def _machine_facts(run: RunData) -> Facts:
    host, device = run.manifest.get("host") or {}, run.manifest.get("device") or {}
    peak = run.manifest.get("peak_memory_bytes") or {}
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
            *((clean(name, 40), str(version)) for name, version in (run.manifest.get("packages") or {}).items()),
        ),
    )


def _exchange_words(run: RunData) -> str:
    """Return in words what a vehicle sends to each neighbour; empty for learners without exchange."""
    plan = run.exchange_plan
    if not plan:
        return ""
    words = f"{si(float(plan.get('send_bytes', 0)), 'B')} to each neighbour"
    if work := float(plan.get("work_flop", 0)):
        words += f", {si(work, 'FLOP')} there"
    if back := float(plan.get("return_bytes", 0)):
        words += f", {si(back, 'B')} back"
    words += ", before its own training" if plan.get("before_training") else ", after its own training"
    return f"{words}; counts {'only when both directions completed' if plan.get('mutual') else 'each way on its own'}"


def _exchange_settings(run: RunData) -> str:
    settings = run.experiment.get("exchange")
    return _value(settings) if run.exchange_plan and isinstance(settings, Mapping) else ""


def _learner_facts(run: RunData) -> Facts:
    learner = run.learner
    cost = learner.get("cost") or {}
    costs = (
        f"{si(float(cost.get('download_bytes', 0)), 'B')} down, {si(float(cost.get('upload_bytes', 0)), 'B')} up, "
        f"{si(float(cost.get('work_flop', 0)), 'FLOP')}"
        if cost
        else ""
    )
    parameters = learner.get("parameters")
    settings = learner.get("settings") or {}
    facts = learner.get("facts") or {}
    return Facts(
        title="Learner",
        rows=_rows(
            ("name", learner.get("name")),
            ("task", learner.get("task")),
            ("paper", clean(learner.get("paper") or "", 400)),
            ("encoder", learner.get("encoder")),
            ("trainable parameters", count(float(parameters)) if parameters is not None else None),
            ("image (C, H, W)", " \u00d7 ".join(str(n) for n in learner.get("image_shape") or ())),
            ("one participation", costs),
            ("exchange between vehicles", _exchange_words(run)),
            ("its settings", _exchange_settings(run), True),
            *((clean(title, 40), _value(text)) for title, text in facts.items()),
            *((clean(key, 40), _value(value), True) for key, value in settings.items()),
        ),
    )


def _radio_facts(run: RunData) -> Facts:
    settings = run.experiment.get("link")
    keys = settings.items() if isinstance(settings, Mapping) else ()
    return Facts(
        title="Radio",
        rows=_rows(
            *((f"rates between {one.between}", one.words) for one in rates(run)),
            *((clean(key, 40), _value(value), True) for key, value in keys),
        ),
    )


def record(run: RunData) -> list[Facts]:
    """Return the tables of what was run; that of the learner only when there is one."""
    tables = [_run_facts(run), _traffic_facts(run)]
    if run.learner:
        tables += [_radio_facts(run), _learner_facts(run)]
    tables.append(_machine_facts(run))
    return [facts for facts in tables if facts.rows]
