"""Plug-ins of several kinds, found by an entry point or as a class of a file, ``path.py:Class``.

A kind is an entry-point group and the protocol that its classes must follow. All kinds are found, checked, listed and
recorded by this module.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import marshal
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar, get_type_hints

from vnetsim.errors import InputError, RunError, VnetsimError, one_line, unknown_name
from vnetsim.errors.paths import resolve_path
from vnetsim.own_packages import claim

F = TypeVar("F", bound=Callable[..., Any])

_ABSENT = object()

FILE_MODULE = "vnetsim_plugin_"
"""Prefix of the module names of users' files."""

_GIVEN: dict[tuple[str, str], type] = {}
"""Classes of this process that were passed as objects, by kind and name."""

_FAULTLESS: set[tuple[str, type]] = set()
"""Kinds and classes without a fault, by ``Kind.fault_of``: a study looks up the same plug-ins for every cell."""


@functools.cache
def entry_points(*, group: str) -> EntryPoints:
    """Return the entry points of a group, installed or of a checkout; cached, because reading them takes 10 ms."""
    return metadata.entry_points(group=group) or _read_checkout_entry_points(group)


def _read_checkout_entry_points(group: str) -> EntryPoints:
    """Return a group's entry points in the checkout's ``pyproject.toml``; none if vnetsim is installed."""
    file = Path(__file__).parents[2] / "pyproject.toml"
    try:
        metadata.distribution("vnetsim")
    except metadata.PackageNotFoundError:
        groups = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["entry-points"] if file.is_file() else {}
        own = groups.get(group, {}).items()
        return EntryPoints(EntryPoint(name=name, value=value, group=group) for name, value in own)
    return EntryPoints()


def optional(method: F) -> F:
    """Mark a protocol's method as one that a plug-in may leave out, and return it."""
    method.optional = True  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of plug-in. Plug-ins are frozen keyword-only dataclasses of their settings; a learner has ``Settings``."""

    name: str  # word for a plug-in of this kind in messages, ``"learner"``
    group: str  # entry-point group of the installed ones, ``"vnetsim.learners"``
    protocol: type  # what a class must follow; it must have every annotation and method that is not ``optional``
    key: str  # setting of an experiment that names a plug-in, ``"learner"``
    table: str  # table of an experiment with the plug-in's settings, ``"learning"``
    default: str = ""  # name used if the user gives none
    built_in: Mapping[str, str] = field(default_factory=dict)  # ``module:Class`` by name; need not be installed
    # vnetsim's own package with the built-in ones, which no user's folder may hide; see ``vnetsim.own_packages``
    package: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the attributes and methods that a class must have."""
        return (
            *inspect.get_annotations(self.protocol),
            *(name for name, part in vars(self.protocol).items() if name[0] != "_" and not hasattr(part, "optional")),
        )

    def settings_of(self, found: type[Any]) -> type[Any]:
        """Return the dataclass whose fields are a plug-in's settings: a learner's ``Settings``, else its class."""
        return found.Settings if "Settings" in self.parts else found

    @property
    def place(self) -> str:
        """Module and name of the protocol, for messages."""
        return f"{self.protocol.__module__}.{self.protocol.__name__}"

    def entries(self) -> list[EntryPoint]:
        """Return the entry points of all built-in and installed plug-ins, sorted by name, without importing them."""
        own = [EntryPoint(name=name, value=value, group=self.group) for name, value in self.built_in.items()]
        others = [entry for entry in entry_points(group=self.group) if entry.name not in self.built_in]
        return sorted([*own, *others], key=lambda entry: entry.name)

    def names(self) -> list[str]:
        """Return the names of all built-in and installed plug-ins, sorted, without importing them."""
        return sorted({entry.name for entry in self.entries()})

    def name_of(self, given: type) -> str:
        """Return the name by which ``find`` returns a class of this process, such as one defined in a notebook.

        An installed plug-in has its own name, a class of a loaded plug-in file its path. Any other class is registered
        in this process; its name has a digest of its code, so a changed class is another plug-in. InputError if that
        class does not follow the protocol.
        """
        value = f"{given.__module__}:{given.__qualname__}"
        installed = next((entry.name for entry in self.entries() if entry.value == value), None)
        if installed is not None:
            return installed
        if given.__module__.startswith(FILE_MODULE):
            return f"{sys.modules[given.__module__].__file__}:{given.__name__}"
        if fault := self.fault_of(given):
            raise InputError(f"{given.__name__}: {fault}")
        name = f"{given.__name__}@{_hash_code(given)}"
        _GIVEN[self.name, name] = given
        return name

    def find(self, name: str) -> type[Any]:
        """Return the class called ``name``: an entry point, or a class of a file as ``path/to/file.py:Class``.

        A file is run when it is first found. It cannot import its neighbours, so a run depends only on its bytes and on
        installed packages. InputError if there is no such plug-in, the file cannot be read or imported, or its class
        does not follow the protocol; RunError if that is so of an installed plug-in.
        """
        if (self.name, name) in _GIVEN:
            return _GIVEN[self.name, name]
        if self.package:
            claim(self.package)
        where = name
        wrong: type[VnetsimError] = InputError
        if code_file(name) is not None:
            found = object_of_file(name, self.name)
        else:
            entry = next((entry for entry in self.entries() if entry.name == name), None)
            if entry is None and name.endswith(".py"):
                raise InputError(f"{self.name} '{name}': name the class as well, as {name}:CLASS.")
            if entry is None and "@" in name:
                raise InputError(
                    f"{self.name} '{name}' is a class that a script or notebook gave, and only that process has it. "
                    "Put it in a file, and name it as path/to/file.py:CLASS."
                )
            if entry is None:
                raise unknown_name(self.name, name, self.names())
            where, wrong = f"{self.name} '{name}' ({entry.value})", RunError
            try:
                found = entry.load()
            except (Exception, SystemExit) as error:
                raise RunError(f"{where} cannot be imported: {one_line(error)}.") from error
        if fault := self.fault_of(found):
            raise wrong(f"{where}: {fault}")
        return found  # type: ignore[no-any-return]

    def fault_of(self, found: Any) -> str:
        """Return in words how a class, or any object, does not follow the protocol; empty if it does."""
        if isinstance(found, type) and (self.name, found) in _FAULTLESS:
            return ""
        if not (fault := self._find_fault(found)):
            _FAULTLESS.add((self.name, found))
        return fault

    def _find_fault(self, found: Any) -> str:
        """Return the same as ``fault_of``, without the cache of faultless classes."""
        article = "an" if self.name[0] in "aeiou" else "a"
        if not isinstance(found, type):
            return f"not a class; {article} {self.name} is one that follows {self.place}."
        inherited = vars(self.protocol)  # a subclass of the protocol itself has its empty methods
        abstract: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
        missing = [
            part
            for part in self.parts
            if part in abstract
            or inspect.getattr_static(found, part, _ABSENT) in (_ABSENT, inherited.get(part, _ABSENT))
        ]
        missing += sorted(abstract.difference(self.parts))
        if missing:
            return f"it lacks {', '.join(missing)}, which {article} {self.name} must have; see {self.place}."
        if fault := self._fault_of_settings(self.settings_of(found)):
            return fault
        for part, hint in inspect.get_annotations(self.protocol).items():
            if hint == "ClassVar[str]" and not isinstance(getattr(found, part), str):
                return f"its {part} must be a string."
        if not isinstance(getattr(found, "defaults", {}), Mapping):
            return "its defaults must be a mapping from dotted keys to values."
        return _fault_of_parameters(found, self.protocol)

    def _fault_of_settings(self, settings: Any) -> str:
        """Return in words what is wrong with the class of a plug-in's settings; empty for nothing."""
        own = isinstance(settings, type) and dataclasses.is_dataclass(settings) and "__init__" in vars(settings)
        if not (own and settings.__dataclass_params__.frozen):
            what = "its Settings must be a dataclass" if "Settings" in self.parts else "it must be a dataclass"
            return f"{what}, frozen and keyword-only, whose fields are its settings."
        try:
            get_type_hints(settings)
        except Exception as error:  # noqa: BLE001 - annotations are code of the user's
            return f"the type of one of its settings cannot be read: {reason_of(error)}."
        return ""


def _fault_of_parameters(found: type, protocol: type) -> str:
    """Return, in words, the first method of a class that cannot be called as the protocol says; empty for none."""
    for part, declared in vars(protocol).items():
        wanted = getattr(declared, "__func__", declared)
        own = inspect.getattr_static(found, part, None)
        function = getattr(own, "__func__", own)
        if part.startswith("_") or not (inspect.isfunction(wanted) and inspect.isfunction(function)):
            continue
        asked = list(inspect.signature(wanted).parameters.values())
        needed = [one for one in asked if one.default is one.empty]
        by_name = {one.name: None for one in needed if one.kind is one.KEYWORD_ONLY}
        count = sum(one.kind is not one.KEYWORD_ONLY for one in needed) - isinstance(own, staticmethod)
        try:
            inspect.signature(function).bind(*[None] * count, **by_name)
        except TypeError as error:
            parameters = ", ".join(str(one).partition(":")[0] for one in asked)
            return f"its method {part} cannot be called with ({parameters}): {error}."
    return ""


def is_given(name: str) -> bool:
    """Return whether ``Kind.name_of`` registered a class of this process, such as a notebook's, by this name."""
    return any(name == given for _, given in _GIVEN)


def is_class(name: str) -> bool:
    """Return whether a name is that of a class in a file or of this process (``is_given``), not of an installed one."""
    return code_file(name) is not None or is_given(name)


def _hash_code(given: type) -> str:
    """Return eight hexadecimal digits that change with a class's name, methods and plain attributes."""
    parts = [given.__name__]
    for name, value in sorted(vars(given).items()):
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        plain = isinstance(value, bool | int | float | str | tuple)  # its repr is the same in every process
        try:
            parts.append(inspect.getsource(code) if code is not None else f"{name}={value!r:.200}" * plain)
        except (OSError, TypeError):  # typed at a prompt
            parts.append(f"{name}={marshal.dumps(code, 2).hex()}")
    return hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:8]


def code_file(name: str) -> Path | None:
    """Return the file of a plug-in given as ``path/to/file.py:Class``; None for a name without colon."""
    path, colon, _ = name.rpartition(":")
    return Path(path) if colon else None


def short_name(name: str) -> str:
    """Return a plug-in's name without its file: the class of ``path/to/file.py:Class``; other names unchanged."""
    return name.rpartition(":")[2]


def without_folder(name: str) -> str:
    """Return ``file.py:Class`` for ``path/to/file.py:Class``; any other name unchanged."""
    path = code_file(name)
    return name if path is None else f"{path.name}:{short_name(name)}"


def at_folder(name: str, folder: Path) -> str:
    """Return ``path.py:Class`` with its path absolute, a relative one joined to ``folder``; other names unchanged."""
    path = code_file(name)
    return name if path is None else f"{resolve_path(folder / path)}:{short_name(name)}"


def object_of_file(name: str, kind: str) -> Any:
    """Run the file of ``path/to/file.py:NAME``, and return its NAME; InputError if that is missing or the run fails."""
    path, name = Path(name.rpartition(":")[0]), short_name(name)
    module = module_of_file(path, kind)
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise unknown_name(f"{kind} class", name, own, where=str(path))
    return getattr(module, name)


def module_of_file(path: Path, kind: str) -> ModuleType:
    """Run a user's file and return it as a module; the same bytes at a path run only once.

    InputError if the file cannot be read, or raises when it is run. ``kind`` is what it contains, for messages.
    """
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    path = path.resolve()
    name = f"{FILE_MODULE}{hashlib.sha256(bytes(path) + source).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look up annotations there
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what the user asks
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(_import_fault(path, error, kind)) from error
    return module


def _import_fault(path: Path, error: BaseException, kind: str) -> str:
    """Return why a user's file failed as one line: path, line number, reason; a hint if it imports a neighbour."""
    if isinstance(error, SyntaxError):
        return f"{error.filename or path}:{error.lineno or 1}: {error.msg}."
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    beside = missing is not None and (path.parent / f"{missing.partition('.')[0]}.py").exists()
    hint = f" A {kind}'s file stands alone: what it imports must be installed." if beside else ""
    return f"{path}:{lines[-1] if lines else 1}: {reason_of(error)}.{hint}"


def reason_of(error: BaseException) -> str:
    """Return class and message of an error as one line without a full stop; only the class if the message is empty."""
    name, text = type(error).__name__, one_line(error).removesuffix(".")
    return name if text == name else f"{name}: {text}"


@contextmanager
def plugin_errors(kind: str, name: str, when: str) -> Iterator[None]:
    """Turn an exception of the block, where a plug-in runs, into a RunError of one line; VnetsimError passes unchanged.

    The line says which plug-in (``kind`` and ``name``) failed, ``when``, why, and at which line of the user's file.
    """
    try:
        yield
    except VnetsimError:
        raise
    except (Exception, SystemExit) as error:
        raise RunError(f"{kind} '{name}' failed {when}: {reason_of(error)}.{place_in_file(error)}") from error


def place_in_file(error: BaseException) -> str:
    """Return ``" See line N of FILE."`` for the line of a user's file that an error came from; empty if none."""
    frames = traceback.walk_tb(error.__traceback__)
    own = [(frame, line) for frame, line in frames if is_users(frame.f_globals.get("__name__", ""))]
    return f" See line {own[-1][1]} of {own[-1][0].f_code.co_filename}." if own else ""


def place_of(method: Any) -> str:
    """Return ``" See line N of FILE."`` for the first line of a user's method; empty for any other object."""
    method = inspect.unwrap(getattr(method, "__func__", method))
    code = getattr(method, "__code__", None)
    if not isinstance(code, CodeType) or not is_users(getattr(method, "__module__", "")):
        return ""
    return f" See line {code.co_firstlineno} of {code.co_filename}."


def is_users(module: str) -> bool:
    """Return whether a module's name is that of a user's plug-in file, or of the calling script or notebook."""
    return module.startswith(FILE_MODULE) or module == "__main__"
