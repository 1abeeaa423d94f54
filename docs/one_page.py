"""The documentation as one page, which the wheel carries and ``vnetsim docs`` opens; without what code generates."""

from __future__ import annotations

import base64
import html
import mimetypes
import posixpath
import re
from pathlib import Path

from markdown import Markdown
from markdown.extensions.toc import slugify

_MOST_BYTES = 60_000
"""A larger picture stays out of the page that the wheel carries."""
_FRONT = ("docs/index.md", "docs/tutorial.md", "docs/glossary.md")
_STYLE = """
body { margin: 0; font: 15px/1.55 system-ui, sans-serif; color: #24292f; background: #fff; }
nav { position: fixed; inset: 0 auto 0 0; width: 250px; overflow-y: auto; padding: 16px; font-size: 13.5px; }
nav a { display: block; padding: 2px 0; text-decoration: none; }
main { margin-left: 282px; max-width: 820px; padding: 20px; }
article { border-top: 3px solid #0072b2; margin-top: 56px; padding-top: 8px; }
article:first-child { margin-top: 0; }
a { color: #0072b2; }
pre, code { font: 12.5px/1.45 ui-monospace, monospace; }
nav, pre, code { background: #f6f8fa; }
pre { padding: 10px; overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; display: block; overflow-x: auto; }
th, td { border-top: 1px solid #d9dce0; padding: 4px 12px 4px 0; text-align: left; vertical-align: top; }
img { max-width: 100%; }
@media (max-width: 900px) { nav { position: static; width: auto; } main { margin: 0; } }
@media (prefers-color-scheme: dark) {
  body { color: #e2e6ea; background: #181c21; }
  nav, pre, code { background: #232930; }
  a { color: #6cb8f0; }
  img { background: #fff; }
}
"""


def pages(root: Path) -> list[str]:
    """Return the Markdown files that the wheel's documentation shows, in its order."""
    parts = ("docs/gallery", "docs/how-to", "docs/explanation", "scenarios/plugins", "scenarios/studies")
    others = [path.relative_to(root).as_posix() for part in parts for path in sorted((root / part).glob("*.md"))]
    return [*_FRONT[:2], *others, "scenarios/README.md", "scenarios/own_learner.md", _FRONT[2], "SECURITY.md"]


def documentation(root: Path) -> str:
    """Return the documentation, without what is generated from the code, as one page that fetches nothing."""
    shown = {source: re.sub(r"[^a-z0-9]+", "-", source.removesuffix(".md").lower()) for source in pages(root)}
    links, articles = [], []
    for source, key in shown.items():
        text = (root / source).read_text(encoding="utf-8")
        title = re.search(r"^# (.*)$", text, re.MULTILINE)
        links.append(f'<a href="#{key}">{html.escape((title[1] if title else source).replace("`", ""))}</a>')
        own = {"slugify": lambda words, between, key=key: f"{key}--{slugify(words, between)}"}
        made = Markdown(
            extensions=["tables", "fenced_code", "toc", "def_list", "attr_list"], extension_configs={"toc": own}
        )
        articles.append(f'<article id="{key}">{made.convert(_convert_links(root, text, source, shown))}</article>')
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f'img-src data:"><title>vnetsim</title><style>{_STYLE}</style></head><body><nav>{"".join(links)}</nav>'
        f"<main>{''.join(articles)}</main></body></html>"
    )


def _convert_links(root: Path, text: str, source: str, shown: dict[str, str]) -> str:
    """Return a page with links to the parts of the one page; of what is not in it the words stay."""

    def link(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target)) if target else source
        if picture:
            content = (root / path).read_bytes()
            kind = mimetypes.guess_type(path)[0] or "image/webp"
            return (
                f"![{words}](data:{kind};base64,{base64.b64encode(content).decode()})"
                if len(content) < _MOST_BYTES
                else ""
            )
        if path in shown:
            return f"[{words}](#{shown[path]}{anchor.replace('#', '--')})"
        return words

    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)", link, text)
