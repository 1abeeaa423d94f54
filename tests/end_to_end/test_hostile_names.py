"""Vehicle ids that are markup, paths or quotes: data everywhere, never anything else."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest

from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]
NAMES = (
    "<script>alert(1)</script>",
    "../../x",
    "a/b",
    "/etc/x",
    "\"quoted\" 'twice'",
    "&amp; & &lt;",
    "{{ 7*7 }}{% raw %}",
    "$\\frac{1}{0}$",
    "größe 车辆 \U0001f697",
    "</svg><img src=x onerror=alert(1)>",
)


class Scripts(HTMLParser):
    """Collects what a browser would run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if (
            tag in {"script", "img", "iframe", "object", "embed", "link"}
            and dict(attrs).get("src", "data:")[:5] != "data:"
        ):
            self.found.append(tag)
        if tag == "script":
            self.found.append(tag)
        self.found += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def check(run: Path, names: set[str]) -> None:
    assert set(RunDirectory(run).read("windows")["vehicle_id"]) == names
    page = (run / "report.html").read_text()
    scripts = Scripts()
    scripts.feed(page)
    assert scripts.found == ["script"] * 2, "what is played, and the page's own script"
    assert page.count("<script") == 2
    assert "onerror=alert(1)>" not in page


def recording(path: Path) -> Path:
    lines = ["<fcd-export>"]
    for t in range(30):
        lines.append(f'<timestep time="{t}">')
        for k, name in enumerate(NAMES):
            lines.append(
                f'<vehicle id={quoteattr(name)} x="{20 * t - 200 - 3 * k}" y="{3 * k}" speed="20" type="&lt;b&gt;"/>'
            )
        lines.append("</timestep>")
    path.write_text("\n".join([*lines, "</fcd-export>"]), encoding="utf-8")
    return path


@pytest.mark.usefixtures("drawn")
def test_in_a_recording(cli: Cli, toy: type, tmp_path: Path) -> None:
    trace = recording(tmp_path / "<script>alert(2)<b>.xml")
    run = tmp_path / "deep" / "down" / "run"
    before = files_below(tmp_path)
    options = ("--rsu", "0,0:100", "--learner", toy.name, "--rounds", "2", "--set", "round.quorum=2")
    done = cli("run", trace, *options, "--out", run)
    assert (done.status, done.err) == (0, "")
    assert all(path.is_relative_to(run) for path in files_below(tmp_path) - before)
    ended = set(RunDirectory(run).read("windows")["vehicle_id"])
    assert "<script>alert(1)</script>" in ended
    check(run, ended)
    assert "&lt;script" in (run / "report.html").read_text(), "names are shown, as text"
    # and all of them, to the end of the recording
    replay = cli("mobility", trace, "--rsu", "0,0:100", "--out", tmp_path / "traffic")
    assert replay.status == 0
    check(tmp_path / "traffic", set(NAMES))
