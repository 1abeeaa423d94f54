"""Learners by name or by file: entry points of group ``vnetsim.learners``, and ``path/to/file.py:Class``."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from vnetsim.device import keep_freed_memory
from vnetsim.errors import InputError, RunError, unknown_name
from vnetsim.learning import Learner

GROUP = "vnetsim.learners"

PARTS = (*Learner.__annotations__, *(name for name in vars(Learner) if not name.startswith("_")))
"""Names of everything that a learner must have."""


@dataclass(frozen=True, kw_only=True)
class About:
    """A learner's optional class attributes; see ``vnetsim.learning.Learner``.

    Args:
        payload: what a visit moves over the radio links, in words.
        equations: the equations it implements, one a line.
        defaults: experiment settings that suit it, by dotted key.
    """

    payload: str = ""
    equations: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


def about(learner: type[Learner]) -> About:
    """Return the optional class attributes of a learner, those it lacks empty."""
    given = {
        field.name: getattr(learner, field.name) for field in dataclasses.fields(About) if hasattr(learner, field.name)
    }
    return About(**given)


def learner_names() -> list[str]:
    """Return the names of all installed learners, sorted. Imports none of them."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def learner_file(learner: str) -> Path | None:
    """Return the file of a learner given as ``path/to/file.py:Class``, None for an installed one."""
    path, colon, _ = learner.rpartition(":")
    return Path(path) if colon else None


def short_name(learner: str) -> str:
    """Return a learner's name without its folder: what stands after the colon of ``path/to/file.py:Class``."""
    return learner.rpartition(":")[2]


def at_folder(learner: str, folder: Path) -> str:
    """Return ``learner`` with the path of its file, if it has one, taken from ``folder``."""
    path = learner_file(learner)
    return learner if path is None else f"{(folder / path).resolve()}:{short_name(learner)}"


def find_learner(name: str) -> type[Learner]:
    """Return the learner class called ``name``: an entry point, or a class of a file as ``path/to/file.py:Class``.

    A file stands alone: its folder is not searched for what it imports, so its bytes and the installed packages are
    all that a run depends on.

    Raises:
        InputError: no such learner; the message lists those there are. Or the file cannot be read or imported, or its
            class lacks a part of ``vnetsim.learning.Learner``.
        RunError: it is installed but cannot be imported, or lacks a part.
    """
    # On a machine that does other work, threads that spin for milliseconds while they wait for each other make a run
    # several times slower; spinning for microseconds costs nothing. Read once, when torch loads GNU OpenMP.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    keep_freed_memory()

    path = learner_file(name)
    if path is not None:
        found = _class_of_file(path, short_name(name))
        fault = _fault(found)
        if fault:
            raise InputError(f"{name}: {fault}")
        return found  # type: ignore[no-any-return]
    matches = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not matches and name.endswith(".py"):
        raise InputError(f"learner '{name}': name the class as well, as {name}:CLASS.")
    if not matches:
        raise unknown_name("learner", name, learner_names())
    try:
        found = matches[0].load()
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"learner '{name}' ({matches[0].value}) cannot be imported: {reason}.") from error
    fault = _fault(found)
    if fault:
        raise RunError(f"learner '{name}' ({matches[0].value}): {fault}")
    return found  # type: ignore[no-any-return]


def _class_of_file(path: Path, name: str) -> Any:
    module = _module_of_file(path)
    if not hasattr(module, name):
        of_it = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        learners = [key for key in of_it if hasattr(getattr(module, key), "create")]
        raise unknown_name("learner class", name, learners or of_it, where=str(path))
    return getattr(module, name)


def _module_of_file(path: Path) -> ModuleType:
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    path = path.resolve()
    # the same bytes are run once; a file that was changed in between is another module
    name = f"vnetsim_learner_{hashlib.sha256(bytes(path) + source).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their annotations up there
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what the user asks
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(_import_fault(path, error)) from error
    return module


def _import_fault(path: Path, error: BaseException) -> str:
    """Return one line: the file, the line of it that was at fault, and why."""
    if isinstance(error, SyntaxError):
        return f"{error.filename or path}:{error.lineno or 1}: {error.msg}."
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    reason = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    beside = missing is not None and (path.parent / f"{missing.partition('.')[0]}.py").exists()
    hint = " A learner's file stands alone: what it imports must be installed." if beside else ""
    return f"{path}:{lines[-1] if lines else 1}: {reason}.{hint}"


def _fault(found: Any) -> str:
    """Return what is wrong with a learner's class, empty when it has every part of the protocol."""
    if not isinstance(found, type):
        return "not a class; a learner is one that follows vnetsim.learning.Learner."
    inherited = vars(Learner)  # a subclass of the protocol itself has its empty methods
    abstract: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
    missing = [
        part
        for part in PARTS
        if part in abstract or inspect.getattr_static(found, part, None) in (None, inherited.get(part))
    ]
    missing += sorted(abstract.difference(PARTS))
    if missing:
        return f"it lacks {', '.join(missing)}, which a learner must have; see vnetsim.learning.Learner."
    settings = found.Settings  # type: ignore[attr-defined]
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings)):
        return "its Settings must be a dataclass, frozen and keyword-only."
    for part in ("name", "task", "paper", "payload"):
        if not isinstance(getattr(found, part, ""), str):
            return f"its {part} must be a string."
    if not isinstance(getattr(found, "defaults", {}), Mapping):
        return "its defaults must be a mapping from dotted keys to values."
    return ""
