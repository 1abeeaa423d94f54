"""The plug-ins of a learner, data set, encoder, aggregation rule: their settings, checked, and what the record says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.learning import Learner
from vnetsim.learning.aggregation import AGGREGATIONS, SYNC
from vnetsim.learning.kinds import DATA_SETS, ENCODERS
from vnetsim.learning.registry import about
from vnetsim.plugins import Kind, is_class, short_name
from vnetsim.scenario.settings_file import structure, to_plain


def learner_plugins(experiment: Experiment, learner: type[Learner]) -> dict[str, Any]:
    """Return settings of data set, encoder and aggregation rule, by their tables' names; None for the defaults.

    The name of the rule is there too, as ``rule``: all that a ``LearnerContext`` says of plug-ins.

    Args:
        experiment: with the learner's defaults spelt out in ``learning``.
        learner: the run's.

    Raises:
        InputError: a file or its class is at fault, the settings are wrong, or the learner takes no such rule.
        RunError: an installed one is at fault.
    """
    values = {DATA_SETS.table: experiment.dataset, ENCODERS.table: experiment.encoder}
    chosen = {kind.table: _settings(kind, experiment, values[kind.table]) for kind in (DATA_SETS, ENCODERS)}
    rule = {"rule": experiment.round.aggregation, AGGREGATIONS.table: aggregation_settings(experiment, learner)}
    return {**chosen, **rule}


def aggregation_settings(experiment: Experiment, learner: type[Learner]) -> Any:
    """Return the settings of the aggregation rule; None for those of ``sync``.

    Raises:
        InputError: there is no such rule, its settings are wrong, or the learner folds uploads in its own way.
        RunError: an installed one is at fault.
    """
    name, values = experiment.round.aggregation, experiment.aggregation
    if name == SYNC and not values:
        return None
    if not about(learner).takes_aggregation_rule:
        raise InputError(
            f"{AGGREGATIONS.key}: '{short_name(name)}' is not for the learner {learner.name}, which makes one model of "
            f"its uploads in a way of its own; leave it at '{SYNC}', without a table {AGGREGATIONS.table}."
        )
    return _structured(AGGREGATIONS, name, values)


def plugins_record(experiment: Experiment, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return name, source and settings of those that are not built in, by kind; ``settings`` as above."""
    record: dict[str, dict[str, Any]] = {}
    for kind in (DATA_SETS, ENCODERS, AGGREGATIONS):
        made = settings[kind.table]
        if made is not None:
            found: Any = kind.find(experiment.plugins()[kind.key])
            record[kind.table] = {"name": found.name, "source": found.source, "settings": to_plain(made)}
    return record


def _settings(kind: Kind, experiment: Experiment, values: Mapping[str, Any]) -> Any:
    name = experiment.plugins()[kind.key]
    if not values and (not name or (not is_class(name) and name not in kind.names())):
        return None  # none at all, or what the learner itself knows or refuses
    if not name:
        raise InputError(f"{kind.table}: the learner has no setting {kind.key}, whose settings these would be.")
    return _structured(kind, name, values)


def _structured(kind: Kind, name: str, values: Mapping[str, Any]) -> Any:
    try:
        found: Any = kind.find(name)
    except InputError as error:
        raise InputError(f"{kind.key}: {error}") from error
    return structure(values, found.Settings, "", (kind.table,))
