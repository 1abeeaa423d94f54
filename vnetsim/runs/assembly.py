"""Finds all plug-ins that an experiment names, and checks their settings, once for each run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError
from vnetsim.errors.paths import FILES, PLUGIN_FILES, resolve_path, with_paths
from vnetsim.experiment import Experiment
from vnetsim.experiment.traffic import COMPUTERS
from vnetsim.learning import AGGREGATOR, Cost, Exchange, Learner, LearnerContext
from vnetsim.learning.aggregation import AGGREGATIONS, SYNC
from vnetsim.learning.codecs import CODECS, FLOAT32, with_codec_bytes
from vnetsim.learning.conduct import CONDUCTS, HONEST, is_hostile, refuse_hostile_without_conduct
from vnetsim.learning.drives import RecordedTraffic
from vnetsim.learning.faults import cost_of
from vnetsim.learning.global_generators import seeded
from vnetsim.learning.kinds import DATA_SETS, ENCODERS, LEARNERS, require_several_models
from vnetsim.plugins import Kind, at_folder, code_file, is_class, plugin_errors, short_name
from vnetsim.plugins.results import errors_of_plugins, require_type
from vnetsim.random_streams import Streams
from vnetsim.runs.manifest import relative
from vnetsim.scenario.kinds import TRAFFIC_SOURCES, is_sumo, names_source, with_absolute_path
from vnetsim.scenario.plugins import ResolvedPlugin, resolve_plugin
from vnetsim.scenario.settings_file import learner_defaults
from vnetsim.simulation.compute import RECEIVE_W, TRANSMIT_W
from vnetsim.simulation.plugins import SimulationPlugins, simulation_plugins
from vnetsim.traffic.sumo.config import check_scenario_files


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The plug-ins and settings of a run."""

    experiment: Experiment  # all settings, including the defaults of the learners of run and schedule
    learner: ResolvedPlugin
    schedule: ResolvedPlugin | None  # the learner whose costs decide which vehicles commit; None for ``learner``
    simulation: SimulationPlugins
    # data set, encoder, aggregation rule, codec and conduct by settings table; only those that are not the default
    others: Mapping[str, ResolvedPlugin]
    source: ResolvedPlugin | None = None  # None if the scenario is no plug-in
    given: Collection[str] = ()  # dotted keys of the settings of the call; ``start_run`` refuses those without effect

    @property
    def plugin_by_table(self) -> dict[str, ResolvedPlugin]:
        """Plug-ins by settings table: learner, simulation, ``others``, ``source`` if any; no schedule's learner."""
        source = {} if self.source is None else {"source": self.source}
        return {LEARNERS.table: self.learner, **self.simulation.chosen, **self.others, **source}

    def plugin_errors(self) -> AbstractContextManager[None]:
        """Return a context that turns exceptions of learners and simulation plug-ins into RunError naming them."""
        learners = [self.learner] if self.schedule is None else [self.learner, self.schedule]
        return errors_of_plugins(*((LEARNERS, one.found) for one in learners), *self.simulation.by_kind)

    def refuse_losses(self, *, trains: bool) -> None:
        """Raise InputError if losses or updates decide who is selected, and nobody trains or ``learning.dp`` clips."""
        selection, dp = self.simulation.selection, self.experiment.learning.get("dp") or {}
        if not getattr(selection, "uses_losses", False):
            return
        if not trains:
            what = "updates" if getattr(selection, "figure", "") else "training losses"
            raise InputError(
                f"selection.name: '{selection.name}' chooses vehicles by their {what}; without training there "
                "are none. Choose another, or train."
            )
        if dp.get("clip"):
            raise InputError(
                f"learning.dp: '{selection.name}' chooses vehicles by what they trained, which epsilon does not count; "
                "take another selection.name, or leave learning.dp out."
            )

    @property
    def streams(self) -> Streams:
        """The random streams of the experiment's seed."""
        return Streams(seed=self.experiment.seed)

    @property
    def codec(self) -> Any:
        """The codec plug-in of uploads, made with its settings; None for ``float32``."""
        return self.others[CODECS.table].settings if CODECS.table in self.others else None

    @property
    def download_codec(self) -> Any:
        """The codec plug-in of downloads, made with its defaults; None for ``float32``."""
        name = self.experiment.download_codec
        return None if name == FLOAT32 else CODECS.find(name)()

    def hostile_rows(self, vehicle_ids: Iterable[str]) -> list[tuple[object, ...]]:
        """Return rows (id, conduct's name) of the table ``hostile``: one for each hostile vehicle of these, by id."""
        settings, streams = self.experiment.hostile, self.streams.child("learner")
        if settings.share == 0 and not settings.vehicles:
            return []
        name = short_name(self.experiment.conduct["name"])
        return [(one, name) for one in sorted(set(vehicle_ids)) if is_hostile(one, settings, streams)]

    @property
    def record(self) -> dict[str, Any]:
        """The manifest's ``learner_defaults``, ``plugins`` by table, vehicles' ``computers``, ``radio_unit_w`` (W)."""
        compute = self.experiment.compute
        shares = [("", preset, share) for preset, share in compute.shares.items()]
        shares += [(name, preset, 1.0) for name, preset in sorted(compute.by_type.items())]
        own = {table: other.record for table, other in {**self.simulation.chosen, **self.others}.items()}
        return {
            "learner_defaults": learner_defaults(self.learner.found),
            "plugins": own,
            "computers": [
                {
                    "preset": preset,
                    "share": share,
                    "median_flops": compute.median_of(preset),
                    "by_hand": compute.median_flops is not None,
                    "watts": COMPUTERS[preset].watts,
                    "vehicle_type": vehicle_type,
                }
                for vehicle_type, preset, share in shares
            ],
            "radio_unit_w": {"sending": TRANSMIT_W, "receiving": RECEIVE_W},
        }

    def context(
        self,
        device: str,
        *,
        fetch: bool = True,
        aggregators: Sequence[str] = (AGGREGATOR,),
        districts: int = 1,
        pictures: bool = True,
        driven: RecordedTraffic | None = None,
    ) -> LearnerContext:
        """Return the context that ``Learner.create`` gets.

        ``fetch`` allows downloads of data; ``driven`` is its ``traffic``, None unless the data set is made of traffic.
        For the other arguments see ``LearnerContext``.
        """
        given = self.experiment
        own = {table: other.settings for table, other in self.others.items()}
        return LearnerContext(
            streams=self.streams.child("learner"),
            device=device,
            experiment=given if fetch else replace(given, data=replace(given.data, download=False)),
            rule=given.aggregation.get("name", SYNC),
            aggregators=tuple(aggregators),
            districts=districts,
            figure=getattr(self.simulation.selection, "figure", ""),
            pictures=pictures,
            joint=given.handover.policy == "multi" and len(aggregators) > 1,
            data_set=own.get(DATA_SETS.table),
            traffic=driven,
            encoder=own.get(ENCODERS.table),
            aggregation=own.get(AGGREGATIONS.table),
            codec=self.codec,
            download_codec=self.download_codec,
            conduct=own.get(CONDUCTS.table),
        )

    def make_learner(self, context: LearnerContext) -> tuple[Learner, dict[int, Cost]]:
        """Make the learner; return it, and the cost to simulate by silo; {} if the learner's own costs are simulated.

        Costs differ from its own if ``schedule.learner`` names another learner, which is then made only for its costs,
        or with ``cost.model`` or codecs.
        InputError if data and settings do not match, the two learners exchange in different ways, or ``cost.model`` or
        a codec needs a model that the costs do not declare; RunError if a learner cannot be made.
        """
        learner = _make_learner(self.learner, context)
        reference, model = learner, self.experiment.cost.on_the_clock
        codecs = {"upload": self.codec, "download": self.download_codec}
        if self.schedule is not None:
            its_own = replace(
                context, rule=SYNC, aggregation=None, aggregators=(AGGREGATOR,), joint=False,
                codec=None, download_codec=None, conduct=None,
            )  # fmt: skip
            reference = _make_learner(self.schedule, its_own)
        elif model is None and not any(codecs.values()):
            return learner, {}
        costs = {silo: cost_of(reference, silo) for silo in range(self.experiment.silos.count)}
        if model is not None:
            if any(cost.model is None for cost in costs.values()):
                raise InputError(
                    f"cost.model: the learner {reference.name} does not say of what model its costs are (Cost.model); "
                    "set cost.model to 'trained'."
                )
            costs = {silo: cost.of(model.bytes, model.image_flop, model.images) for silo, cost in costs.items()}
        if any(codecs.values()):
            values = None if model is None else model.values
            costs = {silo: with_codec_bytes(cost, values, **codecs) for silo, cost in costs.items()}
        own, given = _describe_exchange(learner.cost(0).exchange), _describe_exchange(costs[0].exchange)
        if own != given:
            raise InputError(
                f"schedule.learner: {short_name(self.experiment.schedule.learner)} {given}, but {learner.name} {own}; "
                "these two cannot have one schedule."
            )
        return learner, costs


def _make_learner(learner: ResolvedPlugin, context: LearnerContext) -> Learner:
    """Make a learner with seeded global random generators; RunError if ``create`` fails or returns something else."""
    with (
        seeded(context.streams.integer("creation"), context.device),
        plugin_errors(LEARNERS.name, learner.found.name, "in create"),
    ):
        made: Learner = learner.found.create(context, learner.settings)
        return require_type(made, Learner, LEARNERS, learner.found, "create")


def assemble(experiment: Experiment, learner: type[Learner] | None = None) -> Assembly:
    """Find all plug-ins that an experiment names, and check their settings.

    ``learner`` is the class of the run's learner; None finds it by its name. Paths in the result are absolute.
    InputError if a plug-in does not exist, a file is faulty, settings are wrong or contradict each other, or the
    schedule's learner has another task; RunError for a faulty installed plug-in.
    """
    experiment = with_absolute_paths(experiment)
    if is_sumo(experiment.scenario):
        experiment = check_scenario_files(experiment)
    name = experiment.scenario
    source = resolve_plugin(TRAFFIC_SOURCES, experiment.source, name) if names_source(name) else None
    chosen_learner = resolve_plugin(LEARNERS, experiment.learning, experiment.learner, found=learner)
    if experiment.topology.kind != "single":
        require_several_models(chosen_learner.found, f"topology.kind = '{experiment.topology.kind}'")
    schedule, spelt_out = None, {"learning": chosen_learner.plain_settings}
    if name := experiment.schedule.learner:
        schedule = resolve_plugin(LEARNERS, experiment.schedule.learning, name, below=("schedule",))
        own, its = chosen_learner.found, schedule.found
        if its.task != own.task:
            raise InputError(
                f"schedule.learner: {its.name} learns another task ({its.task}) than {own.name} ({own.task})."
            )
        spelt_out["schedule.learning"] = schedule.plain_settings
    experiment = experiment.with_values(spelt_out)
    named = _other_plugins(experiment, chosen_learner.found)
    return Assembly(
        experiment=experiment,
        learner=chosen_learner,
        schedule=schedule,
        simulation=simulation_plugins(experiment),
        others={kind.table: resolve_plugin(kind, values, name) for kind, values, name in named},
        source=source,
    )


def _other_plugins(experiment: Experiment, learner: type[Learner]) -> Iterator[tuple[Kind, Mapping[str, Any], str]]:
    """Yield (kind, settings, name) of data set, encoder, rule, codec, conduct if no default; InputError if unfit."""
    named = experiment.plugins()
    for kind, values in ((DATA_SETS, experiment.data.own), (ENCODERS, experiment.encoder)):
        name = named[kind.key]
        if not values and (not name or (not is_class(name) and name not in kind.names())):
            continue  # not set, or a name that the learner itself knows or refuses
        if not name:
            raise InputError(f"{kind.table}: the learner has no setting {kind.key}, whose settings these would be.")
        yield kind, values, name
    refuse_hostile_without_conduct(experiment)
    if experiment.download_codec != FLOAT32 and not getattr(learner, "takes_codec", False):
        raise InputError(
            f"download_codec: {learner.name} does not pass models through codecs; leave it at '{FLOAT32}'."
        )
    for kind, default, flag, why in (
        (AGGREGATIONS, SYNC, "takes_aggregation_rule", "makes one model of its uploads in a way of its own"),
        (CODECS, FLOAT32, "takes_codec", "does not pass its updates through codecs"),
        (CONDUCTS, HONEST, "takes_codec", "does not let hostile vehicles change their updates"),
    ):
        name, values = str(named[kind.key] or default), experiment.value(kind.table)
        if values in ({}, {"name": default}):
            continue
        if not getattr(learner, flag, False):
            raise InputError(
                f"{kind.key}: '{short_name(name)}' is not for the learner {learner.name}, which {why}; leave it at "
                f"'{default}', without a table {kind.table}."
            )
        yield kind, values, name


def _describe_exchange(exchange: Exchange | None) -> str:
    """Return in words how vehicles exchange (None: not at all); equal words let two learners share a schedule."""
    if exchange is None:
        return "exchanges nothing between vehicles"
    when = "before" if exchange.before_training else "after"
    both = ", in both directions or not at all" if exchange.mutual else ""
    back = ", and takes something back" if exchange.work_flop > 0 or exchange.return_bytes > 0 else ""
    return f"exchanges with neighbours {when} training{both}{back}"


def plugin_files(experiment: Experiment) -> dict[str, str]:
    """Return the data files that plug-ins' settings name, such as ``source.file``, by settings table."""
    named = {table: experiment.value(f"{table}.{key}") for table, key in sorted(PLUGIN_FILES)}
    return {table: file for table, file in named.items() if isinstance(file, str) and file}


def with_absolute_paths(experiment: Experiment) -> Experiment:
    """Return the experiment with all paths and plug-ins' files absolute, existing or not; InputError if invalid."""
    found: dict[str, Any] = {"scenario": with_absolute_path(experiment.scenario)}
    for path in sorted(FILES):
        key = ".".join(path)
        if value := experiment.value(key):
            try:
                found[key] = with_paths(path, value, lambda path: str(resolve_path(path)))
            except InputError as error:
                raise InputError(f"{key}: {error}") from None
    found |= {key: at_folder(name, Path.cwd()) for key, name in experiment.plugins().items() if name}
    return experiment.with_values(found)


def with_relative_paths(folder: Path, experiment: Experiment) -> Experiment:
    """Return the experiment with ``scenario``, a path, and plug-ins' files relative to ``folder``; other paths stay."""
    seen = {
        key: f"{relative(file, folder)}:{short_name(name)}"
        for key, name in experiment.plugins().items()
        if (file := code_file(name)) is not None
    }
    return experiment.with_values({"scenario": relative(Path(experiment.scenario), folder), **seen})
