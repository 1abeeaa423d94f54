"""Export results for papers and other tools: ``vnetsim export`` and ``vnetsim cite``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from vnetsim import __version__
from vnetsim.api.calls import Show, display_of
from vnetsim.api.settings import path_of
from vnetsim.errors import InputError
from vnetsim.own_packages import claim
from vnetsim.storage.records import COMPARISON

if TYPE_CHECKING:
    from vnetsim.learning import Learner

PathLike = str | os.PathLike[str]


def export(
    path: PathLike,
    *,
    to: PathLike | None = None,
    tensorboard: PathLike | None = None,
    fcd: PathLike | None = None,
    video: PathLike | None = None,
    progress: Show = None,
) -> list[Path]:
    """Write results in formats for papers and other tools, and return the folders and files made: ``vnetsim export``.

    Args:
        path: folder of a run, of recorded traffic, or of a comparison.
        to: folder to make for a paper: figures, tables, methods, references, inputs.
        tensorboard: folder to make with event files of TensorBoard; for a comparison, one folder in it per cell.
        fcd: file to make, ``.xml``: positions of vehicles in coverage as SUMO's floating-car data; not of a comparison.
        video: file to make, ``.mp4`` or ``.gif``: the playback of the page, of at most a minute; ``.mp4`` needs the
            program ffmpeg. Not of a comparison.
        progress: see ``vnetsim.run``; of the video.

    Raises:
        InputError: no output was named, the folder is none of these or damaged, or an output exists already.
        RunError: an output cannot be written.

    Examples:
        >>> import vnetsim
        >>> traffic = vnetsim.mobility("gaussian", traffic__end_s=30, out="traffic")
        >>> [path.name for path in vnetsim.export(traffic.path, to="paper")]
        ['paper']
    """
    claim("analysis")
    from analysis.export.paper import export_paper  # noqa: PLC0415 - matplotlib only for figures

    folder, made = Path(path_of(path, "path")), []
    if (fcd is not None or video is not None) and (folder / COMPARISON).is_file():
        raise InputError(f"{folder}: is a comparison; --fcd and --video take one of its runs, in {folder / 'cells'}.")
    if to is not None:
        made.append(export_paper(folder, Path(path_of(to, "to"))))
    if tensorboard is not None:
        from analysis.export.tensorboard import export_tensorboard  # noqa: PLC0415 - optional

        made.append(export_tensorboard(folder, Path(path_of(tensorboard, "tensorboard"))))
    if fcd is not None:
        from analysis.export.fcd import export_fcd  # noqa: PLC0415

        made.append(export_fcd(folder, Path(path_of(fcd, "fcd"))))
    if video is not None:
        from analysis.export.video import export_video  # noqa: PLC0415

        with display_of(progress) as display:
            made.append(export_video(folder, Path(path_of(video, "video")), display))
    if not made:
        raise InputError("export: say what to write, with --to, --tensorboard, --fcd or --video.")
    return made


def references(learners: Iterable[type[Learner]] = (), folders: Iterable[PathLike] = ()) -> list[str]:
    """Return BibTeX entries, each once: vnetsim, SUMO, papers of ``learners``, and of those of runs or comparisons."""
    claim("analysis")
    from analysis.export.methods import bibtex_entries  # noqa: PLC0415 - matplotlib only for figures
    from analysis.export.paper import load_runs  # noqa: PLC0415

    runs = [run for folder in folders for run in load_runs(Path(folder)).values()]
    papers = [(one.name, one.paper) for one in learners]
    papers += [(one.name, one.paper) for run in runs if (one := run.manifest.learner)]
    return list(bibtex_entries(papers, __version__).values())
