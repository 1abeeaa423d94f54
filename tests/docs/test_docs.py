"""The documentation: generated pages say what the code says, links lead somewhere, the README is short and true."""

import ast
import dataclasses
import importlib
import inspect
import re
import runpy
import shlex
import tomllib
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vnetsim
from vnetsim.api.model import TrainedModel
from vnetsim.api.results import Page
from vnetsim.cli.commands import app
from vnetsim.cli.lookup import kinds
from vnetsim.experiment import Experiment
from vnetsim.learning.aggregation import AGGREGATIONS
from vnetsim.learning.codecs import CODECS
from vnetsim.learning.conduct import CONDUCTS
from vnetsim.setting_texts import setting_texts
from vnetsim.simulation.pace import PACES
from vnetsim.simulation.selection import SELECTIONS
from vnetsim.storage.rows import OUTCOMES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "scenarios").rglob("*.md")])
GENERATED = {
    f"docs/reference/{name}.md"
    for name in ("cli", "settings", "learners", "plugins", "tables", "benchmark", "defaults", "results")
}


GENERATE = SimpleNamespace(**runpy.run_path(str(DOCS / "generate.py"), run_name="generate"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
of_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def plain(markdown: str) -> str:
    """Return Markdown without escapes, in one line."""
    return " ".join(re.sub(r"\\([*<|\[\]_])", r"\1", markdown).split())


@of_pages
def test_every_row_belongs_to_a_table_with_a_head(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    tables = re.findall(r"(?:^ *\|.*\n)+", text, re.MULTILINE)
    assert [table for table in tables if not re.match(r".*\n *\|[-| :]+\|\n", table)] == []


def test_the_page_of_settings_has_every_setting_as_the_command_line_tells_it():
    page = GENERATE.settings_page()
    words = plain(page)
    for text in setting_texts(Experiment):
        assert page.count(f'<span id="{text.key}"></span>`{text.key}`') == 1, text.key
        assert text.meaning in words, text.key
        assert text.bounds in words, text.key
        assert text.meaning.endswith("."), text.key
        assert not text.meaning.startswith("see "), f"{text.key} is told elsewhere"
        assert "<" not in text.values, f"{text.key} is of a kind without words: {text.values}"
    assert set(re.findall(r"\(#([\w.]+)\)", page)) <= set(re.findall(r'id="([\w.]+)"', page)), "most wanted"


def test_the_page_of_python_has_every_protocol_and_what_methods_return():
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    shown: set[tuple[str, str]] = set()
    for module, options in re.findall(r"^::: (\S+)\n {4}options: (.*)$", page, re.MULTILINE):
        members = re.search(r"members: \[(.*?)\]", options)
        names = members[1].split(", ") if members else vars(importlib.import_module(module))
        assert set(names) <= set(vars(importlib.import_module(module))), module
        shown |= {(module, name) for name in names}
    returned = (Page, TrainedModel)
    for kind in (*(kind.protocol for kind in kinds()), *returned):
        assert any((kind.__module__, kind.__name__) == one for one in shown), kind
        if kind in returned:
            assert f"`{kind.__name__}`" in page


def test_the_page_of_python_names_every_field():
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    shown = [getattr(vnetsim, name) for name in vnetsim.__all__]
    for module, names in re.findall(r"^::: (\S+)\n {4}options: .*members: \[(.*?)\]", page, re.MULTILINE):
        shown += [getattr(importlib.import_module(module), name) for name in names.split(", ")]
    # settings have a page of their own
    classes = [one for one in shown if dataclasses.is_dataclass(one) and not issubclass(one, Experiment)]
    assert len(classes) > 30
    for kind in classes:
        said = " ".join(one.__doc__ for one in kind.__mro__ if one in classes)
        for field in dataclasses.fields(kind):
            named = re.search(rf"^ *{field.name}:|`{field.name}`", said, re.MULTILINE)
            assert named or field.name.startswith("_"), f"{kind.__name__}.{field.name}"


@pytest.mark.parametrize(
    ("page", "head", "names"),
    [
        ("rounds", "pace", PACES.names()),
        ("rounds", "policy", SELECTIONS.names()),
        ("rounds", "rule", AGGREGATIONS.names()),
        ("rounds", "outcome", OUTCOMES),
        ("payload", "codec", CODECS.names()),
        ("hostile", "conduct", {*CONDUCTS.names()} - {"honest"}),
    ],
)
def test_a_table_has_every_name(page, head, names):
    _, _, table = (DOCS / "explanation" / f"{page}.md").read_text(encoding="utf-8").partition(f"\n| {head} |")
    rows = re.findall(r"^\| (`[^|]*`) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert sorted(re.findall(r"`([\w-]+)`", " ".join(rows))) == sorted(names)


@of_pages
def test_links_lead_to_files_and_headings_that_are_there(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        name = path.relative_to(ROOT).as_posix()
        assert path.exists() or name in GENERATED, f"{page.name}: {target}"
        if anchor and path.is_file():
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", words).lower().replace(" ", "-") for words in headings}, anchor


FOLDERS = ("analysis", "docs", "learners", "scenarios", "tests", "vnetsim")
NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`")
"""A path from the root of the repository in backticks; a name in capitals in it is a placeholder."""


KEY = re.compile(r"`((?:traffic|gaussian|link|compute|round|exchange|silos|data|camera|blur|schedule)\.\w+)")


@of_pages
def test_files_and_settings_that_pages_name_exist(page):
    if page.name == "CHANGELOG.md":
        return  # of other versions too
    text = page.read_text(encoding="utf-8")
    named = {path for path in NAMED.findall(text) if not re.search(r"\b[A-Z]+\b", path)}
    assert not {path for path in named if not (ROOT / path).exists()}
    known = {setting.key for setting in setting_texts(Experiment)}
    assert set(KEY.findall(text)) - {"gaussian.toml", "schedule.csv"} <= known


def test_the_readme_is_short_with_two_pictures():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 600
    before, links = text.split("## Where to go on")
    assert before.count("\n") <= 100
    sizes = {"docs/assets/handover.webp": 600_000, "docs/assets/report.webp": 100_000}
    assert re.findall(r"!\[.*?\]\((.*?)\)", text) == list(sizes)
    assert all((ROOT / picture).stat().st_size < size for picture, size in sizes.items())
    assert "docs/tutorial.md" in links


def test_the_python_of_the_readme_is_that_of_the_package():
    """Every call has arguments that are there, and every name that is read of its result is one."""
    (block,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    results = {"run": vnetsim.Run, "study": vnetsim.Study}
    read = set()
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in results:
            assert hasattr(results[node.value.id], node.attr), node.attr
            read.add(node.attr)
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).startswith("vnetsim."):
            name = name.removeprefix("vnetsim.")
            assert name in vnetsim.__all__
            parameters = inspect.signature(getattr(vnetsim, name)).parameters
            assert {keyword.arg for keyword in node.keywords} <= set(parameters), name
    assert {"participations", "metrics", "model", "report", "differences"} <= read


def commands_of(text: str) -> list[list[str]]:
    """Return the ``vnetsim`` commands in indented and fenced blocks, continued lines joined."""
    joined = re.sub(r" \\\n\s+", " ", text)
    fenced = "\n".join(re.findall(r"^```sh\n(.*?)^```$", joined, re.DOTALL | re.MULTILINE))
    found = re.findall(r"^    (vnetsim [a-z].*)$", joined, re.MULTILINE) + re.findall(
        r"^(vnetsim .*)$", fenced, re.MULTILINE
    )
    return [shlex.split(line, comments=True) for line in found]


@of_pages
def test_commands_and_options_of_the_pages_exist(page):
    known = {name for name in app.resolved_commands() if not name.startswith("-")}
    for _, command, *rest in commands_of(page.read_text(encoding="utf-8")):
        assert command in known, (page.name, command)
        options = {name for argument in app[command].assemble_argument_collection() for name in argument.names}
        assert {word for word in rest if word.startswith("--")} <= options, (page.name, command, rest)


def test_contributing_has_the_layers_of_the_import_contracts():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## The arrows")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \| ", section, re.MULTILINE)
    contracts = {
        contract["containers"][0]: [set(layer.split(" | ")) for layer in contract["layers"]]
        for contract in PROJECT["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and "containers" in contract
    }
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == contracts["vnetsim"]
    methods_and_their_bases = set().union(*contracts["learners"][:2])
    others = set().union(*contracts["learners"], *contracts["analysis"]) - methods_and_their_bases
    assert {name for name in others if f"`{name}`" not in section} == set()


def test_what_the_dockerfile_names_is_there():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    needed = {*re.findall(r"(?m)^COPY (\S+) /src", text), *re.findall(r"/src/([\w.]+)", text)}
    assert needed == {".", "constraints.txt"}
    assert all((ROOT / path).exists() and path not in ignored for path in (*needed, "docs", "scenarios", "README.md"))
    project = PROJECT["project"]
    assert set(re.findall(r"/src\[(\w+)]", text)) <= set(project["optional-dependencies"])
    assert re.findall(r'ENTRYPOINT \["(.*?)"]', text) == list(project["scripts"])


def test_the_page_that_the_wheel_carries_is_small_fetches_nothing_and_its_links_lead_somewhere():
    page = runpy.run_path(str(DOCS / "one_page.py"))["documentation"](ROOT)
    assert len(zlib.compress(page.encode())) < 300_000
    assert not re.findall(r"(?:src|href)=\"(?!#|https?:|data:)", page)
    assert not re.findall(r"src=\"https?:", page)
    ids = re.findall(r'<[^>]* id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    for source in ("docs/tutorial.md", "docs/how-to/compare.md", "docs/explanation/link.md", "docs/glossary.md"):
        assert (ROOT / source).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") in page


NEUTRAL = {"none", "`none`", "`false`", "`auto`", "0", "1"}
"""What a setting that the page leaves out may be: off, or taken from elsewhere."""
WORDS = {
    "learner", "learning.batchnorm", "learning.linear_probe", "learning.precision", "learning.trim",
    "radio.environment", "topology.peers", "topology.range_m", "traffic.length_unit", "traffic.repeat",
    "traffic.speed_unit", "traffic.time_unit", "traffic.vehicle_types",
}  # fmt: skip
"""Left out too: they only say what a name or unit means."""


def test_the_page_of_defaults_has_those_of_the_default_run_with_certainty_and_source():
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", GENERATE.defaults_page(), re.MULTILINE)
    told = {key: value for key, value, *_ in rows}
    assert len(told) == len(rows) > 60
    assert told["radio.carrier_hz"] == "5.9e9"
    assert told["round.quorum"] == "3"
    assert told["silos.by"] == "`arrival`"
    values = GENERATE.default_values()
    assert {values[key] for key in values.keys() - told - WORDS} <= NEUTRAL
    assert {certainty for _, _, certainty, _ in rows} <= set(GENERATE.CERTAINTIES)


def test_the_table_of_changes_has_the_conditions_of_its_study():
    folder = ROOT / "docs" / "explanation"
    rows = re.findall(r"^\| (.+?) \| [\d,]+ ± \d+ \|", (folder / "defaults.md").read_text(), re.MULTILINE)
    study = tomllib.loads((folder / "defaults.toml").read_text())
    assert [row.replace("`", "") for row in rows] == [condition["name"] for condition in study["conditions"]]


FILES = [".pre-commit-config.yaml", *(str(path.relative_to(ROOT)) for path in ROOT.glob(".github/**/*.yml"))]


def read(name: str) -> Any:
    return pytest.importorskip("yaml").safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_workflow_tries_every_python_of_the_classifiers_and_one_job_depends_on_all():
    jobs = read(".github/workflows/ci.yml")["jobs"]
    promised = [match[1] for text in PROJECT["project"]["classifiers"] if (match := re.search(r":: (3\.\d+)$", text))]
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == promised
    assert {*jobs["required"]["needs"], "required"} == set(jobs)
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = re.findall(r"make (\w+)", str(jobs))
    assert called
    assert all(re.search(rf"^{target}:", text, re.MULTILINE) for target in called)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_hosting_platform_is_yaml(name):
    assert read(name)
