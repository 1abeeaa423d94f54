"""The Python API: what ``import vnetsim`` offers. All else is private, whatever its name.

Runs of the command line and of Python are the same: the same settings with the same defaults and checks, the same
folders, the same tables. A user's mistake raises ``vnetsim.InputError``, a run that fails ``vnetsim.RunError``; both
say in one line what is wrong, where, and what to do.

Importing vnetsim, and looking a learner up, changes nothing in the process. The program ``vnetsim`` sets malloc and
OpenMP of its own process up to train faster, which a notebook does not; ``workers=2`` runs in such processes.

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

from vnetsim.api.benchmark import BenchCheck, BenchRow, bench, bench_check, bench_table
from vnetsim.api.calls import compare, load, mobility, resume, run
from vnetsim.api.export import export
from vnetsim.api.results import Run, Traffic
from vnetsim.api.settings import Experiment
from vnetsim.api.studies import Study
from vnetsim.errors import InputError, RunError

__all__ = [
    "BenchCheck",
    "BenchRow",
    "Experiment",
    "InputError",
    "Run",
    "RunError",
    "Study",
    "Traffic",
    "bench",
    "bench_check",
    "bench_table",
    "compare",
    "export",
    "load",
    "mobility",
    "resume",
    "run",
]
