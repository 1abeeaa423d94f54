"""The workflow on the hosting platform: the Pythons that the metadata promise, targets that exist, one job for all."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [".pre-commit-config.yaml", *(str(path.relative_to(ROOT)) for path in ROOT.glob(".github/**/*.yml"))]


def read(name: str) -> dict[Any, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[Any, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def test_the_workflow_tries_every_python_of_the_classifiers_and_one_job_depends_on_all():
    jobs = read(".github/workflows/ci.yml")["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [match[1] for text in project["classifiers"] if (match := re.search(r":: (3\.\d+)$", text))]
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == promised
    assert {*jobs["required"]["needs"], "required"} == set(jobs)
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = re.findall(r"make (\w+)", str(jobs))
    assert called
    assert all(re.search(rf"^{target}:", text, re.MULTILINE) for target in called)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_hosting_platform_is_yaml(name):
    assert read(name)
