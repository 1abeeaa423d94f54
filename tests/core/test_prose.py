"""The linter of prose."""

import importlib.util
from pathlib import Path
from typing import Any

LINTER = Path(__file__).parents[1] / "prose.py"

SAMPLE = '''
class _Private:
    def method(self):
        """One line.

        And another.
        """

def public():
    """Two
    lines.
    """
    # a comment, of
    # which one phrase is banned
'''


def linter() -> Any:
    spec: Any = importlib.util.spec_from_file_location("prose", LINTER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_faults_are_found_with_their_lines(tmp_path):
    file = tmp_path / "sample.py"
    file.write_text(SAMPLE, encoding="utf-8")
    assert linter().faults(file) == [
        (3, "method: private, so one docstring line at most"),
        (13, '"of which": split the sentence'),
    ]
