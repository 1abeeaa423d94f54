"""What a paper needs, read back: figures, tables, methods, references, inputs."""

import csv
import re
import shutil
import subprocess
import tomllib
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from matplotlib.figure import Figure
from small_runs import UNDRAWN, figures

import vnetsim
from analysis.export.latex import booktabs, escape_latex, markdown_to_latex
from analysis.export.methods import settings_tables
from analysis.formatting import Table
from vnetsim.cli.commands import main
from vnetsim.storage.run_directory import RunDirectory

HOSTILE = r"\input{/etc/passwd} $x_1$ & 50% #1 ~^ {"


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def sizes_in(pdf: bytes) -> tuple[float, float]:
    """Width and height (in) of the only page, whose fonts are all embedded TrueType."""
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
    assert b"/Type3" not in pdf
    assert pdf.count(b"/CIDFontType2") == pdf.count(b"/FontFile2") > 0
    return float(box[0]) / 72, float(box[1]) / 72


def check_latex(text: str) -> None:
    """Environments are closed in turn, braces match, and nothing is left that LaTeX would take as a command."""
    open_, plain = [], re.sub(r"\\[\\{}$&#%_]", "", text)
    for what, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", plain):
        if what == "begin":
            open_.append(name)
        else:
            assert open_.pop() == name
    assert not open_
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert not set(re.findall(r"\\([a-z]+)", plain)) & {"input", "write", "include"}
    for table in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        for row in re.findall(r"^(.*) \\\\$", table[1], re.MULTILINE):
            assert len(re.findall(r"(?<!\\)&", row)) == len(table[0]) - 1


@pytest.fixture(params=["a PDF of each width", pytest.param("all", marks=pytest.mark.all_only)])
def drawn(request, monkeypatch):
    """Draw one PDF for all figures of a width, as embedding its fonts takes a second, or all."""
    savefig, made = Figure.savefig, {}

    def save_once(figure: Figure, file: Any, **options: Any) -> None:
        width = figure.get_figwidth()
        if options["format"] != "pdf" or width not in made:
            savefig(figure, file, **options)
            if options["format"] == "pdf":
                made[width] = file.getvalue()
        else:
            file.write(made[width])

    if request.param != "all":
        monkeypatch.setattr(Figure, "savefig", save_once)


@pytest.mark.usefixtures("drawn")
def test_a_comparison(small_comparison, tmp_path):
    to = tmp_path / "paper"
    assert vnetsim.export(small_comparison, to=to) == [to]
    for path in to.glob("figures/*.pdf"):
        width, height = sizes_in(path.read_bytes())
        assert min(abs(width - 3.5), abs(width - 7.16)) < 1e-3
        assert 0 < height < 9.5
        assert "<text" not in path.with_suffix(".svg").read_text(encoding="utf-8")
    for path in [*to.glob("tables/*.tex"), to / "methods.tex", to / "document.tex"]:
        text = path.read_text(encoding="utf-8")
        check_latex(text.replace(r"\input{tables/", "{").replace(r"\input{methods}", ""))
    document = (to / "document.tex").read_text(encoding="utf-8")
    assert all((to / f"{name}.tex").is_file() for name in re.findall(r"\\input\{(.*?)\}", document))
    assert all((to / f"{name}.pdf").is_file() for name in re.findall(r"graphics\[.*?\]\{(.*?)\}", document))
    study = vnetsim.load(small_comparison)
    assert pl.read_csv(to / "tables/comparison.csv")["value"].to_list() == study.values["value"].to_list()
    final = next(csv.DictReader((to / "tables/finals.csv").read_text(encoding="utf-8").splitlines()))
    values = study.values.filter(pl.col("arm") == "flsimco", pl.col("metric") == "loss")["value"]
    mean, deviation = (float(text) for text in final["Training loss"].split(" \u00b1 "))
    assert (mean, deviation) == (pytest.approx(values.mean(), rel=5e-3), pytest.approx(values.std(), rel=5e-2))
    methods, bibliography = ((to / name).read_text(encoding="utf-8") for name in ("methods.md", "references.bib"))
    assert set(re.findall(r"\[@(\w+)\]", methods)) <= set(re.findall(r"^@\w+\{(\w+),$", bibliography, re.MULTILINE))
    assert re.search(r"Each run simulated [\d.]+\u202fs.* Seeds: 0, 1\.", methods), "not the traffic's span"
    assert "; recorded from 0 s to " in methods
    assert "paired by seed, by a sign-flip test, with p-values" in methods
    assert "quorum = 3" in methods
    # the traffic is a run directory as it was: cells can be run again
    (cell,) = to.glob("cells/flsimco-seed1*")
    again = vnetsim.run(cell / "experiment.toml", out=tmp_path / "again", progress=False)
    assert again.metrics.equals(study.runs["flsimco", "", 1].metrics)


def test_inputs_are_copied_where_they_are_what_they_were(make_run, tmp_path):
    run = RunDirectory(
        make_run(tmp_path / "run", vehicles=40, rounds=3, rsus=((HOSTILE, 500.0, 500.0, 250.0),), note=HOSTILE)
    )
    kept, changed = tmp_path / "in" / "one.sumocfg", tmp_path / "secret.xml"
    kept.parent.mkdir()
    config = '<c><gui-settings-file value="one.view.xml"/><gui-settings-file value="../../outside.xml"/></c>'
    kept.write_text(config)
    changed.write_text("not what was recorded")
    digest = sha256(config.encode()).hexdigest()
    inputs = {str(kept): digest, str(changed): digest, "/no/such/file": digest}
    run.write_json("manifest.json", {**run.manifest(), "inputs": inputs, "command": ["vnetsim", HOSTILE]})
    experiment = run.read_bytes("experiment.toml").decode()
    run.put(
        {"experiment.toml": re.sub("^scenario = .*", f'scenario = "{kept}"', experiment, flags=re.MULTILINE).encode()}
    )
    to = tmp_path / "paper"
    with figures(UNDRAWN):
        vnetsim.export(run.path, to=to)
    check_latex((to / "methods.tex").read_text(encoding="utf-8"))
    assert {name for name in names_in(to) if name.startswith("inputs/")} == {
        "inputs/one.sumocfg",
        "inputs/one.view.xml",
    }
    assert tomllib.loads((to / "experiment.toml").read_text())["scenario"] == "inputs/one.sumocfg"
    told = (to / "reproducibility.md").read_text(encoding="utf-8")
    assert "one.view.xml`, how sumo-gui shows the scenario" in told
    assert told.count(": copied") == 1
    assert "secret.xml`, SHA-256" in told
    assert "changed since, and not copied" in told
    assert "not there any more" in told
    metrics = pl.read_csv(to / "tables/metrics.csv").filter(name="knn")
    assert set(metrics["unit"]) == {"%"}
    assert metrics["value"].max() <= 1, "fractions, as docs say"


def test_latex_of_hostile_text():
    assert escape_latex(HOSTILE) == (
        r"\textbackslash{}input\textbraceleft{}/etc/passwd\textbraceright{} \$x\_1\$ \& 50\% \#1 "
        r"\textasciitilde{}\textasciicircum{} \textbraceleft{}"
    )
    assert escape_latex("1\u202f234 \u2212 5\u202f\u00d7\u202f10\u00b3\n\x00") == r"1\,234 $-$ 5\,$\times$\,10$^{3}$ ?"
    assert escape_latex("10\u207b\u2074") == "10$^{-}$$^{4}$"
    assert markdown_to_latex("as in [@sumo], 5 %.\n") == "as in \\cite{sumo}, 5 \\%.\n"
    table = booktabs(Table(title=HOSTILE, head=("a", "b"), rows=[(HOSTILE, "1 & 2")], note="n"), "x-1")
    check_latex(table)
    assert r"\begin{tabular}{lr}" in table or r"\begin{tabular}{rr}" in table
    assert escape_latex("--set a---b \u2013") == r"-{}-set a-{}-{}-b \textendash{}"


def test_no_row_begins_with_what_the_command_before_it_takes():
    firsts = ("[1]", "*", "\u6f22", "a")
    table = booktabs(Table(title="t", head=("[m]", "b"), rows=[(first, "[2]") for first in firsts]), "x")
    rows = [line for line in table.splitlines() if line.endswith(r" \\")]
    assert [row.partition(" ")[0] for row in rows] == ["{}[m]", "{}[1]", "{}*", "{}[U+6F22]", "a"]


def test_no_letter_is_a_command_and_all_are_such_as_any_latex_knows():
    kept = set()
    for letter in map(chr, [*range(32, 0x250), 0x3B1, 0x2229, 0x6F22, 0x202E, 0xD800, 0x1F697]):
        shown = escape_latex(letter)
        assert (
            shown == letter
            or shown == ""
            or re.fullmatch(r"\\[\\{}$&#%_,-]|\\[a-z]+\{\}|\$[^$]+\$|\[U\+[0-9A-F]{4,6}\]|[~?`'-]+", shown)
        ), (letter, shown)
        kept |= {shown} if shown == letter else set()
    assert not kept & set('\\{}$&#%_~^<>|"')
    assert {"a", "\u00e9", "\u0142", "\u0151"} <= kept
    assert max(kept) < "\u0180"
    assert escape_latex("\u6f22_1") == r"[U+6F22]\_1"


def test_a_table_fits_a_column_or_the_page_and_ends_with_it():
    rows = [(f"key{number}", "short") for number in range(120)]
    parts = booktabs(Table(title="t", head=("a", "b"), rows=rows), "x").split(r"\end{table}")
    assert [len(re.findall(r"^key", part, re.MULTILINE)) for part in parts] == [52, 52, 16, 0]
    assert "".join(parts).count(r"\label{tab:x}") == 1
    assert parts[1].count("t, continued") == 1
    narrow = booktabs(Table(title="t", head=("a", "b"), rows=[("k", "word " * 40)]), "x")
    assert r"\begin{table}" in narrow
    assert r"\begin{tabular}{l>{\raggedright\arraybackslash}p{" in narrow
    wide = booktabs(Table(title="t", head=tuple("abcdefgh"), rows=[tuple(["f" * 40] * 8)]), "x")
    assert r"\begin{table*}" in wide
    widths = [float(width) for width in re.findall(r"p\{(\d+)pt\}", wide)]
    assert len(widths) == 8
    assert sum(widths) + 8 * 8 <= 7.16 * 72.27
    assert wide.count(r"\allowbreak") == 8 * 4


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no TeX here")
def test_the_document_of_hostile_names_compiles(make_run, tmp_path):
    name = f"{HOSTILE}\u6f22\u00e9"
    run = make_run(tmp_path / "run", vehicles=40, rounds=3, vehicle_name="v_{} & #%~^$\\\u6f22\u00e9", note=name,
                   rsus=((name, 0.0, 0.0, 200.0), ("b", 900.0, 0.0, 200.0)))  # fmt: skip
    to = tmp_path / "paper"
    vnetsim.export(run, to=to)
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "document"]
    for command in (latex, ["bibtex", "document"], latex, latex):
        done = subprocess.run(command, cwd=to, capture_output=True, text=True, errors="replace", check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    log = (to / "document.log").read_text(errors="replace")
    assert "Overfull" not in log
    assert "undefined" not in log


@pytest.mark.parametrize(
    ("run", "options", "said"),
    [
        ("run", (), "say what to write"),
        ("mine", ("--to", "new"), "it has no manifest.json"),
        ("run", ("--to", "mine/file.xml"), "something already"),
        ("run", ("--to", "mine"), "something already"),
        ("run", ("--tensorboard", "mine/file.xml"), "something already"),
        ("run", ("--fcd", "mine/file.xml"), "is there already"),
        ("run", ("--fcd", "new.csv"), "expected a file that ends in .xml"),
    ],
)
def test_faults_are_one_line_and_what_is_there_stays(run, options, said, make_run, tmp_path, capsys, monkeypatch):
    if "--tensorboard" in options:
        pytest.importorskip("tensorboardX")
    make_run(tmp_path / "run", vehicles=5, rounds=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file.xml").write_text("mine")
    monkeypatch.chdir(tmp_path)
    before = names_in(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["export", run, *options])
    assert stopped.value.code == 2
    assert said in (line := capsys.readouterr().err)
    assert line.count("\n") == 1
    assert (names_in(tmp_path), Path("mine/file.xml").read_text()) == (before, "mine")


def test_settings_in_which_arms_or_conditions_differ():
    texts = {
        "a, near": "rounds = 2\nseed = 1\n[round]\nquorum = 2",
        "a, far": "rounds = 2\nseed = 2\n[round]\nquorum = 5",
    }
    runs: Any = {label: SimpleNamespace(experiment_text=text) for label, text in texts.items()}
    shared, differ = settings_tables(runs)
    assert shared.rows == [("rounds", "2")]
    assert differ.head == ("setting", "a, near", "a, far")
    assert differ.rows == [("round.quorum", "2", "5")], "seeds differ in every comparison"
