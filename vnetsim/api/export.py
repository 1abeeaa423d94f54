"""Results in the forms that others take: ``vnetsim export`` and ``vnetsim cite``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from vnetsim.api.settings import path_of
from vnetsim.errors import InputError
from vnetsim.own_packages import claim

if TYPE_CHECKING:
    from vnetsim.learning import Learner

PathLike = str | os.PathLike[str]


def export(path: PathLike, *, to: PathLike | None = None) -> list[Path]:
    """Write results in the forms that papers take: ``vnetsim export``.

    Args:
        path: folder of a run, of recorded traffic, or of a comparison.
        to: folder to make, with what a paper needs: figures, tables, methods, references, inputs, RO-Crate metadata.

    Returns:
        What was made.

    Raises:
        InputError: nothing is asked for, the folder is not such a one or damaged, or something is there already.
        RunError: something cannot be written.

    Examples:
        >>> import vnetsim
        >>> traffic = vnetsim.mobility("gaussian", traffic__end_s=30, out="traffic")
        >>> [path.name for path in vnetsim.export(traffic.path, to="paper")]
        ['paper']
    """
    claim("analysis")
    from analysis.export.paper import export_paper  # noqa: PLC0415 - matplotlib only for figures

    folder, made = Path(path_of(path, "path")), []
    if to is not None:
        made.append(export_paper(folder, Path(path_of(to, "to"))))
    if not made:
        raise InputError("export: say what to write, with --to.")
    return made


def references(learners: Iterable[type[Learner]] = (), folders: Iterable[PathLike] = ()) -> list[str]:
    """Return what to cite as BibTeX: vnetsim, SUMO, and the papers of learners and of runs' learners."""
    claim("analysis")
    from analysis.export.paper import runs_of  # noqa: PLC0415 - matplotlib only for figures
    from analysis.export.references import references as entries  # noqa: PLC0415

    runs = [run for folder in folders for run in runs_of(Path(folder))]
    recorded = [run.manifest.learner for run in runs if run.manifest.learner]
    return list(entries([*learners, *recorded]).values())
