"""``make fuzz``: damaged inputs of every kind, bounded by count and time; what is found is kept as a regression test.

The n-th input of a seed is always the same. A finding is an input that ends in anything but a result or one line: a
traceback, an internal error, a warning of Python's, a fault of the input blamed on the learner, a hang, or a file left
behind although the input was refused. It is kept in ``findings/TARGET/HASH``, which ``test_fuzz.py`` runs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutations import mutated
from targets import TARGETS, Done, Target, chosen, inside

FINDINGS = Path(__file__).with_name("findings")
CPU_S = 30.0
WALL_S = 300.0
"""An input that computes for longer hangs; the seeds take a fraction of a second."""
MEMORY_BYTES = 8 * 2**30


class Hang(BaseException):
    """The time of an input is up."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """End what computes for too long."""

    def stop(*_: object) -> None:
        raise Hang

    # the processor time of this process, and, as SUMO computes in another, time by the clock
    timers = ((signal.SIGPROF, signal.ITIMER_PROF, CPU_S), (signal.SIGALRM, signal.ITIMER_REAL, WALL_S))
    before = [signal.signal(number, stop) for number, _, _ in timers]
    try:
        for _, timer, seconds in timers:
            signal.setitimer(timer, seconds)
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@contextlib.contextmanager
def descriptor_2() -> Iterator[Callable[[], str]]:
    """Yield what returns, afterwards, what libraries in other languages wrote to standard error."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        text: list[str] = []
        try:
            yield lambda: text[0]
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            text.append(file.read().decode(errors="replace"))


def fault_of(done: Done, folder: Path) -> str:
    """Return what is wrong with how an input ended, empty for nothing."""
    lines = done.err.splitlines()
    if "Traceback" in done.err or "internal error" in done.err:
        return "internal error"
    if not all(line.startswith("vnetsim: ") for line in lines):
        return "something else on standard error"
    if done.status not in (0, 1, 2):
        return f"exit status {done.status}"
    if done.status and not lines:
        return "no reason given"
    if done.status == 2 and any((folder / name).exists() for name in ("out", "runs")):
        return "files left behind"
    if done.status == 1 and "learner" in lines[-1] and "learner/" not in lines[-1]:
        return "blamed on the learner"
    return ""


def tried(target: Target, folder: Path) -> tuple[str, str]:
    """Return what is wrong with how a folder of input files ends, empty for nothing, and what was printed."""
    with inside(folder), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for hidden in (ResourceWarning, DeprecationWarning, ImportWarning):  # as Python does
            warnings.simplefilter("ignore", hidden)
        try:
            with limited(), descriptor_2() as printed:
                done = target.call()
        except Hang:
            return f"more than {CPU_S:g} s of computing, or {WALL_S:g} s by the clock", ""
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            where = "".join(traceback.format_exception(error)[-3:])
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", where
    if warned:
        return "a warning of Python's", str(warned[0])
    if beneath := printed():
        return "something printed past Python", beneath
    return fault_of(done, folder), done.err


def damaged(target: Target, folder: Path, draw: random.Random) -> Path:
    """Write the seed into a folder, damage one of its files, and return that."""
    target.seed(folder)
    path = draw.choice(chosen(target, folder))
    path.write_bytes(mutated(draw, path.read_bytes()))
    return path


def replayed(name: str, finding: Path, folder: Path) -> tuple[str, str]:
    """Return what is wrong with a kept finding now; see ``tried``."""
    target = TARGETS[name]
    target.seed(folder)
    for file in (path for path in finding.rglob("*") if path.is_file()):
        (folder / file.relative_to(finding)).write_bytes(file.read_bytes())
    return tried(target, folder)


def kept(name: str, folder: Path, path: Path) -> Path:
    """Copy the damaged file of an input to the findings."""
    content = path.read_bytes()
    finding = FINDINGS / name / hashlib.sha256(content).hexdigest()[:12]
    copy = finding / path.relative_to(folder)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(content)
    return finding


def main() -> int:
    """Run so many inputs, or as many as fit into the time, and tell what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=10_000, help="inputs of all targets together")
    options.add_argument("--seconds", type=float, default=3600.0, help="stop after so long")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; repeatable")
    given = options.parse_args()
    os.fsync = lambda _: None  # nobody pulls the plug here, and most of an input's time is waiting for the disk
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    names = given.target or list(TARGETS)
    shares = [TARGETS[name].share for name in names]
    order = random.Random(given.seed).choices(names, shares, k=given.count)
    began_s, counts, found = time.monotonic(), Counter[str](), Counter[str]()
    for number, name in enumerate(order):
        if time.monotonic() - began_s > given.seconds:
            print(f"the time was up after {number} inputs.")
            break
        folder = Path(tempfile.mkdtemp(prefix="vnetsim-fuzz-"))
        path = damaged(TARGETS[name], folder, random.Random(f"{given.seed} {number} {name}"))
        content = path.read_bytes()
        fault, told = tried(TARGETS[name], folder)
        counts[name] += 1
        if fault:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)  # the command may have removed it
            found[name] += 1
            print(f"{kept(name, folder, path)}: {fault}\n{told}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    took_s = time.monotonic() - began_s
    told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(f"{sum(counts.values())} inputs in {took_s:.0f} s: {told}.")
    print(f"{sum(found.values())} findings: {dict(found)}" if found else "nothing found.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
