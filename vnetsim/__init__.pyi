from vnetsim.api import (
    Experiment,
    InputError,
    Run,
    RunError,
    Study,
    Traffic,
    compare,
    export,
    load,
    mobility,
    resume,
    run,
)

__version__: str

__all__ = [
    "Experiment",
    "InputError",
    "Run",
    "RunError",
    "Study",
    "Traffic",
    "__version__",
    "compare",
    "export",
    "load",
    "mobility",
    "resume",
    "run",
]
