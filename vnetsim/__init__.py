"""vnetsim: a vehicular-network co-simulator tied to SUMO.

The names of ``__all__`` are its Python API, described in ``vnetsim.api``. Every other module, class and function of
``vnetsim``, ``learners`` and ``analysis`` is private, whatever its name, and may change with any version; what a
plug-in builds on is named by the pages on plug-ins.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load the API when it is first asked for: the command line begins here and must not wait for it."""
    if name == "__all__" or not name.startswith("_"):
        import importlib  # noqa: PLC0415 - see vnetsim.__main__

        api = importlib.import_module("vnetsim.api")
        if name == "__all__":
            return [*api.__all__, "__version__"]
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module 'vnetsim' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})  # type: ignore[misc]
