"""What a GPU does to the learners: correctness first, then speeds against references, rounds of the papers' sizes.

    python tests/gpu_check.py --device cuda --out DIR [--seconds 540] [--data-root FOLDER_OF_CIFAR10]

needs torch, torchvision, scipy, numpy and safetensors, no SUMO, no tables and no installation; the group ``live`` needs
vnetsim installed, and is not run without. Type it again until it
says that nothing is left: what is finished lies in DIR and is skipped (``--again PART,...`` or ``all`` forgets it).
What Ctrl-C or a signal interrupts is left, and the next command begins it again. DIR holds ``gpu_check.json`` and the
table ``gpu_check.md``. ``--tiny --device cpu`` rehearses all parts; no figure of that means anything.

First comes the mathematics, then the engine that a run uses against plain steps, to the bit, then whole rounds against
the CPU, then speeds and the command line (cells of a study, a run that is killed, Ray, SUMO), the rows that no GPU has
shown yet first. Each learner is a part by itself, so that the verdict grows; ``engines``, ``rounds`` and ``same_bits``
name the parts of all learners. A part is begun where the most it may take is left of the command's
seconds; one that takes longer has failed.

The exit status is 0 when no part failed and every figure of correctness met its target.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
# this folder's device_checks, and learners and vnetsim, as they lie here
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from device_checks import registered  # noqa: E402 - found by the line above
from device_checks.rows import CheckSetup, NotRun, Part, Record, Row  # noqa: E402

FAILED, NO_DEVICE = 3, 4
"""Status of a process of which a part has failed and has said so, and of one that has no device."""
FIRST = ("flsimco", "fedavg-steering", "fedavg-classification", "fedefm", "cdl", "fedco")
"""Learners that are checked first: each task, then those with steps of their own."""
START_S = 120.0
"""Most seconds of a process outside its parts, as while it starts."""
LOOK_S = 0.2
"""Seconds between two looks at which part is running."""


def _late(module: str, function: str, *given: Any) -> Any:
    """Return a part's function, whose module is loaded when it runs: torch takes seconds."""

    def run(setup: CheckSetup) -> list[Row]:
        rows: list[Row] = getattr(import_module(f"device_checks.{module}"), function)(setup, *given)
        return rows

    return run


def parts() -> list[Part]:
    """Return all parts, those worth most first."""
    right, fast = partial(_late, "correctness"), partial(_late, "measurements")
    large = partial(fast, "large_round")
    learners = [*FIRST, *sorted(registered().keys() - {*FIRST})]

    def each(group: str) -> list[Part]:
        """Return a part for every learner; the limit is what a group of them may take."""
        return [
            Part(name=f"{group}_{name}", run=right(group, name), limit_s=60, decides=True, group=group)
            for name in learners
        ]

    return [
        Part(name="mathematics", run=right("mathematics"), limit_s=60, decides=True),
        *each("engines"),
        *each("rounds"),
        Part(name="small_rounds", run=fast("small_rounds"), limit_s=90),
        Part(name="many_small", run=fast("many_small"), limit_s=60),
        Part(name="host_waits", run=fast("host_waits"), limit_s=60),
        *(
            Part(name=f"live_{function}", run=partial(_late, "live")(function), limit_s=limit_s, group="live")
            for function, limit_s in (("resume", 90), ("ray", 90), ("sumo", 90), ("cells", 180))
        ),
        *each("same_bits"),
        Part(name="large_bfloat16", run=large("bfloat16"), limit_s=90),
        Part(name="paper_flsimco", run=fast("paper_rounds", "flsimco"), limit_s=200),
        Part(name="transport", run=fast("transport"), limit_s=90),
        Part(name="large_tf32", run=large("TF32"), limit_s=120),
        Part(name="large_float32", run=large("float32"), limit_s=150),
        Part(name="paper_cdl", run=fast("paper_rounds", "cdl"), limit_s=200),
        Part(name="paper_fedefm", run=fast("paper_rounds", "fedefm"), limit_s=200),
    ]


def main(arguments: Sequence[str]) -> int:
    """Run what is left within the time; see the module's text."""
    everything = {part.name: part for part in parts()}
    options = parsed(arguments, list(everything))
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(folder, list(everything))
    if options.child:
        ends, *names = options.child
        return child([everything[name] for name in names], float(ends), options, record)
    content = record.read()
    setting = {"device": options.device, "tiny": options.tiny, "data_root": options.data_root}
    if content.get("setting", setting) != setting:
        print(f"{folder}: was made with {content['setting']}; choose another --out.", file=sys.stderr)
        return 2
    before = content["parts"].items()
    kept = {name: part for name, part in before if name not in options.again and part["status"] != "running"}
    record.update(setting=setting, parts=kept)
    ends_s = time.monotonic() + options.seconds
    try:
        waiting = [everything[name] for name in record.left() if name in options.only]
        while waiting:
            together = [part for part in waiting if part.group and part.group == waiting[0].group] or waiting[:1]
            if together[0].limit_s > ends_s - time.monotonic():
                waiting.remove(together[0])
                continue
            ended = run(together, ends_s, arguments, record)
            if ended is None:
                return 1
            waiting = [part for part in waiting if part not in ended]
            if together[0].decides:
                print(verdict(record, options), flush=True)
    except KeyboardInterrupt:
        summary(record, options)
        return 130
    return summary(record, options)


def parsed(arguments: Sequence[str], names: list[str]) -> argparse.Namespace:
    """Return the options."""

    groups = {part.group: [one.name for one in parts() if one.group == part.group] for part in parts() if part.group}

    def some(text: str) -> list[str]:
        given = names if text == "all" else [one for name in text.split(",") for one in groups.get(name, [name])]
        if unknown := set(given) - set(names):
            raise argparse.ArgumentTypeError(f"no part {', '.join(sorted(unknown))}; the parts: {', '.join(names)}")
        return given

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--out", required=True, help="folder of what was found, and of what is left")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this command")
    parser.add_argument("--tiny", action="store_true", help="rehearse: sizes of a second; no figure means anything")
    parser.add_argument(
        "--only", type=some, default=names, help="names of parts or groups of them, separated by commas"
    )
    parser.add_argument("--again", type=some, default=[], help="parts to forget and to repeat, or all")
    parser.add_argument("--data-root", default="", help="folder of CIFAR-10 for the runs of the papers' sizes")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)  # when the command ends, and the parts
    return parser.parse_args(arguments)


def run(together: Sequence[Part], ends_s: float, arguments: Sequence[str], record: Record) -> list[Part] | None:
    """Run parts in one process; return those to run no more in this command, None if there is no device.

    A part that takes longer than its limit, or that ends the process, has failed; the parts after it are not returned.
    """
    process = subprocess.Popen(
        [sys.executable, sys.argv[0], *arguments, "--child", str(ends_s), *(part.name for part in together)],
        stdin=subprocess.PIPE,  # closed when this process ends, in whatever way
        start_new_session=True,  # so that a part's own processes end with it
        env={**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},  # what deterministic algorithms want
    )
    of = {part.name: part for part in together}
    running, began_s, why = "", time.monotonic(), ""
    try:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
            if (now := record.running()) != running:
                running, began_s = now, time.monotonic()
            limit_s = of[running].limit_s if running else START_S
            if process.poll() is None and time.monotonic() - began_s > limit_s:
                why = f"took longer than its limit of {limit_s:.0f} s"
                break
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode == NO_DEVICE:
        return None
    if not why and process.returncode not in {0, FAILED}:
        running = record.running()
        why = f"its process ended with status {process.returncode}"
    if not why:
        return list(together)
    failed = running or next((name for name in of if name in record.left()), together[-1].name)
    record.put(failed, "failed", why=why)
    print(f"{failed}: {why}", flush=True)
    return list(together[: list(of).index(failed) + 1])


def child(together: Sequence[Part], ends_s: float, options: argparse.Namespace, record: Record) -> int:
    """Run parts one after the other, and keep how each ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this one
    try:
        record.update(machine=machine(options.device))
    except NotRun as reason:
        print(reason, file=sys.stderr)
        return NO_DEVICE
    found = 0
    for part in together:
        if part is together[0] or part.limit_s <= ends_s - time.monotonic():
            found = max(found, attempt(part, options, record))
    return found


def attempt(part: Part, options: argparse.Namespace, record: Record) -> int:
    """Run a part, and keep how it ended; return FAILED if it failed, else 0."""
    record.put(part.name, "running")
    began_s = time.monotonic()
    setup = CheckSetup(
        device=options.device, tiny=options.tiny, ends_s=began_s + part.limit_s, data_root=options.data_root
    )
    rows, why, status = [], "", "finished"
    try:
        if part.decides:
            import torch  # noqa: PLC0415 - the parent does without

            torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other, minutes on a busy machine
        rows = part.run(setup)
    except NotRun as reason:
        status, why = "not run", str(reason)
    except Exception as error:  # noqa: BLE001 - the other parts go on
        status, why = "failed", f"{type(error).__name__}: {error}"[:600]
        traceback.print_exc()
    wall_s = time.monotonic() - began_s
    record.put(part.name, status, rows=rows, why=why, wall_s=wall_s)
    print(f"{part.name}: {status} {why} ({wall_s:.1f} s)", flush=True)
    for row in rows:
        print(f"  {row.work}: {row.seen}", flush=True)
    return FAILED if status == "failed" else 0


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever written
    os.killpg(os.getpid(), signal.SIGKILL)


def machine(device: str) -> dict[str, Any]:
    """Turn TF32 off, and return device and versions; ``NotRun`` where there is no such device."""
    import torch  # noqa: PLC0415 - the parent does without

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    cuda = device.startswith("cuda")
    if cuda and not torch.cuda.is_available():
        raise NotRun(f"--device {device}: no CUDA device is available here.")
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
        "date": time.strftime("%Y-%m-%d"),
        "tf32": "off, except in the rows that say TF32",
        **versions,
    }


def judged(record: Record, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the parts of correctness that have ended, and what of them is not as it should be."""
    kept = record.read()["parts"]
    ended = [p.name for p in parts() if p.decides and p.name in options.only and p.name not in record.left()]
    wrong = [name for name in ended if kept[name]["status"] == "failed"]
    return ended, wrong + [row["work"] for name in ended for row in kept[name]["rows"] if row["met"] is False]


def verdict(record: Record, options: argparse.Namespace) -> str:
    """Return whether the parts of correctness that have ended are right."""
    ended, wrong = judged(record, options)
    asked = [part for part in parts() if part.decides and part.name in options.only]
    return f"correctness: {'WRONG' if wrong else 'right'}, {len(ended)} of {len(asked)} parts done"


def summary(record: Record, options: argparse.Namespace) -> int:
    """Say what is left, and return the exit status."""
    kept = record.read()["parts"]
    left = [name for name in record.left() if name in options.only]
    failed = [name for name in options.only if kept.get(name, {}).get("status") == "failed"]
    wrong = [one for one in judged(record, options)[1] if one not in failed]
    for part in parts():
        if part.name in left and part.limit_s > options.seconds:
            print(f"{part.name}: is begun with --seconds {part.limit_s:.0f} or more alone")
    print(f"{options.out}/gpu_check.md: left: {', '.join(left) or 'nothing'}; failed: {', '.join(failed) or 'none'}")
    if failed:
        print(f"--again {','.join(failed)} repeats what failed")
    for work in wrong:
        print(f"not as it should be: {work}")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    sys.exit(main(sys.argv[1:]))
