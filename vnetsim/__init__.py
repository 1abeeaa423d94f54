"""vnetsim: a vehicular-network co-simulator tied to SUMO.

The names of ``__all__`` are its Python API, described in ``vnetsim.api``. Every other module, class and function of
``vnetsim``, ``learners`` and ``analysis`` is private, whatever its name, and may change with any version; what a
plug-in builds on is named by the pages on plug-ins.
"""

__version__ = "0.1.0"

__all__ = [
    "BenchCheck",
    "BenchRow",
    "Experiment",
    "InputError",
    "Run",
    "RunError",
    "Study",
    "Traffic",
    "__version__",
    "bench",
    "bench_check",
    "bench_table",
    "compare",
    "export",
    "load",
    "mobility",
    "resume",
    "run",
]


def __getattr__(name: str) -> object:
    """Load the API when it is first asked for: the command line begins here and must not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module 'vnetsim' has no attribute '{name}'")
    import importlib  # noqa: PLC0415 - see vnetsim.__main__

    return getattr(importlib.import_module("vnetsim.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
