"""Methods of a learner's class that nobody would ever call, such as a hook that its base does not have."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

_PLAIN = {"abc", "builtins", "typing"}
_METHODS = (staticmethod, classmethod, property, functools.cached_property)


def ignored_method(learner: type) -> str:
    """Return in one line which method of a learner its base would ignore, empty when there is none.

    A learner that builds on one from elsewhere is asked for what that one calls. A public method that no base knows
    and that its own code never mentions is a hook of another learner or a misspelt one: the run would go on without it.
    Learners that stand alone, and shipped ones, are not looked into.

    Args:
        learner: a class; its own code is what lies in its file or package.
    """
    package = _package(learner)
    own = [cls for cls in learner.__mro__ if _package(cls) == package]
    bases = [cls for cls in learner.__mro__ if cls not in own and _package(cls) not in _PLAIN]
    built_on = [cls for cls in bases if hasattr(cls, "create") and cls.__module__ != "vnetsim.learning"]
    if not built_on:
        return ""
    for cls in own:
        for name, member in vars(cls).items():
            new = _is_method(member) and not name.startswith("_") and not any(name in vars(base) for base in bases)
            if new and not _mentioned(name, own):
                hooks = ", ".join(_hooks(built_on)) or "nothing"
                return (
                    f"its method '{name}' would never be called: {built_on[0].__name__} has none of that name. "
                    f"What it calls and a subclass can override: {hooks}."
                )
    return ""


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _is_method(member: object) -> bool:
    return inspect.isroutine(member) or isinstance(member, _METHODS)


def _hooks(bases: list[type]) -> list[str]:
    """Return the public methods of a learner that are not final, by name."""
    names = {name for base in bases for name in vars(base) if not name.startswith("_")}
    found = {name: inspect.getattr_static(bases[0], name) for name in names}
    return sorted(name for name, member in found.items() if _is_method(member) and not _is_final(member))


def _is_final(member: object) -> bool:
    return bool(getattr(member, "__final__", False) or getattr(getattr(member, "__func__", None), "__final__", False))


def _mentioned(name: str, classes: list[type]) -> bool:
    """Return whether the modules of some classes mention a name outside functions that are called so."""
    for module in {cls.__module__ for cls in classes}:
        path = getattr(sys.modules.get(module), "__file__", None)
        if path is None or name in _mentions(ast.parse(Path(path).read_bytes()), name):
            return True
    return False


def _mentions(node: ast.AST, name: str) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
        return
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _mentions(child, name)
