"""The selection policy, pace and radio model of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, HandoverSettings
from vnetsim.learning import Cost
from vnetsim.plugins import Kind
from vnetsim.radio import RADIO_MODELS, RadioModel
from vnetsim.scenario.plugins import ResolvedPlugin, resolve_plugin
from vnetsim.simulation.pace import PACES, Pace
from vnetsim.simulation.selection import SELECTIONS, SelectionPolicy


@dataclass(frozen=True, kw_only=True)
class SimulationPlugins:
    """Selection policy, pace and radio model of one run; ``chosen`` has the resolved plug-ins, by settings table."""

    selection: SelectionPolicy
    pace: Pace
    radio: RadioModel
    chosen: Mapping[str, ResolvedPlugin]

    @property
    def by_kind(self) -> tuple[tuple[Kind, Any], ...]:
        """Selection policy, pace and radio model, as pairs of kind and plug-in."""
        return (SELECTIONS, self.selection), (PACES, self.pace), (RADIO_MODELS, self.radio)

    def check_learner(self, name: str, cost: Cost, handover: HandoverSettings) -> None:
        """Raise InputError if the learner called ``name`` does not work with the pace or the handover policy."""
        if not self.pace.exchange and cost.exchange:
            raise InputError(
                f"pace.name: '{self.pace.name}' has no place for the exchange of {name}, where "
                "vehicles wait until round.quorum of them are there; leave it at 'quorum'."
            )
        if hasattr(self.pace, "share") and not cost.steps:
            raise InputError(
                f"pace.name: '{self.pace.name}' ends the training after some of the local steps, and that of "
                f"{name} cannot be divided (its cost names no steps); take another pace or learner."
            )
        if handover.policy != "drop" and cost.exchange:
            raise InputError(
                f"handover.policy: vehicles of {name} exchange with each other where one RSU covers them, and end "
                "there; leave it at 'drop'."
            )


def simulation_plugins(experiment: Experiment) -> SimulationPlugins:
    """Return selection policy, pace and radio model that an experiment names, with their settings.

    InputError for an unknown name, wrong settings, or plug-ins that do not work together with the experiment. RunError
    if an installed plug-in is faulty.
    """
    selection = resolve_plugin(SELECTIONS, experiment.selection)
    pace = resolve_plugin(PACES, experiment.pace)
    radio = resolve_plugin(RADIO_MODELS, experiment.radio)
    if experiment.schedule.learner and getattr(selection.found, "uses_losses", False):
        what = "updates" if getattr(selection.found, "figure", "") else "training losses"
        raise InputError(
            f"selection.name: {selection.found.name} chooses by {what}, which differ between learners, so no "
            "schedule can be equal for all; leave out schedule.learner (--equal-schedule)."
        )
    if experiment.handover.policy == "multi" and experiment.topology.kind == "single":
        raise InputError(
            "handover.policy: with 'multi' a vehicle takes the mean of several RSUs' models, and with topology.kind = "
            "'single' all have one; take 'forward', or topology.kind = 'per-rsu', 'hierarchical' or 'peers'."
        )
    if experiment.association.rule == "strongest" and not hasattr(radio.settings, "received_dbm"):
        raise InputError(
            f"association.rule: 'strongest' needs the received power, which the radio model '{radio.found.name}' does "
            "not report; take 'nearest', or radio.name = 'tr37885'."
        )
    return SimulationPlugins(
        selection=selection.settings,
        pace=pace.settings,
        radio=radio.settings,
        chosen={"selection": selection, "pace": pace, "radio": radio},
    )
