"""The Python API: what ``import vnetsim`` offers. Everything else is private, whatever its name.

The command line and Python make the same runs: the same settings, defaults and checks, the same folders, the same
tables. Wrong input raises ``vnetsim.InputError``, a failed run ``vnetsim.RunError``; both say in one line what is
wrong, where, and what to do. ``vnetsim.UnfinishedError`` says that the same call has to be made again.

Importing vnetsim or looking up a learner changes nothing in the process. The program ``vnetsim`` configures malloc and
OpenMP of its own process to train faster; a notebook's process is left alone, but ``workers=2`` starts such processes.

Examples:
    >>> import vnetsim
    >>> tiny = {"silos.count": 10, "data.train_images": 400, "data.test_images": 50, "learning.steps": 1}
    >>> run = vnetsim.run("gaussian", learner="fedavg-classification", rounds=2, out="first", settings=tiny)
    >>> run.rounds.height, run.participations["speed_mps"].min() > 0
    (2, True)
    >>> run.metrics.filter(name="accuracy").columns
    ['round', 'time_s', 'name', 'value', 'aggregator', 'unit']
    >>> run.model().round
    2
    >>> vnetsim.load("first").metrics.equals(run.metrics)
    True
"""

from vnetsim.api.benchmark import BenchRow, bench, bench_check, bench_table, bench_traces
from vnetsim.api.calls import compare, load, mobility, resume, run
from vnetsim.api.export import export
from vnetsim.api.placement import Placement, place
from vnetsim.api.results import Run, Traffic
from vnetsim.api.settings import Experiment
from vnetsim.api.studies import Study
from vnetsim.errors import InputError, RunError, UnfinishedError

__all__ = [
    "BenchRow",
    "Experiment",
    "InputError",
    "Placement",
    "Run",
    "RunError",
    "Study",
    "Traffic",
    "UnfinishedError",
    "bench",
    "bench_check",
    "bench_table",
    "bench_traces",
    "compare",
    "export",
    "load",
    "mobility",
    "place",
    "resume",
    "run",
]
