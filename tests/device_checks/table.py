"""What was found, as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from device_checks.rows import Part

MET = {True: "yes", False: "no", None: ""}


def markdown(content: Mapping[str, Any], parts: Sequence[Part]) -> str:
    """Return the page of what a record holds."""
    setting, machine = content.get("setting", {}), content.get("machine", {})
    lines = ["# Check of the learners on a device", ""]
    if setting.get("tiny"):
        lines += ["**A rehearsal with tiny sizes: no speed below means anything.**", ""]
    if machine:
        lines += [", ".join(f"{name} {value}" for name, value in machine.items() if value), ""]
    lines += ["| work | reference | target | seen | met |", "|---|---|---|---|---|"]
    for part in parts:
        kept = content["parts"].get(part.name, {"status": "not run", "rows": [], "why": "no command came to it yet"})
        lines += [
            "| "
            + " | ".join(_cell(row[key]) for key in ("work", "reference", "target", "seen"))
            + f" | {MET[row['met']]} |"
            for row in kept["rows"]
        ]
        if kept["status"] != "finished":
            lines.append(f"| {part.title} ({part.name}) | | | {kept['status']}: {_cell(kept['why'])} | |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
