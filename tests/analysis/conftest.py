"""Run directories made up for the report: an intersection with a signal, and variants of it."""

import io
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import tomli_w
from small_runs import write_table

from analysis.report.page import build_report
from vnetsim.experiment.camera import Camera
from vnetsim.storage.records import FORMAT
from vnetsim.storage.rows import ParticipationRecord
from vnetsim.storage.run_directory import RunDirectory

CAMERA = Camera()
CLASSES = ("stop", "yield", "priority", "no entry", "limit 30", "limit 50", "bend", "works", "crossing", "roundabout")
SERIES = [
    {"name": "knn", "label": "kNN accuracy", "unit": "%", "caption": "kNN on frozen features."},
    {"name": "linear", "label": "linear-probe accuracy", "unit": "%", "caption": "Linear probe, at the end only"},
    {"name": "loss", "label": "training loss", "unit": "", "caption": "Dual-temperature loss."},
]


EXCHANGE = {"name": "weight", "label": "mixing weight", "unit": "", "caption": "Weight of the sender's model."}
STEERING = [
    *({"name": name, "label": label, "unit": "", "caption": f"{label}, pooled over the held-out drives."}
      for name, label in (("rmse", "RMSE"), ("mae", "MAE"), ("floor", "constant predictor"))),
    *({"name": f"silo{i}", "label": f"RMSE of silos, {i * 25}th perc.", "unit": "rad", "caption": "Over silos."}
      for i in range(5)),
    *({"name": f"kl{i}", "label": label, "unit": "nat", "caption": "Mean over the round's silos."}
      for i, label in enumerate(("KL(backbone || sub)", "KL(sub || backbone)"))),
    {"name": "consensus", "label": "consensus distance", "unit": "", "caption": "Rms distance to the mean model."},
    {"name": "loss", "label": "training loss", "unit": "", "caption": ""},
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What to make up."""

    vehicles: int = 420
    span_s: float = 900.0
    rounds: int = 25
    rsus: tuple[tuple[str, float, float, float], ...] = (("centre", 500.0, 500.0, 250.0),)
    kind: str = "run"
    status: str = "finished"
    traffic_kind: str = "sumo"
    vehicle_name: str = "veh{}"
    seed: int = 7
    lanes: bool = True
    exchange: bool = False
    exchange_range_m: float = 150.0
    relay: bool = False
    silos: int = 95
    note: str = "no RSU in the scenario: took the busiest signalised junction, 'centre'"


def window_rows(scenario: Scenario) -> list[tuple[object, ...]]:
    """Return made-up rows of the table ``windows``: straight drives past each RSU, most of them held at a signal."""
    rng = np.random.default_rng(scenario.seed)
    rows = []
    for k in range(scenario.vehicles):
        name, cx, cy, radius = scenario.rsus[k % len(scenario.rsus)]
        free = scenario.traffic_kind == "gaussian"
        heading = (k // len(scenario.rsus)) % 4 * np.pi / 2
        speed = float(np.clip(rng.normal(29, 7), 17, 41.6)) if free else float(rng.normal(13.5, 1.2))
        offset = 5.0 if not free else 0.0
        half = np.sqrt(radius**2 - offset**2)
        wait = 0.0 if free or rng.random() < 0.35 else float(rng.uniform(3, 45))
        near = half - 12.0
        times = np.array([0.0, near / speed, near / speed + wait, 2 * half / speed + wait])
        along = np.array([-half, -12.0, -12.0, half])
        enter = float(rng.uniform(0, scenario.span_s))
        samples = np.unique(np.concatenate([times, np.arange(np.ceil(enter), enter + times[-1]) - enter]))
        samples = samples[(samples >= 0) & (samples <= times[-1])]
        s = np.interp(samples, times, along)
        waiting = (samples > times[1]) & (samples < times[2])
        speeds = np.where(waiting, 0.0, speed)
        ux, uy = np.sin(heading), np.cos(heading)
        x, y = cx + s * ux + offset * uy, cy + s * uy - offset * ux
        departed = k % 29 == 28
        rows.append(
            (
                k, scenario.vehicle_name.format(k), "truck" if k % 9 == 0 else "car", name, enter,
                enter + float(times[-1]), "departure" if departed else "crossing", "crossing",
                f"in{k % 4}", f"out{k % 4}", speed,
                2 * half / float(times[-1]), speed, 2 * half, CAMERA.level_px(speed),
                (samples + enter).tolist(), x.tolist(), y.tolist(), speeds.tolist(),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: row[5])
    return [(i, *row[1:]) for i, row in enumerate(rows)]


def later(
    window: tuple[object, ...], start: float, outcome: str, upload: float, rng: np.random.Generator
) -> tuple[object, ...]:
    """Return the columns that were added last: share of the work, time outside, upload's RSU, predictions."""
    if outcome == "not_selected":
        return None, 0.0, None, None, None
    remaining = float(window[5]) - start  # type: ignore[arg-type]
    straight = remaining * float(rng.uniform(0.4, 1.1))
    history = float(rng.normal(38, 3)) - (start - float(window[4]))  # type: ignore[arg-type]
    share = None if outcome == "left_download" else 1.0
    return share, 0.0, window[3] if upload > 0 else None, straight, max(0.0, history)


def participation_rows(scenario: Scenario, windows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return made-up rows of the table ``participations``, one per window."""
    rng = np.random.default_rng(scenario.seed + 1)
    rows = []
    ends = [float(row[5]) for row in windows]  # type: ignore[arg-type]
    for k, row in enumerate(windows):
        enter, leave, speed = float(row[4]), float(row[5]), float(row[10])  # type: ignore[arg-type]
        now = min(int(ends[k] / max(scenario.span_s, 1) * scenario.rounds), scenario.rounds - 1)
        wanted = (
            rng.uniform([3, 4, 0, 1, 2], [9, 12, 8, 6, 5]) if scenario.exchange else rng.uniform([3, 4, 3], [9, 12, 9])
        )
        start = enter + float(rng.uniform(0, 1)) ** 2 * (leave - enter)
        phases = np.clip(np.minimum(wanted, leave - start - np.concatenate([[0], np.cumsum(wanted)[:-1]])), 0, None)
        done = phases >= wanted - 1e-9
        outcome = (
            "not_selected" if rng.random() < 0.2
            else "left_download" if not done[0]
            else "left_training" if not done[1]
            else "left_exchange" if not done[2:-1].all()
            else "left_upload" if not done[-1]
            else "deadline" if rng.random() < 0.15
            else "committed"
        )  # fmt: skip
        if outcome == "not_selected":
            start, phases = enter, np.zeros(len(wanted))
        used = [float(phase) for phase in phases]
        download, train, upload = used[0], used[1], used[-1]
        wait, exchange = used[2:4] if scenario.exchange else (0.0, 0.0)
        end = leave if outcome == "not_selected" else start + sum(used)
        committed = outcome == "committed"
        rows.append(
            (
                k, now, now, row[1], row[3], k % scenario.silos, k % 4, enter, outcome, start, end,
                download, train, upload, wait, exchange,
                1.1e6 * download / wanted[0], 1.1e6 * upload / wanted[-1], 6e5 * exchange,
                speed, CAMERA.level_px(speed),
                speed if committed else None, 6.2 - 1.5 * now / scenario.rounds if committed else None,
                *later(row, start, outcome, upload, rng), *[None] * 5, "single", "single", 0.0,
            )
        )  # fmt: skip
    names = list(ParticipationRecord._fields)
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    weight = pl.col("weight")
    total, n = weight.sum().over("round"), weight.count().over("round")
    frame = frame.with_columns(
        pl.when(weight.is_null())
        .then(None)
        .when(n < 2)
        .then(1.0)
        .otherwise((total - weight) / ((n - 1) * total))
        .alias("weight")
    )
    return frame.rows()


def _place(row: tuple[object, ...], time_s: float) -> np.ndarray:
    return np.array([np.interp(time_s, row[15], row[16]), np.interp(time_s, row[15], row[17])])  # type: ignore[arg-type]


def exchange_rows(scenario: Scenario, windows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return made-up rows of the table ``exchanges``: once a round, among up to ten of the vehicles in coverage."""
    rng = np.random.default_rng(scenario.seed + 3)
    length = scenario.span_s / scenario.rounds
    rows: list[tuple[object, ...]] = []
    for now in range(scenario.rounds):
        start = (now + 0.6) * length
        members = [row for row in windows if float(row[4]) <= start < float(row[5])][:10]  # type: ignore[arg-type]
        places = [_place(row, start) for row in members]
        for i, j in permutations(range(len(members)), 2):
            near = float(np.hypot(*(places[i] - places[j]))) < scenario.exchange_range_m
            if not near and not scenario.relay:
                continue
            needed, held = float(rng.gamma(4, 0.6)), float(rng.exponential(12 if near else 25))
            done = held > needed
            moved = 1.26e6 * (1 if near else 2) * min(1, held / needed)
            value = float(rng.uniform(0.05, 0.45)) if done else None
            silos = [int(str(members[k][0])) % scenario.silos for k in (i, j)]
            rows.append(
                (
                    len(rows), now, members[i][1], members[j][1], *silos, "sidelink" if near else "relay",
                    "completed" if done else "cut", start, start + min(needed, held), min(needed, held), moved,
                    *map(float, places[i]), *map(float, places[j]), value, "single",
                )
            )  # fmt: skip
    return rows


def write_run(path: Path, scenario: Scenario) -> Path:
    """Write the run directory ``path``, all through the contracts of ``vnetsim``."""
    directory = RunDirectory(path)
    windows = window_rows(scenario)
    write_table(directory, "windows", windows)
    if scenario.lanes:
        lanes = [
            (4 * i + j, [cx - 400 * (j < 2) * (1 - 2 * (j % 2)), cx], [cy - 400 * (j >= 2) * (1 - 2 * (j % 2)), cy])
            for i, (_, cx, cy, _) in enumerate(scenario.rsus)
            for j in range(4)
        ]
        write_table(directory, "map", lanes)
    else:
        write_table(directory, "map", [])
    experiment = {
        "scenario": "scenarios/intersection.sumocfg", "seed": 3, "rounds": scenario.rounds,
        "blur": {"threshold_kmh": 0.0},
        "camera": {"exposure_s": CAMERA.exposure_s},
    }  # fmt: skip
    directory.put({"experiment.toml": tomli_w.dumps(experiment).encode()})
    manifest = {
        "vnetsim": "0.1.0", "format": FORMAT, "command": ["vnetsim", scenario.kind, "scenarios/intersection.sumocfg"],
        "created": "2025-03-01T12:00:00+00:00", "finished": "2025-03-01T12:01:10+00:00", "status": scenario.status,
        "ended_by": "rounds", "kind": scenario.kind, "seed": 3,
        "host": {"machine": "x86_64", "cores": 2, "python": "3.11.9", "os": "Linux 6.1"},
        "packages": {"eclipse-sumo": "1.28.0", "numpy": "2.3.1", "polars": "1.30.0", "torch": "2.7.0"},
        "device": {"name": "cpu", "threads": 2},
        "traffic": {
            "plugin": {"name": "gaussian", "settings": {"v_min_kmh": 60.0, "v_max_kmh": 150.0}},
            "kind": scenario.traffic_kind, "begin_s": 0.0, "end_s": scenario.span_s, "step_s": 1.0, "seed": 23423,
            "command": ["sumo", "-c", "scenarios/intersection.sumocfg", "--seed", "23423"], "version": "SUMO 1.28.0",
            "inputs": ["/home/u/scenarios/intersection.sumocfg"], "notes": [scenario.note],
        },
        "inputs": {f"/home/u/scenarios/intersection.{suffix}": "ab" * 32 for suffix in ("sumocfg", "net.xml")},
        "rsus": [{"id": i, "x_m": x, "y_m": y, "range_m": r} for i, x, y, r in scenario.rsus],
        "time_s": max([scenario.span_s, *(float(row[5]) for row in windows)]),
        "wall_s": {"traffic": 4.2, "training": 51.7, "evaluation": 9.3},
    }  # fmt: skip
    if scenario.kind == "run":
        _write_learning(directory, scenario, windows)
        manifest |= {
            "series": SERIES,
            "learner": {
                "name": "flsimco", "task": "self-supervised image representation", "paper": "FLSimCo (2024)",
                "encoder": "small residual encoder", "parameters": 77_808, "settings": {"lr": 0.06, "momentum": 0.9},
                "facts": {"BatchNorm statistics": "averaged with the same weights"}, "image_shape": [3, 32, 32],
                "cost": {"download_bytes": 311_232, "upload_bytes": 311_232, "work_flop": 2.1e11},
            },
        }  # fmt: skip
    if scenario.exchange:
        write_table(directory, "exchanges", exchange_rows(scenario, windows))
        experiment["exchange"] = {"topology": "contact", "range_m": 150.0, "relay": scenario.relay, "limit_s": 30.0}
        directory.put({"experiment.toml": tomli_w.dumps(experiment).encode()})
        plan = {"before_training": False, "mutual": True, "send_bytes": 1_258_628, "work_flop": 0.0, "return_bytes": 0}
        manifest["exchange"] = EXCHANGE
        manifest["series"] = STEERING
        manifest["learner"] |= {"name": "cdl", "task": "steering angle", "image_shape": [1, 64, 64]}
        manifest["learner"]["cost"] |= {"exchange": plan}
    directory.write_json("manifest.json", manifest)
    return path


def _write_learning(directory: RunDirectory, scenario: Scenario, windows: list[tuple[object, ...]]) -> None:
    rng = np.random.default_rng(scenario.seed + 2)
    rows = participation_rows(scenario, windows) if windows else []
    write_table(directory, "participations", rows)
    length = scenario.span_s / scenario.rounds
    losses = [6.2 - 1.6 * (1 - np.exp(-r / 6)) + 0.05 * rng.normal() for r in range(scenario.rounds) if windows]
    rounds = [(r, r * length, (r + 1) * length, "quorum", 8, 5, 0, loss, "single") for r, loss in enumerate(losses)]
    write_table(directory, "rounds", rounds)
    metrics: list[tuple[object, ...]] = [(0, 0.0, "knn", 0.31)]
    if windows:
        for r in range(1, scenario.rounds + 1):
            metrics.append((r, r * length, "knn", 0.31 + 0.4 * (1 - np.exp(-r / 8)) + 0.01 * rng.normal()))
            metrics.append((r, r * length, "loss", 6.2 - 1.6 * (1 - np.exp(-r / 6)) + 0.05 * rng.normal()))
        metrics.append((scenario.rounds, scenario.span_s, "linear", 0.763))
    if windows and scenario.exchange:
        for k, series in enumerate(STEERING[:-1]):
            for r in range(scenario.rounds + 1):
                value = 0.3 * np.exp(-r / (6 + k)) + 0.02 * k + 0.01 * rng.random()
                metrics.append((r, r * length, series["name"], value))
    write_table(directory, "metrics", [(*row, "single") for row in metrics])
    dealt = np.stack([rng.multinomial(520, rng.dirichlet(np.full(10, 1.0))) for _ in range(95)])
    names = ("left", "straight", "right") if scenario.exchange else CLASSES
    write_table(directory, "silos", [(s, c, names[c], int(dealt[s, c])) for s in range(95) for c in range(len(names))])
    pictures = rng.integers(0, 255, (8, 64, 64, 1) if scenario.exchange else (8, 32, 32, 3))
    if windows:
        speeds = np.percentile([float(row[10]) for row in windows], [25, 50, 75])  # type: ignore[arg-type]
        kernels = np.array([0.0, *(CAMERA.kernel_px(speed, pictures.shape[1]) for speed in speeds)])
        buffer = io.BytesIO()
        images = np.stack([pictures // (1 + level) for level in range(4)]).astype(np.uint8)
        np.savez(buffer, images=images, kernels_px=kernels, speeds_mps=np.array([0.0, *speeds]))
        directory.put({"samples.npz": buffer.getvalue()})


@pytest.fixture(scope="session")
def learning_run(tmp_path_factory) -> Path:
    """A finished learning run, with its report."""
    run = write_run(tmp_path_factory.mktemp("learning"), Scenario())
    build_report(run)
    return run


@pytest.fixture(scope="session")
def exchange_run(tmp_path_factory) -> Path:
    """A finished run of a learner whose vehicles exchange, with its report."""
    run = write_run(tmp_path_factory.mktemp("exchange"), Scenario(exchange=True, relay=True, rounds=25, silos=20))
    build_report(run)
    return run


@pytest.fixture(scope="session")
def make_run():
    """A function that writes a run directory from the fields of ``Scenario``."""

    def make(path: Path, **fields: object) -> Path:
        return write_run(path, Scenario(**fields))  # type: ignore[arg-type]

    return make


@pytest.fixture
def seeing_run(tmp_path, make_run):
    """A function that makes a run whose vehicles, with hostile names, took its images: three have frames."""

    def make(task):
        run = make_run(tmp_path / "run", vehicles=40, rounds=3, vehicle_name="</script><b>{}</b>")
        directory = RunDirectory(run)
        manifest = directory.manifest()
        manifest["learner"] |= {"task": task}
        manifest["traffic"] |= {"begin_s": 100.0}
        directory.write_json("manifest.json", manifest)
        silos = directory.read("silos").with_columns(class_name=pl.format("class {}", "class"))
        write_table(directory, "silos", silos.rows())
        rng, path = np.random.default_rng(0), np.repeat(np.arange(3), [9, 8, 2])
        label = np.where(path == 2, -0.004 if task == "steering" else 7.0, 1.0)
        label[0] = np.nan if task == "steering" else -1
        images = np.repeat(np.repeat(rng.integers(0, 255, (19, 4, 4, 3)), 8, axis=1), 8, axis=2).astype(np.uint8)
        frames = {
            "vehicles": np.array([f"</script><b>{k}</b>" for k in (5, 0, 39)]), "path": path, "images": images,
            "mean_mps": np.array([5.0, 10.0, 20.0]),
            "blurred": images // 2, "time_s": 130 + 2.5 * np.arange(19), "speed_mps": 5.0 * 2.0**path,
            "kernel_px": 1.0 * path, "label": label,
        }  # fmt: skip
        speed = np.linspace(2, 34, 400)
        places = {
            "x_m": np.where(speed < 18, 400.0, 600.0), "y_m": 500 + 0 * speed, "time_s": np.arange(400) % 240.0,
            "speed_mps": speed, "kernel_px": speed / 14, "angle": 1 / speed, "label": np.where(speed < 18, 3, 5),
        }  # fmt: skip
        more = {f"path_{name}": array for name, array in frames.items()}
        more |= {f"place_{name}": array for name, array in places.items()}
        directory.write_arrays("samples.npz", **directory.read_arrays("samples.npz"), **more)
        build_report(run)
        return run, images

    return make
