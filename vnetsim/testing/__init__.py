"""Checks plug-ins of any kind against their protocol and its laws: ``check_plugin`` in a test, or ``vnetsim check``."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vnetsim.api.settings import KINDS
from vnetsim.errors import InputError, VnetsimError, unknown_name
from vnetsim.experiment import Experiment
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import Kind, code_file, object_of_file, place_in_file, reason_of
from vnetsim.scenario.kinds import TRAFFIC_SOURCES
from vnetsim.scenario.plugins import ResolvedPlugin, resolve_plugin
from vnetsim.scenario.settings_file import read_experiment
from vnetsim.testing.calls import expect

__all__ = ["Conformance", "check_plugin", "conformance"]

_KINDS = (*KINDS, TRAFFIC_SOURCES)
_SMALL: dict[str, Any] = {
    "rounds": 4, "device": "cpu", "cost.model": "trained", "silos.count": 6, "data.train_images": 60,
    "data.test_images": 24, "traffic.end_s": 300.0, "round.quorum": 2, "round.invited": 3, "round.max_staleness": 1,
}  # fmt: skip
"""Settings of the run in which a plug-in is checked."""
_SMALL_LEARNING = {"steps": 1, "batch": 4, "bank": 30, "linear_probe": "never", "local_test": 12}
"""Settings of its learner, as far as it has them."""


@dataclass
class Conformance:
    """What was found about a plug-in.

    Args:
        kind: its kind in words, such as ``"pace"``.
        name: its name.
        kept: the laws that it keeps, one line each.
        faults: for each law that it breaks, one line that says what was called, what came back, and what to do.
    """

    kind: str
    name: str
    kept: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @contextmanager
    def law(self, text: str, *, needed: bool = False) -> Iterator[None]:
        """Add ``text`` to ``kept`` or, if the block raises, a line to ``faults``; if ``needed``, also end the check."""
        try:
            yield
        except _Stop:
            raise
        except (Exception, SystemExit) as error:
            about = f"{self.kind} '{self.name}'"
            own = isinstance(error, VnetsimError)
            fault = str(error) if own else f"{text}: {reason_of(error)}.{place_in_file(error)}"
            self.faults.append(fault if about in fault else f"{about}: {fault}")
            if needed:
                raise _Stop from error
        else:
            self.kept.append(text)


class _Stop(Exception):  # noqa: N818 - no error
    """A law is broken that the next ones rely on."""


def check_plugin(plugin: str | type, settings: Mapping[str, Any] | None = None) -> list[str]:
    """Check a plug-in against its protocol and its laws, in a run of seconds.

    For tests of plug-ins::

        from vnetsim.testing import check_plugin

        def test_my_pace():
            check_plugin(MyPace)

    Args:
        plugin: its class, ``path/to/file.py:Class``, or the name of an installed plug-in.
        settings: settings that it needs, by dotted key, such as ``{"source.file": "counts.csv"}``.

    Returns:
        the laws that were checked, one line each.

    Raises:
        InputError: it breaks laws, with one line for each; or it is not a plug-in, or a setting is wrong.
    """
    found = conformance(plugin, settings)
    if found.faults:
        raise InputError("\n".join(found.faults))
    return found.kept


def conformance(plugin: str | type, settings: Mapping[str, Any] | None = None) -> Conformance:
    """Return which laws a plug-in keeps and which it breaks; the arguments are those of ``check_plugin``.

    Raises:
        InputError: it is not a plug-in, or a setting is wrong.
    """
    from vnetsim.testing import simulation_laws, training_laws  # noqa: PLC0415 - they import all that a run needs

    kind, found = _find_class(plugin)
    experiment, resolved = _make_experiment(kind, found, settings or {})
    report = Conformance(kind=kind.name, name=str(getattr(found, "name", found.__name__)))
    try:
        with report.law("name and source or paper say in words what it is"):
            for part in (one for one in ("name", "source", "task", "paper") if one in kind.parts):
                expect(bool(getattr(found, part)), f"its {part} is empty; give it one.")
        with report.law("its settings survive pickling, as worker processes need"):
            copy = pickle.loads(pickle.dumps(resolved.settings))  # noqa: S301 - pickled just now
            expect(copy == resolved.settings, "pickle returned other settings; leave eq of the dataclass as it is.")
        {**simulation_laws.CHECKS, **training_laws.CHECKS}[kind.name](report, experiment, resolved)
    except _Stop:
        pass
    return report


def _find_class(plugin: str | type) -> tuple[Kind, type[Any]]:
    """Return a plug-in's kind and class; InputError if it is unknown, is no class, or fits no kind."""
    if isinstance(plugin, str) and code_file(plugin) is None:
        for kind in _KINDS:
            if plugin in kind.names():
                return kind, kind.find(plugin)
        if plugin.endswith(".py"):
            raise InputError(f"{plugin}: name the class as well, as {plugin}:CLASS.")
        raise unknown_name("plug-in", plugin, {name for kind in _KINDS for name in kind.names()})
    found: Any = object_of_file(plugin, "plug-in") if isinstance(plugin, str) else plugin
    where = plugin if isinstance(plugin, str) else getattr(plugin, "__name__", repr(plugin))
    if not isinstance(found, type):
        raise InputError(f"{where}: not a class; name the class of a plug-in.")
    nearest = max(_KINDS, key=lambda kind: sum(hasattr(found, part) for part in kind.parts) / len(kind.parts))
    if fault := nearest.fault_of(found):
        raise InputError(f"{where}: no plug-in; the nearest kind is {nearest.name}, and {fault}")
    return nearest, found


def _make_experiment(kind: Kind, found: type[Any], settings: Mapping[str, Any]) -> tuple[Experiment, ResolvedPlugin]:
    """Return a small experiment with a plug-in and the user's ``settings``, and the plug-in with its own settings."""
    name = kind.name_of(found)
    scenario, named = (name, {}) if kind is TRAFFIC_SOURCES else ("gaussian", {kind.key: name})
    if kind.table in ("aggregation", "codec", "conduct") or "classes" in getattr(found, "targets", ""):
        named["learner"] = "fedavg-classification"
    elif kind.key == "data.name":
        named["learner"] = "fedavg-steering"
    learner = LEARNERS.find(named.get("learner", settings.get("learner", Experiment.learner)))
    small = _SMALL | {f"learning.{key}": one for key, one in _SMALL_LEARNING.items() if hasattr(learner.Settings, key)}
    if learner.task == "steering":
        small["data.image_px"] = 20
    if kind is TRAFFIC_SOURCES and "end_s" not in (getattr(found, "traffic_settings", None) or ()):
        del small["traffic.end_s"]
    given = (*small.items(), *named.items(), *settings.items())
    experiment, _ = read_experiment(scenario, [(tuple(key.split(".")), value) for key, value in given])
    values = experiment.data.own if kind.table == "data" else getattr(experiment, kind.table)
    return experiment, resolve_plugin(kind, values, name, found=found)
