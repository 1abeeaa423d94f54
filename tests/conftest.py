"""What all tests share."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

# How long an example takes says more of the machine's other work than of the code. The same examples every time, so
# that a change is to blame when a test fails; VNETSIM_EXPLORE=1 looks for new ones.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("explore" if os.environ.get("VNETSIM_EXPLORE") else "repeatable")
if not os.environ.get("VNETSIM_EXPLORE") and hasattr(providers, "_get_local_constants"):
    # numbers of the code that is loaded are among the examples, and so others with the tests that ran before
    NO_NUMBERS = providers._local_constants
    providers._get_local_constants = lambda: NO_NUMBERS

# as vnetsim does before it loads torch: threads that spin long starve the simulators that other tests run
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# With one core the default engine neither measures a step nor copies networks for threads, which takes a third of a
# short training, and gives the same bits. Tests of several cores ask for them.
os.environ.setdefault("VNETSIM_CORES", "1")

# small tables: a hand-over to threads takes longer than the work
os.environ.setdefault("POLARS_MAX_THREADS", "1")

# images that runs keep for later ones; tests leave those of the user alone
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parents[1] / ".pytest_cache" / "user")

os.fsync = lambda _: None  # nobody pulls the plug, and a small run would wait for the disk half of its time

# a machine with a GPU may have no SUMO, and still collects the tests marked cuda
collect_ignore = (
    []
    if find_spec("sumo")
    else [
        "benchmarks/test_mobility_benchmarks.py",
        "end_to_end/test_one_rsu_a_study.py",
        "golden/test_independent_windows.py",
        "scenarios/test_scenarios.py",
        "traffic",
    ]
)

ALL_ONLY = (
    "benchmarks",
    "crashes",
    "end_to_end/test_compare_workers.py",
    "end_to_end/test_every_learner.py",
    "end_to_end/test_gpu_check.py",
    "end_to_end/test_handover_runs.py",
    "end_to_end/test_learner_failures.py",
    "end_to_end/test_one_rsu_a_study.py",
    "end_to_end/test_one_world.py",
    "end_to_end/test_plugin_examples.py",
    "end_to_end/test_selection_plugins.py",
    "end_to_end/test_tutorial.py",
    "fuzz",
    "golden/test_independent_windows.py",
    "learners/engines/test_other_device.py",
    "scenarios/test_studies.py",
    "study/test_faults_of_studies.py",
)
"""What `make test` leaves out: long tests whose promise a shorter one holds as well, and damage of every kind."""


COMPARED = {
    "fedprox", "fedprox-classification", "fedprox-steering", "scaffold", "scaffold-classification",
    "scaffold-steering", "fednova-classification", "moon-classification", "feddyn-classification",
}  # fmt: skip
"""Learners whose equations, state and payload ``learners/test_compared_methods.py`` tests; only `make test-all` puts
them through the tests of all learners."""


def pytest_collection_finish() -> None:
    """Keep torch, the libraries and the tests themselves from being looked through for garbage."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to `make test-all` alone."""
    here = Path(__file__).parent
    assert all((here / place).exists() for place in ALL_ONLY), "a name in ALL_ONLY is of no test"
    for item in items:
        place = item.path.relative_to(here).as_posix()
        given = {one for one in getattr(getattr(item, "callspec", None), "params", {}).values() if isinstance(one, str)}
        if place.startswith(ALL_ONLY) or given & COMPARED or item.get_closest_marker("slow"):
            item.add_marker("all_only")
