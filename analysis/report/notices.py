"""Notices on a run: what failed or had no effect, and the setting that would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.formatting import clean, count, duration, percent, plural, quantity, si
from analysis.loading import RunData
from analysis.statistics.windows import dwell, entries
from vnetsim.coverage.rsu import degrees_hint
from vnetsim.learner_facts import NOT_READ, PRIVACY

_MAX_SILENT = 10
_MANY_STALE, _MOST = 1 / 3, 1 / 2
"""Least shares of the invitations for a notice on stale ones, and on other outcomes."""
_FASTEST_KMH = 200.0  # median entry speed above which units may be wrong (km/h)
_UNEVEN = 1.1  # largest ratio of silo sizes without a notice; one more image is allowed

STAGES = {
    "left_download": ("while the model came down", "raise radio.bandwidth_hz, or widen the range"),
    "left_training": ("while they trained", "lower learning.steps, raise compute.median_flops, or widen the range"),
    "left_exchange": (
        "while they waited for or exchanged with others",
        "lower round.quorum or exchange.limit_s, or widen the range",
    ),
    "left_upload": ("while the model went up", "raise radio.bandwidth_hz, or widen the range"),
}
"""Words and cure for each stage in which a vehicle can leave coverage."""

_STATUS = {
    "running": "The run has not finished: this report shows what had been written when it was made.",
    "interrupted": "The run was interrupted: this report shows the rounds finished until then.",
    "failed": "The run failed: this report shows what had been written until then.",
}


def notices(run: RunData) -> list[str]:
    """Return the notices on a run, one line each; those on missing traffic, exchanges, commits only if it finished."""
    lines = [_STATUS[run.manifest.status]] if run.manifest.status in _STATUS else []
    if run.manifest.status == "finished":  # before its end, a run may still write what is missing
        lines += [*_warn_silent_rsus(run), *_warn_no_exchange(run), *_warn_ended_early(run), *_warn_outcomes(run)]
    if run.every > 1:
        lines.append(
            f"This report looks at one in {count(run.every)} vehicles, chosen by their ids: "
            f"{count(run.windows.height)} of {plural(run.recorded, 'window')}. All its numbers of vehicles and of "
            "windows are theirs."
        )
    if run.learning and run.aggregators > 1:
        hierarchical = run.experiment.topology.kind == "hierarchical"
        several = f"{count(run.aggregators)} RSUs aggregate by themselves, each its own model"
        if hierarchical:
            shown = "what was measured of models is the cloud's, by its rounds; other curves are means over the RSUs"
        else:
            shown = "what was measured of models is the mean over them, round by round, shaded from lowest to highest"
        lines.append(f"{several}: {shown}.")
        by_itself = pl.col("closed_by").is_in(["everyone", "deadline"])
        if hierarchical and run.merges.filter(by_itself).is_empty():
            lines.append(
                "No round of the cloud closed before the traffic ended: lower topology.edge_rounds, give it a "
                "topology.cloud_deadline_s, take a faster backhaul, or play more traffic."
            )
    return [
        *list_assumptions(run),
        *_warn_updates(run),
        *lines,
        *_report_model_ages(run),
        *_warn_inputs(run),
        *_warn_sharp_images(run),
        *(warning for _, _, warning in describe_rates(run) if warning),
    ]


TIMED = "Timed as "  # begins the notice of the timed and the trained network, which pages show first


def describe_codecs(run: RunData) -> str:
    """Return the codecs of updates (up) and models (down) in words; empty if all are sent unchanged."""
    up, down = run.manifest.plugins.get("codec"), run.experiment.download_codec
    if up is None and down == "float32":
        return ""
    settings = ", ".join(f"{clean(key, 40)} = {clean(value, 40)}" for key, value in up.settings.items()) if up else ""
    return f"{clean(up.name if up else 'float32', 40)}{f' ({settings})' if settings else ''} up, {down} down"


def list_assumptions(run: RunData) -> Iterator[str]:
    """Yield up to three lines: on a timed model other than the trained one, on images not read, on privacy."""
    learner, model = run.manifest.learner, run.experiment.cost.model
    if learner is not None and learner.cost.model is not None and model != "trained":
        timed = run.experiment.cost.on_the_clock
        size, images = si(learner.cost.model.bytes, "B"), timed.images if timed else None
        many = f", {count(images)} images a local training" if images else ""
        sent = f", sent by {codecs}" if (codecs := describe_codecs(run)) else ""
        line = f"{TIMED}{clean(model, 40)} ({size}{many}{sent})"
        if run.learning:
            line += f"; trained here is the network '{clean(learner.encoder, 40)}'. Time, bytes and energy are those "
            line += "of the first, accuracy that of the second"
        yield f"{line}."
    if learner is not None and NOT_READ in learner.facts:
        yield f"{clean(learner.facts[NOT_READ], 300)}."
    if learner is not None and PRIVACY in learner.facts:
        yield f"{PRIVACY}: {clean(learner.facts[PRIVACY], 900)}."


def _report_model_ages(run: RunData) -> Iterator[str]:
    """Yield a line, among peers, on the age (rounds) of averaged neighbours' models if not 0, or that none came."""
    rules = run.experiment.topology
    if rules.kind != "peers" or run.merges.is_empty():
        return
    closed = {name: np.sort(rounds["close_s"].to_numpy()) for (name,), rounds in run.rounds.group_by("aggregator")}
    ages = []
    for (source,), merges in run.merges.filter(pl.col("source") != pl.col("aggregator")).group_by("source"):
        newest = np.searchsorted(closed.get(source, np.empty(0)), merges["time_s"].to_numpy())
        # negative if both closed at the same instant
        ages.append(np.maximum(newest - merges["source_version"].to_numpy(), 0))
    if not ages:
        yield (
            "No neighbour's model arrived before the last average: each RSU's model is its own. Take a faster "
            "backhaul, or raise rounds."
        )
        return
    rounds_old = np.concatenate(ages)
    if rounds_old.any():
        rarely = f" topology.edge_rounds = {count(rules.edge_rounds)} and" if rules.edge_rounds > 1 else ""
        yield (
            f"Neighbours' models were {rounds_old.mean():.1f} rounds old in the mean when they were averaged "
            f"({count(rounds_old.min())} to {count(rounds_old.max())}), because of{rarely} the time that a model takes "
            "over the backhaul."
        )


def _warn_silent_rsus(run: RunData) -> Iterator[str]:
    """Warn of each of the first ten RSUs without a window, with possible causes, and of the number of others."""
    rsus = run.windows["rsu_id"].unique()
    if run.every > 1 and run.paths is not None:  # those of the vehicles that are left out
        rsus = run.paths.collect(lambda rows: rows.select(pl.col("rsu_id").unique()))["rsu_id"]
    seen = set(rsus)
    silent = [rsu for rsu in run.rsus if rsu.id not in seen]
    traffic = run.manifest.traffic
    for rsu in silent[:_MAX_SILENT]:
        whom = "no vehicle"
        cures = "its position, its range and the simulated time"
        missed = []
        if traffic.left_out:
            missed.append(
                f"{plural(traffic.left_out, 'vehicle')} near the RSUs left out by type (traffic.vehicle_types)"
            )
        if glimpsed := traffic.glimpsed.get(rsu.id, 0):
            missed.append(f"{plural(glimpsed, 'vehicle')} seen there at one instant only, which is no window")
        if traffic.silences:
            missed.append(f"{plural(traffic.silences, 'gap')} of the recording (traffic.longest_gap_s)")
        if missed:
            whom = "no path of a vehicle that takes part"
            cures = f"{', '.join(missed)}; {cures}"
        yield (
            f"RSU {clean(rsu.id, 40)} had no traffic: {whom} came within {rsu.range_m:g} m of "
            f"({rsu.x_m:.6g}, {rsu.y_m:.6g}). Check {cures}.{degrees_hint(rsu.x_m, rsu.y_m)}"
        )
    if len(silent) > _MAX_SILENT:
        yield f"{len(silent) - _MAX_SILENT} more RSUs had no traffic."


def _warn_no_exchange(run: RunData) -> Iterator[str]:
    """Warn if the learner exchanges models, but no exchange took place, or none completed."""
    if run.exchange_plan and run.exchanges.is_empty():
        yield (
            "No exchange between vehicles took place, though this learner has one: no two vehicles of a round were in "
            "contact. Check exchange.range_m, exchange.relay and round.quorum."
        )
    elif run.exchange_plan and not (run.exchanges["outcome"] == "completed").any():
        yield (
            f"None of {plural(run.exchanges.height, 'exchange')} between vehicles completed: "
            f"each contact ended first. Raise exchange.range_m or exchange.limit_s, {_cure_for_links(run)}, or set "
            "exchange.relay=true."
        )


def count_not_finite(run: RunData) -> tuple[int, int]:
    """Return the number of updates that were rejected as not finite, and that of all updates, committed or rejected."""
    rejected, committed = (run.participations.filter(outcome=name).height for name in ("rejected", "committed"))
    return rejected, rejected + committed


def _warn_updates(run: RunData) -> Iterator[str]:
    """Warn of updates that are not finite, rounds too small for Krum, and hostile vehicles that never came."""
    rejected, updates = count_not_finite(run)
    if rejected:
        learner = run.manifest.learner
        rate = "learning.lr" if learner is None or "lr" in learner.settings else "the learner's step size"
        yield f"{count(rejected)} of {plural(updates, 'update')} were not finite: lower {rate}."
    given, asked = run.experiment.learning, run.experiment.hostile
    if str(given.get("aggregation", "")).endswith("krum"):
        uploads = run.rounds.filter(pl.col("committed") > 0)["committed"]
        if few := sum(one < 2 * math.ceil(given["trim"] * one - 1e-9) + 3 for one in uploads):
            yield (
                f"In {count(few)} of {plural(len(uploads), 'round')} with uploads these were too few for Krum, which "
                f"needs 2 f + 3 with f = {given['trim']:g} of them hostile (learning.trim), rounded up; there it "
                "withstands fewer, with less than 5 none. Raise round.quorum."
            )
    if (asked.share > 0 or asked.vehicles) and run.hostile.is_empty() and not run.participations.is_empty():
        yield "No vehicle in coverage was hostile: check the ids in hostile.vehicles, or raise hostile.share."


def _warn_ended_early(run: RunData) -> Iterator[str]:
    """Warn if the last round ended before most vehicles left coverage, unless most updates were not finite."""
    found = dwell(run.windows)
    rejected, updates = count_not_finite(run)
    if 2 * rejected > updates:  # more simulated time would not help
        return
    if run.learning and run.manifest.ended_by == "rounds" and 2 * found.cut > found.windows:
        yield (
            f"The rounds were over after {duration(run.simulated_s)}, sooner than most vehicles leave, so this run "
            "hardly met the traffic: end it by time (--time SECONDS in place of rounds), and time a larger model "
            "(cost.model)."
        )


def _warn_outcomes(run: RunData) -> Iterator[str]:
    """Warn if a training run invited nobody or had no commit, and of outcomes that ended many participations."""
    if not run.learning or run.windows.is_empty():
        return
    ended, total = dict(run.invited.group_by("outcome").len().iter_rows()), run.invited.height
    if not total:
        yield "No vehicle was invited: check the range of the RSU and the simulated time."
        return
    if not ended.get("committed"):
        yield f"None of {plural(total, 'invited participation')} committed: the model is as it was at the beginning."
    stale = ended.get("stale", 0)
    staleness, most = run.experiment.round.max_staleness, run.experiment.round.invited
    # with max_staleness = 0 drops are by design: the page's figure gives their number
    if staleness > 0 and stale >= _MANY_STALE * total:
        yield (
            f"{count(stale)} of {count(total)} invited were too stale, still at work when their round closed: raise "
            f"round.max_staleness (now {count(staleness)}) or invite fewer (round.invited, now {count(most)})."
        )
    late = ended.get("deadline", 0)
    if late >= _MOST * total:
        yield f"{count(late)} of {count(total)} invited were cut off by the round's deadline: raise round.deadline_s."
    left = {name: ended[name] for name in STAGES if name in ended}
    if sum(left.values()) >= _MOST * total:
        stage = max(left, key=lambda name: left[name])
        words, cure = STAGES[stage]
        cure = cure.replace("raise radio.bandwidth_hz", _cure_for_links(run))
        if len(run.manifest.computers) > 1:  # a mixed fleet has no median of its own
            cure = cure.replace("raise compute.median_flops", "name faster presets in compute.fleet")
        yield (
            f"{count(sum(left.values()))} of {count(total)} invited left before they had finished, "
            f"{count(left[stage])} of them {words}: {cure} (traffic.range_m, or the scenario's own)."
        )


def _cure_for_links(run: RunData) -> str:
    """Return advice against slow links: the radio model's setting, or for a user's own model a check of its rates."""
    radio = run.manifest.plugins.get("radio")
    name = clean(radio.name, 40) if radio else "tr37885"
    own = f"check the rates of the radio model '{name}', which are in bit/s"
    cures = {"tr37885": "raise radio.bandwidth_hz", "constant": "raise radio.rate_bps", "table": "see radio.file"}
    return cures.get(name, own)


def _warn_inputs(run: RunData) -> Iterator[str]:
    """Warn of settings without effect here, silos of unequal size, speeds too high for m/s; add the radio's notes."""
    radio = run.manifest.plugins.get("radio")
    if radio and radio.name == "tr37885" and radio.settings.get("state") == "streets" and run.lanes.is_empty():
        yield (
            "No link was behind buildings, for the traffic has no lanes: radio.state was probability, not "
            "streets. A recording has lanes with its net (--net FILE)."
        )
    drove = set(run.windows["vehicle_type"].unique())
    for one in run.manifest.computers:
        if one.vehicle_type and one.vehicle_type not in drove:
            types = ", ".join(clean(name, 40) for name in sorted(drove)[:8])
            yield f"compute.by_type: nobody of type {clean(one.vehicle_type, 40)} was in coverage, but {types}."
    images = run.silos.group_by("silo").agg(pl.col("images").sum())["images"].to_list()
    own = ":" in run.experiment.learner  # a user's learner may weigh by size
    by_size = run.experiment.learning.get("weights") == "images"
    if run.learning and not own and not by_size and images and max(images) > _UNEVEN * min(images) + 1:
        yield (
            f"Silos hold {count(min(images))} to {count(max(images))} images, and an update counts the same whatever "
            "its silo holds."
        )
    yield from (clean(note, 300) for note in run.manifest.radio.notes)
    entered = entries(run.windows)["entry_speed_mps"]
    if len(entered) and (median_kmh := 3.6 * float(np.median(entered.to_numpy()))) > _FASTEST_KMH:
        yield (
            f"Half of the vehicles enter at {quantity(median_kmh, 'km/h')} or more: are positions and speeds in feet? "
            "Then --length-unit ft --speed-unit ft/s."
        )


def _warn_sharp_images(run: RunData) -> Iterator[str]:
    """Warn if at most 5 % of the vehicles were fast enough for blur, unless a training has no blur by its settings."""
    if run.learning and run.experiment.blur.fraction == 0:
        return
    entered = entries(run.windows)["entry_speed_mps"]
    committed = run.participations.filter(outcome="committed")["speed_mps"].drop_nulls()  # m/s
    speeds = committed if run.learning else entered
    who, many = "vehicle that committed" if run.learning else "vehicle", "vehicles are"
    if run.samples is not None and run.samples.places:  # an image is blurred by the speed at which it was taken
        speeds = entered = pl.Series(run.samples.places["speed_mps"])
        who, many = "vehicle that took one", "training images are of vehicles"
    threshold, now = run.experiment.blur.threshold_kmh, f"(now {run.experiment.camera.exposure_s:g})"
    fastest = float(speeds.max()) if len(speeds) else 0.0  # type: ignore[arg-type]
    kernel = run.experiment.camera.kernel_px(fastest, run.image_px)
    sharp = float((run.experiment.camera.kernel_px(1.0, run.image_px) * entered <= 1).mean() or 0)  # type: ignore[arg-type]
    if len(speeds) and run.learning and fastest * 3.6 <= threshold and kernel > 1:
        yield (
            f"All training images stayed sharp: no {who} was faster than blur.threshold_kmh, {threshold:g} km/h. "
            "Lower it, or take faster traffic."
        )
    elif len(speeds) and kernel <= 1:
        cure = "."
        if kernel > 0:
            exact = run.experiment.camera.exposure_s / kernel
            digits = 1 - math.floor(math.log10(exact)) if exact > 0 else 0
            needed = math.ceil(round(exact * 10.0**digits, 6)) / 10.0**digits  # up, to two digits
            cure = f": raise camera.exposure_s {now} above {needed:g}, or take faster traffic."
        yield (
            f"All images stay sharp: at {quantity(fastest * 3.6, 'km/h')}, the fastest {who}, the motion kernel is "
            f"{quantity(kernel, 'px')} long and only one above 1 px changes an image of {run.image_px} px{cure}"
        )
    elif sharp >= 0.95:
        yield (
            f"{percent(sharp, 0)} of the {many} too slow to blur an image of {run.image_px} px: raise "
            f"camera.exposure_s {now}."
        )


def describe_rates(run: RunData) -> list[tuple[str, str, str]]:
    """Return per kind of link with known rates: what it connects, share at the radio's cap in words, a warning.

    The warning is empty unless all rates were at the cap. The list is empty for a radio without a cap.
    """
    radio, model = run.manifest.radio, run.manifest.plugins.get("radio")
    own = model is not None and model.name != "tr37885"
    why = "" if own else " (radio.bandwidth_hz times radio.max_spectral_efficiency)"
    found = []
    for between, use in (("RSU and vehicles", radio.links), ("vehicles", radio.sidelinks)):
        if radio.cap_bps is None or use is None or not use.looked_up:
            continue
        cap, total = si(radio.cap_bps, "bit/s"), count(use.looked_up)
        warning = (
            f"No link between {between} ever left its cap: all {total} rates were {cap}{why}. Distance, path loss and "
            "shadowing made no difference."
        )
        words = f"{percent(use.capped / use.looked_up)} of {total} at the cap of {cap}"
        for state, times in use.states.items():
            words += f", {percent(times / use.looked_up)} {clean(state, 40)}"
        found.append((between, words, warning if use.capped >= use.looked_up else ""))
    return found
