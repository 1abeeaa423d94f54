"""What a GPU does to the learners: correctness against the CPU, speeds against references, a run of the paper's size.

    python tests/gpu_check.py --device cuda --out DIR [--seconds 540] [--data-root FOLDER_OF_CIFAR10] [--rounds N]

needs torch, torchvision, scipy, numpy and safetensors, no SUMO, no tables and no installation. Type it again until it
says that nothing is left: finished parts are kept in DIR and skipped (``--again PART,...`` or ``all`` repeats them).
DIR then holds ``gpu_check.json`` and the table ``gpu_check.md``. ``--tiny --device cpu`` rehearses all parts; no figure
of that means anything. ``export SCENARIO FILE [KEY=VALUE ...]`` makes the schedule of a scenario, an experiment or a
run directory (needs all of vnetsim, trains nothing); ``--schedule`` names another than that in ``tests/device_checks``.

Each command runs its parts in a process of its own, which is ended where a part takes too long or crashes; the others
go on. The exit status is 0 when all parts that ran finished and every figure of correctness met its target.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [
    str(TESTS),
    str(TESTS.parent),
]  # this folder's device_checks, and learners and vnetsim, as they lie here

from device_checks.rows import CheckSetup, NotRun, Part, Record, Row, Unfinished  # noqa: E402 - found by the line above
from device_checks.table import markdown  # noqa: E402

SCHEDULE = TESTS / "device_checks" / "expressway_schedule.json"
CHECKS = {"mathematics", "engines", "rounds", "same_bits_deterministic", "pytest"}
"""Parts whose targets decide the exit status; the others are measurements."""
SPARE_S = 20.0
"""Of a part's limit before its process is ended."""


def _late(module: str, function: str, **given: Any) -> Any:
    """Return a part's function, whose module is loaded when it runs: torch takes seconds."""

    def run(setup: CheckSetup) -> list[Row]:
        rows: list[Row] = getattr(import_module(f"device_checks.{module}"), function)(setup, **given)
        return rows

    return run


def parts() -> list[Part]:
    """Return all parts, in the order in which they run."""
    right, fast = partial(_late, "correctness"), partial(_late, "measurements")
    paper = partial(_late, "paper_run", "paper_run")
    large = partial(fast, "large_round")
    return [
        Part(name="mathematics", title="Correctness: mathematics", run=right("mathematics")),
        Part(name="engines", title="Correctness: engines", run=right("engines")),
        Part(name="rounds", title="Correctness: rounds", run=right("rounds")),
        Part(name="many_small", title="Speed: many small vehicles", run=fast("many_small")),
        Part(name="small_rounds", title="Speed: CDL and FedEFM", run=fast("small_rounds")),
        Part(name="transport", title="Speed: transport solver", run=fast("transport")),
        Part(name="large_bfloat16", title="Speed: large round",
             run=large(engine="sequential", precision="bfloat16"), limit_s=150),
        Part(name="large_bfloat16_stacked", title="Speed: large round",
             run=large(engine="batched", precision="bfloat16"), limit_s=150),
        Part(name="large_tf32", title="Speed: large round",
             run=large(engine="sequential", precision="float32", tf32=True), limit_s=150),
        Part(name="large_float32", title="Speed: large round",
             run=large(engine="sequential", precision="float32"), limit_s=150),
        Part(name="pytest", title="Correctness: tests marked cuda", run=right("pytest_on_cuda"), limit_s=180),
        Part(name="same_bits", title="Same seed, same bits: torch's defaults", run=right("same_bits")),
        Part(name="same_bits_deterministic", title="Same seed, same bits: deterministic algorithms",
             run=right("same_bits"), deterministic=True),
        Part(name="price_of_determinism", title="Price of deterministic algorithms", run=fast("price_of_determinism"),
             deterministic=True),
        Part(name="paper_run_cdl", title="Paper size, from a recorded schedule",
             run=paper(schedule_file="cdl_schedule.json"), limit_s=100),
        Part(name="paper_run_fedefm", title="Paper size, from a recorded schedule",
             run=paper(schedule_file="fedefm_schedule.json"), limit_s=150),
        Part(name="paper_run", title="Paper size, from a recorded schedule", run=paper(), limit_s=400),
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run what is left within the time; see the module's text."""
    if arguments[:1] == ["export"]:
        return export(*arguments[1:])
    options = parsed(arguments)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(folder / "gpu_check.json")
    if options.child:
        return child(options, record)
    content = record.read()
    setting = {"device": options.device, "tiny": options.tiny}
    if content.get("setting", setting) != setting:
        print(f"{folder}: was made with {content['setting']}; choose another --out.", file=sys.stderr)
        return 2
    again = {part.name for part in parts()} if options.again == "all" else set(options.again.split(",")) - {""}
    content["parts"] = {name: kept for name, kept in content["parts"].items() if name not in again}
    record.write(content | {"setting": setting, "trying": None})
    ends_s = time.monotonic() + options.seconds
    while (waiting := due(record, options, ends_s)) and supervise(waiting, options, record, ends_s):
        pass
    content = record.read()
    (folder / "gpu_check.md").write_text(markdown(content, parts()))
    return summary(content, options, folder)


def export(scenario: str, file: str, *settings: str) -> int:
    """Make the schedule of a scenario with settings of the form KEY=VALUE."""
    from device_checks import recording, schedule  # noqa: PLC0415 - not on a bare machine

    from vnetsim.learning.registry import find_learner  # noqa: PLC0415
    from vnetsim.scenario.settings_file import load_experiment, parse_override  # noqa: PLC0415

    experiment = load_experiment(scenario, [parse_override(one) for one in settings], find_learner=find_learner)
    Path(file).write_text(schedule.written(recording.exported(experiment)))
    return 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--out", required=True, help="folder of what was found, and of what is left")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this command")
    parser.add_argument("--tiny", action="store_true", help="rehearse: sizes of a second; no figure means anything")
    parser.add_argument("--only", default="", help="names of parts, separated by commas")
    parser.add_argument("--again", default="", help="finished parts to repeat, or all")
    parser.add_argument("--schedule", default=str(SCHEDULE), help="file that `export` made")
    parser.add_argument("--data-root", default="", help="folder of CIFAR-10 for the paper-size run")
    parser.add_argument("--rounds", type=int, default=0, help="of the paper-size run; default: the schedule's")
    parser.add_argument("--seed", type=int, default=0, help="of the paper-size run")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def due(record: Record, options: argparse.Namespace, ends_s: float) -> list[Part]:
    """Return the parts that are left and fit into the time, those of one process."""
    kept, only = record.read()["parts"], set(options.only.split(",")) - {""}
    left = [
        part
        for part in parts()
        if kept.get(part.name, {}).get("status", "unfinished") == "unfinished"
        and (not only or part.name in only)
        and limit(part, options) + SPARE_S <= ends_s - time.monotonic()
    ]
    return list(takewhile(lambda part: part.deterministic == left[0].deterministic, left))


def limit(part: Part, options: argparse.Namespace) -> float:
    """Return about how long a part may take (s)."""
    return min(part.limit_s, max(5.0, options.seconds - 2 * SPARE_S))


def supervise(waiting: Sequence[Part], options: argparse.Namespace, record: Record, ends_s: float) -> bool:
    """Run parts in a process until they are done, or one takes too long or ends it; return whether to go on."""
    environment = dict(os.environ)
    if waiting[0].deterministic:
        environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    names = ",".join(part.name for part in waiting)
    process = subprocess.Popen(
        [sys.executable, *child_flags(), __file__, *sys.argv[1:], "--child", names], env=environment
    )
    limits = {part.name: limit(part, options) + SPARE_S for part in waiting}
    while process.poll() is None:
        time.sleep(0.1)
        trying = record.read().get("trying")
        late = trying and time.time() - trying["began"] > limits[trying["part"]]
        if late or time.monotonic() > ends_s + SPARE_S:
            process.kill()
            process.wait()
    trying = record.read().get("trying")
    if trying:  # it did not come to an end
        why = "took too long" if process.returncode == -9 else f"its process ended with status {process.returncode}"
        record.put(trying["part"], "failed", why=why, wall_s=time.time() - trying["began"])
        record.update(trying=None)
        return True
    if process.returncode:
        print(f"gpu_check: the process of {names} ended with status {process.returncode}", file=sys.stderr)
        return False
    return any(record.read()["parts"].get(part.name, {}).get("status") not in {None, "unfinished"} for part in waiting)


def child_flags() -> list[str]:
    """Return the interpreter's flags that matter to what can be imported."""
    return [*(["-S"] if sys.flags.no_site else []), *(["-I"] if sys.flags.isolated else [])]


def child(options: argparse.Namespace, record: Record) -> int:
    """Run parts one after the other, and keep how each ended."""
    import torch  # noqa: PLC0415 - the parent does without

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # measured apart, where it is asked
    record.update(machine=machine(options.device))
    named = options.child.split(",")
    for part in parts():
        if part.name not in named:
            continue
        seconds = limit(part, options)
        setup = CheckSetup(device=options.device, tiny=options.tiny, seconds=seconds, folder=options.out,
                    schedule=options.schedule, data_root=options.data_root, seed=options.seed, rounds=options.rounds,
                    began_s=time.monotonic())  # fmt: skip
        record.update(trying={"part": part.name, "began": time.time()})
        rows, why, status = [], "", "finished"
        try:
            if part.deterministic:
                torch.use_deterministic_algorithms(True, warn_only=True)
                torch.backends.cudnn.deterministic = True
            rows = part.run(setup)
        except NotRun as reason:
            status, why = "not run", str(reason)
        except Unfinished as reason:
            rows, status, why = reason.rows, "unfinished", str(reason)
        except Exception as error:  # noqa: BLE001 - the other parts go on
            status, why = "failed", f"{type(error).__name__}: {error}"[:600]
            traceback.print_exc()
        record.put(part.name, status, rows=rows, why=why, wall_s=time.monotonic() - setup.began_s)
        record.update(trying=None)
        print(f"{part.name}: {status} {why}".rstrip(), flush=True)
        if setup.cuda:
            torch.cuda.empty_cache()
    return 0


def machine(device: str) -> dict[str, Any]:
    """Return device and versions."""
    import torch  # noqa: PLC0415

    cuda = device.startswith("cuda")
    versions = {}
    for name in ("torch", "torchvision", "numpy", "scipy", "safetensors", "POT"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else platform.processor() or platform.machine(),
        "memory_bytes": torch.cuda.get_device_properties(device).total_memory if cuda else 0,
        "cuda": torch.version.cuda or "",
        "cudnn": torch.backends.cudnn.version() if cuda else 0,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "tf32": "off, except in the rows that say TF32",
        **versions,
    }


def summary(content: dict[str, Any], options: argparse.Namespace, folder: Path) -> int:
    """Say what is left, and return the exit status."""
    kept = content["parts"]
    only = set(options.only.split(",")) - {""}
    wanted = [part.name for part in parts() if not only or part.name in only]
    left = [name for name in wanted if kept.get(name, {}).get("status", "unfinished") == "unfinished"]
    failed = [name for name in wanted if kept.get(name, {}).get("status") == "failed"]
    wrong = [
        row["work"] for name in wanted if name in CHECKS for row in kept.get(name, {}).get("rows", []) if not row["met"]
    ]
    print(f"{folder / 'gpu_check.md'}: left: {', '.join(left) or 'nothing'}; failed: {', '.join(failed) or 'none'}")
    for work in wrong:
        print(f"not as on the CPU: {work}")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
