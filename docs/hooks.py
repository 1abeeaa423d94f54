"""What MkDocs is given besides ``docs/``: generated pages, pages that lie elsewhere in the repository, plug-in pages.

A page that lies elsewhere stays there, where the source tree and ``vnetsim init`` have it. Its links are turned to the
site's pages where they have one, else to a copy of the file.
"""

from __future__ import annotations

import importlib.util
import logging
import posixpath
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LOG = logging.getLogger("mkdocs.hooks.vnetsim")

ELSEWHERE = {
    "explanation/studies.md": "scenarios/studies/README.md",
    "explanation/security.md": "SECURITY.md",
    "explanation/contributing.md": "CONTRIBUTING.md",
    "reference/changes.md": "CHANGELOG.md",
    "reference/scenarios.md": "scenarios/README.md",
    "how-to/plug-ins/learner.md": "scenarios/own_learner.md",
}
"""Page of the site, and the file that it shows."""

GENERATED = {
    "reference/cli.md": "cli_page",
    "reference/settings.md": "settings_page",
    "reference/learners.md": "learners_page",
    "reference/plugins.md": "plugins_page",
    "reference/tables.md": "tables_page",
    "reference/benchmark.md": "benchmark_page",
    "reference/results.md": "results_page",
    "reference/defaults.md": "defaults_page",
}
"""Page of the site, and the function of ``generate.py`` that returns it."""

PLUG_INS = "how-to/plug-ins"
STUDIES = "explanation/studies"


def elsewhere() -> dict[str, str]:
    """Return the pages that lie elsewhere: those named above, and every page beside plug-ins and studies."""
    found = dict(ELSEWHERE)
    for folder, pages in (("plugins", PLUG_INS), ("studies", STUDIES)):
        for path in sorted((ROOT / "scenarios" / folder).glob("*.md")):
            source = path.relative_to(ROOT).as_posix()
            if source not in ELSEWHERE.values():
                found[f"{pages}/{path.name}"] = source
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages that there are of plug-ins and of studies."""
    own = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / PLUG_INS).glob("*.md")]
    pages = sorted({*own, *(page for page in elsewhere() if page.startswith(PLUG_INS))})
    how_to = next(part["How-to"] for part in config.nav or [] if "How-to" in part)
    next(part for part in how_to if "Plug-ins" in part)["Plug-ins"] = pages
    explanation = next(part["Explanation"] for part in config.nav or [] if "Explanation" in part)
    one_by_one = next(part for part in explanation if "Studies, one by one" in part)
    one_by_one["Studies, one by one"] = [page for page in elsewhere() if page.startswith(f"{STUDIES}/")]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and those that lie elsewhere."""
    generate = _generate()
    copied: set[str] = set()
    for here in files.documentation_pages():
        _convert_links(here.content_string, here.src_uri, f"docs/{here.src_uri}", copied)
    for page, name in GENERATED.items():
        text = _convert_links(getattr(generate, name)(), page, f"docs/{page}", copied)
        files.append(File.generated(config, page, content=text))
    for page, source in elsewhere().items():
        text = _convert_links((ROOT / source).read_text(encoding="utf-8"), page, source, copied)
        files.append(File.generated(config, page, content=text))
    for source in sorted(copied):
        files.append(File.generated(config, f"files/{source}", abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links out of ``docs/`` to the pages that show those files."""
    source = page.file.src_uri
    lies_here = source not in GENERATED and source not in elsewhere()
    return _convert_links(markdown, source, f"docs/{source}", set()) if lies_here else markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Warn, which ``--strict`` makes an error, of anything that a reader's browser would fetch from elsewhere."""
    links = "link rel=.(?:stylesheet|preload|preconnect|icon)"
    fetched = re.compile(rf"<(?:script|img|iframe|source|{links})[^>]*https?:[^>]*>")
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        for found in fetched.findall(path.read_text(encoding="utf-8")):
            LOG.warning("%s fetches from elsewhere: %s", path.name, found)


def _generate() -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location("vnetsim_docs_generate", Path(__file__).with_name("generate.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _convert_links(text: str, page: str, source: str, copied: set[str]) -> str:
    """Return a page's text with its relative links as the site needs them; ``copied`` gains the files it needs."""
    shown = {lies: seen for seen, lies in elsewhere().items()}

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in shown:
            to = shown[path]
        elif path.startswith("docs/"):
            to = path.removeprefix("docs/")
        elif (ROOT / path).is_file():
            copied.add(path)
            to = f"files/{path}"
        else:
            return match[0]  # MkDocs warns of it
        return f"[{words}]({posixpath.relpath(to, posixpath.dirname(page) or '.')}{anchor})"

    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)", link, text)
