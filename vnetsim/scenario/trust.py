"""What a run directory may not do by itself, for it may have been received: name code to run or a simulation to start.

Its settings and tables are data. A plug-in from a file is code, and so is taken from a run directory only when the user
names it too, or trusts the folder.
"""

from __future__ import annotations

from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.errors.paths import resolved
from vnetsim.experiment import Experiment
from vnetsim.plugins import at_folder, code_file, short_name
from vnetsim.scenario.kinds import is_sumo, source_file


def asks_for_trust(experiment: Experiment) -> bool:
    """Return whether a run that its user started is resumed with ``--trust`` only; see ``check_resumed``."""
    named = any(code_file(name) is not None for name in experiment.plugins().values())
    return named or source_file(experiment.scenario) is not None


def refuse_code(file: Path, key: str, name: object, *, hint: str) -> None:
    """Refuse a plug-in of a file.

    Raises:
        InputError: it is code that only the folder names.
    """
    if isinstance(name, str) and (code := code_file(name)) is not None:
        raise InputError(
            f"{file}: {key}: the folder wants the code of {code} ({short_name(name)}) to be run; if you trust it, "
            f"add {hint}."
        )


def check_resumed(experiment: Experiment, file: Path, *, scenario: str, learner: str | None) -> None:
    """Refuse what a run that is to be resumed may not name without the user's word.

    Args:
        experiment: read from ``file``, with absolute paths of learners.
        file: the run's ``experiment.toml``.
        scenario: as the file has it.
        learner: the learner that the user names; None for none.

    Raises:
        InputError: it names a learner's file that the user did not name; or a SUMO scenario that may have come
            with the folder: one inside, or by another path than the absolute one that a run records.
    """
    learner = None if learner is None else at_folder(learner, Path.cwd())
    if learner is not None and learner != experiment.learner:
        raise InputError(f"--learner {learner}: {file} names {experiment.learner}; resume goes on with the same.")
    if learner is None:
        refuse_code(file, "learner", experiment.learner, hint=f"--trust or --learner {experiment.learner}")
    for key, name in experiment.plugins().items():
        if key != "learner" and name != learner:
            refuse_code(file, key, name, hint="--trust")
    if source_file(scenario) is not None:
        refuse_code(file, "scenario", scenario, hint="--trust")
    if not is_sumo(experiment.scenario):
        return
    path = Path(scenario)
    within = path.is_relative_to(resolved(file.parent))
    if within or not path.is_absolute() or path != resolved(path):
        raise InputError(
            f"{file}: scenario: the folder wants SUMO to be started on {scenario}, which may have come with it; if you "
            "trust it, add --trust."
        )
