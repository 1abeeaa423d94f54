"""Imports vnetsim's own packages ``analysis`` and ``learners`` even if the user has folders of these names.

Python looks first in the folder of the script or notebook, or in the working directory. ``vnetsim.learners`` and
``vnetsim.analysis`` are the same packages under names that always mean ours.
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
    """Import vnetsim's own packages of these names; warn if one hides another package that scripts would import.

    ImportError if another module of the name is already loaded, or the package is missing from the installation.
    """
    for name in names:
        loaded = sys.modules.get(name)
        if loaded is None:
            _load(name)
        elif not _is_own(loaded, name):
            place = next(iter(getattr(loaded, "__path__", ())), None) or getattr(loaded, "__file__", None) or loaded
            raise ImportError(
                f"'{name}' is {place} in this process, and vnetsim has a package of that name, which cannot "
                f"be loaded beside it: rename that one, or use vnetsim in a process that does not import it."
            )


def stand_for(name: str) -> None:
    """Load vnetsim's package ``NAME``, make ``vnetsim.NAME.x`` the same module as ``NAME.x``; errors as ``claim``."""
    claim(name)
    sys.modules[f"vnetsim.{name}"] = sys.modules[name]
    sys.meta_path.insert(0, _SameModules(name))  # first, or another finder would load the files a second time


class _SameModules(MetaPathFinder, Loader):
    """Imports ``vnetsim.NAME.x`` as the module ``NAME.x``."""

    def __init__(self, name: str) -> None:
        self._prefix = f"vnetsim.{name}."

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return a spec for a submodule of ``vnetsim.NAME``; None for any other module."""
        return ModuleSpec(fullname, self) if fullname.startswith(self._prefix) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module ``NAME.x`` and return it; its own spec is saved for ``exec_module``."""
        module = importlib.import_module(spec.name.removeprefix("vnetsim."))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, without running its code, which ran in ``create_module``."""
        # already loaded; the import system replaced its spec by that of the other name
        module.__spec__ = module.__spec__ and module.__spec__.loader_state


def _load(name: str) -> None:
    """Import vnetsim's own package of this name; warn if Python would find another. ImportError if it is missing."""
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
    """Return whether a loaded module is vnetsim's package ``name``, and not another one of that name."""
    return _PACKAGES_FOLDER / name in [Path(folder).resolve() for folder in getattr(module, "__path__", ())]


def _folders(spec: ModuleSpec) -> list[str]:
    """Return the folders of a package, or a list with the file of a module."""
    return list(spec.submodule_search_locations or ()) or [str(spec.origin)]
