"""What a learner's class overrides in vain: a hook that its base does not have, or what its base lets nobody change."""

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
    """Return in one line what a learner's class overrides without effect, empty when there is nothing.

    A learner that builds on one from elsewhere is asked for what that one calls, its hooks. Found are, in its own code,

    - a member of the name of one that the base declares ``typing.final``;
    - what is no method in the place of a method;
    - a method that a base in front of it has too (``class X(Base, Mine)``);
    - a public method that no base knows and that its own code never mentions: a hook of another learner, or a misspelt
      one; likewise a hook's name behind an underscore.

    The run would go on without it. Learners that stand alone, and shipped ones, are not looked into.

    Args:
        learner: a class; its own code is what lies in its file or package.
    """
    package = _package(learner)
    own = [cls for cls in learner.__mro__ if _package(cls) == package]
    bases = [cls for cls in learner.__mro__ if cls not in own and _package(cls) not in _PLAIN]
    # the protocol has no code that calls anything
    built_on = [cls for cls in bases if hasattr(cls, "create") and not cls.__module__.startswith("vnetsim.learning")]
    if not built_on:
        return ""
    hooks, base = _hooks(built_on), built_on[0].__name__
    for cls in own:
        for name, member in vars(cls).items():
            fault = _fault(name, member, learner, own, bases, hooks)
            if fault:
                told = ", ".join(hooks) or "nothing"
                return f"{fault.format(base=base)} What {base} calls and a subclass can override: {told}."
    return ""


def _fault(name: str, member: object, learner: type, own: list[type], bases: list[type], hooks: list[str]) -> str:
    """Return what is wrong with a member of an own class, empty when nothing is."""
    theirs = [vars(cls)[name] for cls in bases if name in vars(cls)]
    if any(map(_is_final, theirs)):
        return f"its '{name}' overrides what is final in {{base}}, the same for all that build on it; remove it."
    if any(map(_is_method, theirs)) and not name.startswith("__"):
        if not callable(member) and not isinstance(member, staticmethod | classmethod):
            return f"its '{name}' is no method, and {{base}} calls it as one."
        if next(cls for cls in learner.__mro__ if name in vars(cls)) not in own:
            return f"its method '{name}' would never be called: {{base}} stands before its class in the list of bases."
    public = name.removeprefix("_")
    new = _is_method(member) and not theirs and (public == name or public in hooks) and not name.startswith("__")
    if new and not _mentioned(name, own):
        meant = "" if public == name else f" Did you mean '{public}'?"
        return f"its method '{name}' would never be called: {{base}} has none of that name.{meant}"
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
