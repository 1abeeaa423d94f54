"""vnetsim's packages ``analysis`` and ``learners``, whatever else of these names Python would find first.

Users have folders of such names: beside a script or a notebook, or where they call the program. Python looks there
first.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from vnetsim.errors import InputError

_PACKAGES_FOLDER = Path(__file__).resolve().parents[1]


def claim(*names: str) -> None:
    """Load vnetsim's own packages of these names, unless that was done; their modules are then found in them.

    Raises:
        InputError: another module of the name is loaded already, so that ours cannot be.
    """
    for name in names:
        loaded = sys.modules.get(name)
        if loaded is None:
            _load(name)
        elif not _is_own(loaded, name):
            raise InputError(
                f"'{name}' is {_place(loaded)} in this process, and vnetsim has a package of that name, which cannot "
                f"be loaded beside it: rename that one, or use vnetsim in a process that does not import it."
            )


def _load(name: str) -> None:
    spec = PathFinder.find_spec(name, [str(_PACKAGES_FOLDER)])
    if spec is None or spec.loader is None:
        raise InputError(f"{_PACKAGES_FOLDER / name}: missing from this installation; install vnetsim again.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _is_own(module: ModuleType, name: str) -> bool:
    return _PACKAGES_FOLDER / name in [Path(folder).resolve() for folder in getattr(module, "__path__", ())]


def _place(module: ModuleType) -> str:
    folders = list(getattr(module, "__path__", ()))
    return str(folders[0] if folders else getattr(module, "__file__", None) or module)
