"""Refuses code and SUMO scenarios that only a run directory names: it may come from somebody else.

Its settings and tables are data. A plug-in in a file is code; it is run only if the user names it too, or gives
``--trust``.
"""

from __future__ import annotations

from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.errors.paths import resolve_path
from vnetsim.experiment import Experiment
from vnetsim.plugins import at_folder, code_file, short_name
from vnetsim.scenario.kinds import is_sumo, source_file


def asks_for_trust(experiment: Experiment) -> bool:
    """Return whether resuming this run needs ``--trust``: its traffic source or a plug-in is code in a file."""
    named = any(code_file(name) is not None for name in experiment.plugins().values())
    return named or source_file(experiment.scenario) is not None


def refuse_code(file: Path, key: str, name: object, *, hint: str) -> None:
    """Raise InputError if ``name``, at ``key`` in ``file``, is ``path.py:Class``; ``hint`` says how to allow it."""
    if isinstance(name, str) and (code := code_file(name)) is not None:
        raise InputError(
            f"{file}: {key}: the folder wants the code of {code} ({short_name(name)}) to be run; if you trust it, "
            f"add {hint}."
        )


def check_resumed(experiment: Experiment, file: Path, *, scenario: str, learner: str | None) -> None:
    """Refuse, with InputError, to resume a run with code or a SUMO scenario that the user did not name.

    ``experiment`` was read from ``file``, the run's ``experiment.toml``, with ``scenario`` as written there.
    ``learner`` must be the recorded one, or None if the user names none. A SUMO scenario is refused if it may have come
    with the folder: it is inside, or its path is not absolute and free of links, as a run records it.
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
    within = path.is_relative_to(resolve_path(file.parent))
    if within or not path.is_absolute() or path != resolve_path(path):
        raise InputError(
            f"{file}: scenario: the folder wants SUMO to be started on {scenario}, which may have come with it; if you "
            "trust it, add --trust."
        )
