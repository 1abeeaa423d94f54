"""vnetsim: a vehicular-network co-simulator tied to SUMO.

The names in ``__all__`` are the Python API, described in ``vnetsim.api``. Plug-ins may also use what the pages on
plug-ins name. All else in ``vnetsim``, ``learners`` and ``analysis`` is private and may change with any version.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Return a name of the API, or ``__all__``, and load the API at first use; AttributeError for other names."""
    if name == "__all__" or not name.startswith("_"):
        import importlib  # noqa: PLC0415 - see vnetsim.__main__

        api = importlib.import_module("vnetsim.api")
        if name == "__all__":
            return [*api.__all__, "__version__"]
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module 'vnetsim' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the names of the API and of this module."""
    return sorted({*globals(), *__getattr__("__all__")})  # type: ignore[misc]
