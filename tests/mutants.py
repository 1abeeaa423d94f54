"""Change the code in small ways and count how many of the changes a test notices: ``make mutants``.

mutmut makes the mutants of what ``[tool.mutmut]`` in pyproject.toml names, and runs the tests once to see which of them
reach which function. All mutants times all tests would take days, so time is bounded three times: a random sample is
drawn; a mutant meets the tests that reach its function alone, first those that reach little else, as many as fit into
``--budget`` seconds, the quickest first; and no more begin after ``--seconds``. The share killed comes with its 95 %
interval (Clopper-Pearson). Survivors are listed with their change; some of them are equivalent, which only a reader can
tell. Results are kept: a second call with the same draw goes on where the first one stopped, as long as neither code
nor tests have changed, and ``--survivors`` tries those that survived once more.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[1]
WORKPLACE = ROOT / "mutants"
RESULTS = WORKPLACE / "sample.json"
ENVIRONMENT = {"VNETSIM_CORES": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
FIRST = "learners.mathematics.losses.x_margins__mutmut_1"
"""The one mutant that mutmut itself runs."""
GRACE_S = 30
"""Seconds of a processor that a mutant may take beyond three times what its tests take without it."""
HUNG = 10
"""How many times as long it may take by the clock, which runs on while others have the processor."""

KILLED = frozenset({"killed", "timeout"})
STATES = {0: "survived", 1: "killed", 2: "killed", -signal.SIGXCPU: "timeout", -signal.SIGKILL: "timeout"}
"""What became of a mutant, by the exit status of its tests."""

Reach = Mapping[str, Sequence[str]]
"""The tests that reach a function."""


def mutmut(*arguments: str) -> str:
    """Return what a mutmut command printed.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def all_mutants() -> list[str]:
    """Return the names of all mutants."""
    listed = mutmut("results", "--all", "true")
    return sorted(re.findall(r"^\s+(\S+__mutmut_\d+): ", listed, flags=re.MULTILINE))


def module_of(mutant: str) -> str:
    """Return the module that a mutant's name begins with."""
    return re.split(r"\.(?:x_|xǁ)", mutant)[0]


def chosen_tests(mutant: str, reach: Reach, seconds: Mapping[str, float], budget_s: float) -> list[str]:
    """Return the tests that a mutant meets: of those that reach its function the most particular, the quickest first.

    Args:
        mutant: its name.
        reach: by function.
        seconds: how long each test takes.
        budget_s: how long they may take together; one is chosen even if it takes longer.
    """
    reached = collections.Counter(test for tests in reach.values() for test in tests)
    chosen: list[str] = []
    spent_s = 0.0
    for test in sorted(reach.get(mutant.rpartition("__mutmut_")[0], ()), key=lambda test: (reached[test], test)):
        if not chosen or spent_s + seconds[test] <= budget_s:
            chosen.append(test)
            spent_s += seconds[test]
    return sorted(chosen, key=lambda test: seconds[test])


def fingerprint() -> str:
    """Return what changes with code and tests."""
    digest = hashlib.sha256()
    for folder in ("learners", "vnetsim", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run_tests(mutant: str, tests: Iterable[str], arguments: Sequence[str], limit_s: int) -> int:
    """Run tests against a mutant in a process of their own, a copy of this one; return its id.

    It is ended when it has used ``limit_s`` seconds of a processor.
    """
    child = os.fork()
    if child:
        return child
    import pytest  # noqa: PLC0415 - must come from the workplace's tests

    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.environ["MUTANT_UNDER_TEST"] = mutant
    limit_s += math.ceil(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
    code = 3
    try:
        code = int(pytest.main(["-x", "-q", "--tb=no", *arguments, *tests]))
    finally:
        os._exit(code)


def try_all(
    plan: Mapping[str, Sequence[str]], seconds: Mapping[str, float], *, until_s: float, children: int
) -> Iterable[tuple[str, str]]:
    """Yield each mutant of ``plan`` and what became of it; those that ``until_s`` leaves no time for are left out."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    arguments = ["--rootdir=.", *options["pytest_add_cli_args"]]
    os.chdir(WORKPLACE)
    sys.path.insert(0, str(WORKPLACE))
    os.environ["MUTANT_UNDER_TEST"] = ""
    import pytest  # noqa: PLC0415 - after the path is set

    # torch and the tests are imported once, and copied with the process
    if pytest.main(
        ["--collect-only", "-qqq", "--no-summary", *arguments, *options["pytest_add_cli_args_test_selection"]]
    ):
        sys.exit("the tests cannot be collected")
    waiting = collections.deque(plan)
    running: dict[int, tuple[str, float]] = {}
    while waiting or running:
        while waiting and len(running) < children and time.monotonic() < until_s:
            mutant = waiting.popleft()
            limit_s = GRACE_S + math.ceil(3 * sum(seconds[test] for test in plan[mutant]))
            running[run_tests(mutant, plan[mutant], arguments, limit_s)] = (mutant, time.monotonic() + HUNG * limit_s)
        if not running:
            return
        child, status = os.waitpid(-1, os.WNOHANG)
        for late, (_, limit_s) in list(running.items()):
            if late != child and time.monotonic() > limit_s:
                os.kill(late, signal.SIGKILL)
        if not child:
            time.sleep(0.02)
        elif child in running:
            code = os.waitstatus_to_exitcode(status)
            yield running.pop(child)[0], STATES.get(code, f"suspicious (exit status {code})")


def main() -> None:
    """Draw, run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--seconds", type=float, default=3600, help="for the mutants, after the tests' first pass")
    parser.add_argument("--budget", type=float, default=15, help="seconds of tests that a mutant meets at most")
    parser.add_argument("--module", default="", help="only modules whose name begins so, e.g. learners.engines")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--survivors", action="store_true", help="try those again that survived the last call")
    options = parser.parse_args()

    os.environ.update(ENVIRONMENT)
    print("making the mutants, and running the tests once to see which reach what (minutes)", flush=True)
    mutmut("run", "--max-children", "1", FIRST)
    told = json.loads((WORKPLACE / "mutmut-stats.json").read_text())
    reach, seconds = told["tests_by_mangled_function_name"], told["duration_by_test"]

    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    of, known = fingerprint(), before.get("states", {})
    if options.survivors:  # more tests kill no mutant less: those killed before stay killed
        drawn = list(known)
        known = {name: state for name, state in known.items() if state in KILLED}
    else:
        known = known if before.get("of") == of else {}
        names = [name for name in all_mutants() if module_of(name).startswith(options.module)]
        drawn = random.Random(options.seed).sample(names, min(options.count, len(names)))
        print(f"{len(drawn)} of {len(names)} mutants, {options.seconds:.0f} s at most", flush=True)
    states = {name: known[name] for name in drawn if name in known}
    plan = {name: chosen_tests(name, reach, seconds, options.budget) for name in drawn if name not in known}
    states |= {name: "no tests" for name, tests in plan.items() if not tests}
    begin_s = time.monotonic()
    until_s = begin_s + options.seconds
    plan = {name: tests for name, tests in plan.items() if tests}
    for name, state in try_all(plan, seconds, until_s=until_s, children=options.children):
        states[name] = state
        RESULTS.write_text(json.dumps({"of": of, "states": {**known, **states}}, indent=1))
    if not states:
        sys.exit("no mutant was run")
    report(states, seconds=time.monotonic() - begin_s)


def report(states: Mapping[str, str], *, seconds: float) -> None:
    """Print the share killed, by module and in all, and the survivors."""
    by_module = collections.defaultdict(list)
    for name, state in states.items():
        by_module[module_of(name)].append(state in KILLED)
    for name, state in sorted(states.items()):
        if state not in KILLED:
            changed = [line for line in mutmut("show", name).splitlines() if re.match(r"[-+](?![-+])", line)]
            print(f"\n{state}: {name}", *changed, sep="\n  ")
    print()
    for module, killed in sorted(by_module.items()):
        print(f"{module:45} {sum(killed):4} of {len(killed):4} killed")
    killed = sum(map(sum, by_module.values()))
    share = binomtest(killed, len(states)).proportion_ci()
    print(
        f"{killed} of {len(states)} killed in {seconds:.0f} s: {killed / len(states):.1%} "
        f"({share.low:.1%} to {share.high:.1%}), equivalent mutants counted as survivors"
    )


if __name__ == "__main__":
    main()
