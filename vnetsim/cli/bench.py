"""``vnetsim bench``: an arm on a frozen track, the table of all rows, and a row run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Group, Parameter

import vnetsim
from vnetsim.errors import RunError
from vnetsim.standard_streams import plain

OUTPUT = Group("Output")

bench = App(name="bench", help="Run an arm on a frozen track beside its baseline; show and check rows.")

Workers = Annotated[int, Parameter(help="Cells to run at once, each in a process of its own.")]
Set = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="A setting that the track leaves open, as table.key=value. Repeatable."),
]


@bench.default
def run(
    track: Annotated[str, Parameter(help="intersection, expressway, corridor or city.")],
    /,
    *,
    learner: Annotated[
        str | None, Parameter(help="Learner, or path/to/file.py:CLASS; default: the baseline of the first task.")
    ] = None,
    selection: Annotated[str | None, Parameter(help="Selection policy (the baseline's: random).")] = None,
    aggregation: Annotated[str | None, Parameter(help="Aggregation rule (the baseline's: sync).")] = None,
    handover: Annotated[
        str | None, Parameter(help="What becomes of who is handed over (the baseline's: drop); of several RSUs.")
    ] = None,
    control: Annotated[
        str | None, Parameter(help="An arm of the track whose effect is known, such as signs-iid; give nothing else.")
    ] = None,
    size: Annotated[str, Parameter(help="small, for two CPU cores, or paper, for a GPU.")] = "small",
    set_: Set = (),
    device: Annotated[str | None, Parameter(help="Of size paper: auto, cpu, cuda or cuda:N.")] = None,
    workers: Workers = 1,
    out: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Folder of cells and rows; default: bench. It is gone on with.")
    ] = None,
) -> int:
    """Run what is missing of an arm and of its baseline at ten seeds, print the row, and write its file."""
    from vnetsim.cli.terminal import print_results  # noqa: PLC0415 - keeps --help quick
    from vnetsim.scenario.settings_file import parse_override  # noqa: PLC0415

    row = vnetsim.bench(
        track,
        learner=learner,
        selection=selection,
        aggregation=aggregation,
        handover=handover,
        control=control,
        size=size,
        settings={".".join(path): value for path, value in map(parse_override, set_)},
        device=device,
        workers=workers,
        out=out,
        command=["vnetsim", *sys.argv[1:]],
    )
    print_results([row.table], [], row.path, title=f"vnetsim bench {track}", kind="row")
    return 0


@bench.command
def table(
    *rows: Annotated[Path, Parameter(help="Rows, or folders of them; default: bench/rows. Shipped ones are added.")],
    to: Annotated[Path | None, Parameter(group=OUTPUT, help="Folder for bench.md and the page bench.html.")] = None,
) -> int:
    """Print all rows as Markdown, each against its baseline."""
    text, page = vnetsim.bench_table(*rows, to=to)
    print(plain(f"page: {page.path}") if page else text)
    return 0


@bench.command
def check(
    row: Annotated[Path, Parameter(help="File of a row, one's own or somebody else's.")],
    /,
    *,
    seeds: Annotated[str, Parameter(help="Seeds to run again, as FIRST:END or a,b,c.")] = "0",
    learner: Annotated[
        str | None, Parameter(help="The row's learner, where that is a file's (path/to/file.py:CLASS): run its code.")
    ] = None,
    set_: Annotated[
        tuple[str, ...],
        Parameter(name="--set", negative="", help="Likewise of other code, as selection.name=path/to/file.py:CLASS."),
    ] = (),
    workers: Workers = 1,
) -> int:
    """Run seeds of a row again, traffic and all, and compare what comes out."""
    given = dict(text.partition("=")[::2] for text in set_)
    code = given if learner is None else {**given, "learner": learner}
    found = vnetsim.bench_check(row, seeds=seeds, code=code, workers=workers, command=["vnetsim", *sys.argv[1:]])
    for line in found.lines:
        print(plain(line))
    if not found.agrees:
        raise RunError(f"{row}: came out otherwise here.")
    return 0
