"""vnetsim's packages ``analysis`` and ``learners``, whatever else of these names Python would find first.

Users have folders of such names: beside a script or a notebook, or where they call the program. Python looks there
first. ``vnetsim.learners`` and ``vnetsim.analysis`` are the same packages under names that nobody else has.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_PACKAGES_FOLDER = Path(__file__).resolve().parents[1]


def claim(*names: str) -> None:
    """Load vnetsim's own packages of these names, unless that was done; their modules are then found in them.

    Raises:
        ImportError: another module of the name is loaded already, so that ours cannot be.
    """
    for name in names:
        loaded = sys.modules.get(name)
        if loaded is None:
            _load(name)
        elif not _is_own(loaded, name):
            raise ImportError(
                f"'{name}' is {_place(loaded)} in this process, and vnetsim has a package of that name, which cannot "
                f"be loaded beside it: rename that one, or use vnetsim in a process that does not import it."
            )


def stand_for(name: str) -> None:
    """Let ``vnetsim.NAME`` and all below it be vnetsim's own package of that name, the same modules.

    Raises:
        ImportError: see ``claim``.
    """
    claim(name)
    sys.modules[f"vnetsim.{name}"] = sys.modules[name]
    sys.meta_path.insert(0, _SameModules(name))  # before who would find the files, and load them a second time


class _SameModules(MetaPathFinder, Loader):
    """Finds ``vnetsim.NAME.x`` as the module ``NAME.x``."""

    def __init__(self, name: str) -> None:
        self._prefix = f"vnetsim.{name}."

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(self._prefix) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.removeprefix("vnetsim."))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # loaded already; the import system has given it the spec of the other name
        module.__spec__ = module.__spec__ and module.__spec__.loader_state


def _load(name: str) -> None:
    seen = PathFinder.find_spec(name)
    if seen is not None and _PACKAGES_FOLDER / name not in [Path(one).resolve() for one in _folders(seen)]:
        warnings.warn(
            f"'import {name}' gives vnetsim's package in this process, and hides {_folders(seen)[0]}: rename that one, "
            f"or import it before vnetsim is used. vnetsim's is also vnetsim.{name}.",
            stacklevel=4,
        )
    spec = PathFinder.find_spec(name, [str(_PACKAGES_FOLDER)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{_PACKAGES_FOLDER / name}: missing from this installation; install vnetsim again.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _is_own(module: ModuleType, name: str) -> bool:
    return _PACKAGES_FOLDER / name in [Path(folder).resolve() for folder in getattr(module, "__path__", ())]


def _folders(spec: ModuleSpec) -> list[str]:
    return list(spec.submodule_search_locations or ()) or [str(spec.origin)]


def _place(module: ModuleType) -> str:
    folders = list(getattr(module, "__path__", ()))
    return str(folders[0] if folders else getattr(module, "__file__", None) or module)
