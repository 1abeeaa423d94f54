"""Export of the benchmark's traffic and schedules as tables that need no vnetsim, with a Croissant 1.0 data card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from analysis.export.methods import bibtex_entries
from analysis.export.paper import require_empty
from vnetsim import __version__
from vnetsim.storage.bench_track import Track
from vnetsim.storage.folder import Folder
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import REALS, TABLES, TEXT, Column, parquet

CARD = "croissant.json"
REPLAY = "replay.py"

_REAL, _WHOLE = pl.Float64(), pl.Int64()
_TRACK = Column("track", TEXT, "", "track of the benchmark")
_SEED = Column("seed", _WHOLE, "", "seed of the traffic and of the schedule")
_WINDOW, *_OF_WINDOWS = (column for column in TABLES["windows"] if column.dtype != REALS)
_POINTS = [column for column in TABLES["windows"] if column.dtype == REALS]
_UNTRAINED = {"loss", "weight"}
"""Columns that are null in a schedule without training."""
_COLUMNS: Mapping[str, Sequence[Column]] = {
    "seeds.csv": [
        _TRACK,
        _SEED,
        Column("begin_s", _REAL, "s", "begin of the traffic"),
        Column("end_s", _REAL, "s", "end of the traffic"),
        Column("windows_sha256", TEXT, "", "digest of the windows in the track's file"),
        Column("commits", _WHOLE, "", "published number of participations that committed; empty if there is none"),
    ],
    "rsus.csv": [
        _TRACK,
        Column("rsu_id", TEXT, "", "RSU"),
        Column("x_m", _REAL, "m", "x of the RSU, net coordinates"),
        Column("y_m", _REAL, "m", "y of the RSU, net coordinates"),
        Column("range_m", _REAL, "m", "radius of the disc that the RSU covers"),
    ],
    "windows.csv": [_TRACK, _SEED, _WINDOW, *_OF_WINDOWS],
    "positions.parquet": [
        _TRACK,
        _SEED,
        _WINDOW,
        *(Column(one.name.removeprefix("path_"), _REAL, one.unit, one.meaning) for one in _POINTS),
    ],
    **{
        f"{name}.csv": [_TRACK, _SEED, *(one for one in TABLES[name] if one.name not in _UNTRAINED)]
        for name in ("rounds", "participations")
    },
}
"""Columns of the files, by name."""
_SAYS = {
    "seeds.csv": "The recordings: one row per track and seed.",
    "rsus.csv": "Roadside units (RSUs) of each track.",
    "windows.csv": "Coverage windows: vehicle, RSU, begin and end, speeds.",
    "positions.parquet": "Places and speeds of the vehicle in each coverage window, in order of time.",
    "rounds.csv": "Rounds of federated averaging: when each opened and closed.",
    "participations.csv": "The schedule: when each participation began and ended, its transfers, and its outcome.",
    REPLAY: "Counts commits in participations.csv and compares them with seeds.csv; plain Python.",
}
_TYPES = {TEXT: "sc:Text", _WHOLE: "sc:Integer", _REAL: "sc:Float"}
_TERMS = (
    "citeAs", "column", "dataBiases", "dataCollection", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isEnumeration", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "personalSensitiveInformation", "recordSet", "references", "regex", "repeated", "replace",
    "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
"""Names of Croissant in the card's JSON-LD context."""


@dataclass(frozen=True, kw_only=True)
class TrackTraces:
    """A track, and by seed the folder of the baseline's finished run and the published number of commits (or None)."""

    track: Track
    runs: Sequence[Path]
    commits: Sequence[int | None]


def export_traces(tracks: Sequence[TrackTraces], to: Path) -> Path:
    """Write traces and a data card into ``to``; return it. InputError if ``to`` is not empty or a run is damaged."""
    require_empty(to)
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in _COLUMNS}
    dates, names = [], {one.name: one.name.removeprefix("path_") for one in _POINTS}
    for one in tracks:
        for seed, (path, commits) in enumerate(zip(one.runs, one.commits, strict=True)):
            run = RunDirectory(path)
            manifest = run.manifest_record()
            dates.append((manifest.finished or "")[:10])
            span = {"begin_s": manifest.traffic.begin_s, "end_s": manifest.time_s}
            windows = run.read("windows")
            tables = {
                "seeds.csv": pl.DataFrame({**span, "windows_sha256": one.track.windows[seed], "commits": commits}),
                "windows.csv": windows,
                "positions.parquet": windows.select(_WINDOW.name, *names).explode(*names).rename(names),
                "rounds.csv": run.read("rounds"),
                "participations.csv": run.read("participations"),
            }
            if seed == 0:  # all seeds of a track have the same RSUs
                tables["rsus.csv"] = pl.DataFrame(manifest.rsus).rename({"id": "rsu_id"})
            for name, table in tables.items():
                rows = table.with_columns(pl.lit(one.track.name).alias("track"), pl.lit(seed).alias("seed"))
                frames[name].append(rows.select(pl.col(c.name).cast(c.dtype) for c in _COLUMNS[name]))
    whole = {name: pl.concat(parts) for name, parts in frames.items()}
    files = {
        name: parquet(_COLUMNS[name], rows) if name.endswith(".parquet") else rows.write_csv().encode()
        for name, rows in whole.items()
    }
    files[REPLAY] = Path(__file__).with_name(REPLAY).read_bytes()
    folder = Folder(to)
    try:
        # put writes the last file when the others are on the disk: a folder with a card is complete
        folder.put({**files, CARD: _make_card(tracks, files, max(dates))})
    except (Exception, KeyboardInterrupt):
        folder.clear()
        raise
    return to


def _make_card(tracks: Sequence[TrackTraces], files: Mapping[str, bytes], date: str) -> bytes:
    """Return the data card, Croissant 1.0 in JSON-LD, of files by name, published on ``date`` (ISO)."""
    versions = ", ".join(dict.fromkeys(one.track.sumo for one in tracks))
    document = {
        "@context": {
            "@language": "en",
            "@vocab": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "rai": "http://mlcommons.org/croissant/RAI/",
            "sc": "https://schema.org/",
            "dct": "http://purl.org/dc/terms/",
            "conformsTo": "dct:conformsTo",
            "data": {"@id": "cr:data", "@type": "@json"},
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
            "examples": {"@id": "cr:examples", "@type": "@json"},
            **{term: f"cr:{term}" for term in _TERMS},
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "vnetsim-benchmark-traces",
        "description": "Traffic in coverage of roadside units, and the schedule of federated averaging on it, of the "
        f"vnetsim benchmark: {', '.join(one.track.words for one in tracks)}. Simulated, not measured: vehicles by "
        f"{versions}, with nets and demand made for vnetsim (Apache-2.0); radio, computers and rounds by vnetsim. "
        "Times in s, places in m of the track's net, speeds in m/s.",
        "license": "https://www.apache.org/licenses/LICENSE-2.0",
        "creator": {"@type": "sc:Organization", "name": "The vnetsim authors"},
        "citeAs": "\n\n".join(bibtex_entries([], __version__).values()),
        "datePublished": date,
        "version": __version__,
        "distribution": [_describe_file(name, content) for name, content in files.items()],
        "recordSet": [_describe_columns(name) for name in _COLUMNS],
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode()


def _describe_file(name: str, content: bytes) -> dict[str, str]:
    """Return the card's ``cr:FileObject`` (JSON-LD) of a file in ``_SAYS``, with size and SHA-256."""
    kinds = {".csv": "text/csv", ".parquet": "application/x-parquet", ".py": "text/x-python"}
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": _SAYS[name],
        "contentUrl": name,
        "contentSize": f"{len(content)} B",
        "encodingFormat": kinds[Path(name).suffix],
        "sha256": sha256(content).hexdigest(),
    }


def _describe_columns(name: str) -> dict[str, Any]:
    """Return the card's ``cr:RecordSet`` (JSON-LD) of a file in ``_COLUMNS``."""
    table = Path(name).stem
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{table}/{one.name}",
            "name": one.name,
            "description": f"{one.meaning} ({one.unit})" if one.unit else one.meaning,
            "dataType": _TYPES[one.dtype],
            "source": {"fileObject": {"@id": name}, "extract": {"column": one.name}},
        }
        for one in _COLUMNS[name]
    ]
    return {"@type": "cr:RecordSet", "@id": table, "name": table, "description": _SAYS[name], "field": fields}
