"""Strategies of Flower as aggregation rules: ``Strategy.aggregate_train`` aggregates the committed uploads.

Each round creates a new strategy and restores its attributes, which are stored as tensors and JSON. So a resumed run
continues with the same bits, and nothing is unpickled.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from learners.aggregation.means import round_like
from vnetsim.errors import InputError, RunError, one_line, unknown_name
from vnetsim.learning.aggregation import NextModel, RoundUploads
from vnetsim.plugins import code_file, module_of_file, short_name

ROUND, ATTRIBUTES = "round", "attributes"
GLOBAL = "current_arrays"
"""Attribute in which Flower's strategies keep the global model; set in each round, and not stored."""
METRICS = ("weight", "silo", "staleness", "level_px", "speed_mps", "stay_s", "download_s", "train_s", "upload_s")
"""Fields of an ``Upload`` in a reply's ``MetricRecord``."""


@dataclass(frozen=True, kw_only=True)
class Flower:
    """A strategy of Flower aggregates the parameters; BatchNorm's statistics and counters get the learner's mean.

    In each round ``configure_train`` gets the global model, and is broken off where it asks for nodes, since traffic,
    radio and selection decide who takes part. ``aggregate_train`` gets the uploads; in a reply, ``metrics`` are
    ``METRICS`` and ``num-examples``, the learner's weight, and ``config`` has ``vehicle_id``. The record shows the
    learner's weights, whatever a strategy does with them.

    Args:
        strategy: a class of ``flwr.serverapp.strategy``, or one of a file as ``path/to/file.py:Class``.
        arguments: of its constructor.
    """

    name, needs_uploads = "flower", True
    source = "Beutel et al. (2020): Flower: A friendly federated learning framework, arXiv:2007.14390"
    equations = ("w <- aggregate_train(round, uploads), of the parameters",)

    strategy: str = "FedAvg"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise InputError for an unknown strategy, or arguments that it does not take."""
        self._new_strategy()

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the strategy's model, with the learner's mean of other tensors; no tensors if it returns no model.

        ``memory`` has the round and the strategy's attributes for the next round; RunError if one cannot be stored.
        """
        from flwr.app import DEFAULT_TTL, ConfigRecord, Message, Metadata, MetricRecord, RecordDict  # noqa: PLC0415

        names = [name for name in uploads.uploads[0].state if name in uploads.parameters]
        strategy, number = self._new_strategy(), int(uploads.memory.get(ROUND, 0)) + 1
        vars(strategy).update(_restore(uploads.memory))
        with suppress(_NoNodesError):
            list(strategy.configure_train(number, _to_array_record(uploads.model, names), ConfigRecord(), _NoNodes()))
        replies = []
        for place, upload in enumerate(uploads.uploads, start=1):
            metrics = {key: getattr(upload if hasattr(upload, key) else upload.participant, key) for key in METRICS}
            content = {
                "arrays": _to_array_record(upload.state, names),
                "metrics": MetricRecord({"num-examples": upload.weight, **metrics}),
                "config": ConfigRecord({"vehicle_id": upload.participant.vehicle_id}),
            }
            metadata = Metadata(
                src_node_id=place, dst_node_id=0, run_id=0, message_id="", reply_to_message_id="",
                group_id=str(number), created_at=0.0, ttl=DEFAULT_TTL, message_type="train",
            )  # fmt: skip
            replies.append(Message(content=RecordDict(content), metadata=metadata))
        made, _ = strategy.aggregate_train(number, replies)
        memory = {ROUND: torch.tensor(number), **self._attributes_to_store(strategy)}
        if made is None:
            return NextModel(state={}, shares=[0.0] * len(replies), memory=memory)
        state = dict(uploads.mean())
        for name in names:
            like = uploads.model[name]
            state[name] = round_like(torch.from_numpy(made[name].numpy()).to(like.device), like)
        return NextModel(state=state, shares=[upload.weight for upload in uploads.uploads], memory=memory)

    def _new_strategy(self) -> Any:
        """Return a new strategy; InputError if flwr is missing or has no such class, or it refuses the arguments."""
        found = _strategy_class(self.strategy)
        try:
            return found(**self.arguments)
        except (TypeError, ValueError) as error:
            raise InputError(f"aggregation.arguments: '{self.strategy}' cannot be made: {one_line(error)}.") from error

    def _attributes_to_store(self, strategy: Any) -> dict[str, Tensor]:
        """Return a strategy's attributes, except functions and the model, as tensors; RunError if one does not fit."""
        arrays: list[Tensor] = []
        kept = {}
        for name, value in vars(strategy).items():
            if name == GLOBAL or callable(value):
                continue
            try:
                kept[name] = _to_json(value, arrays)
            except TypeError:
                raise RunError(
                    f"aggregation.strategy: '{self.strategy}' keeps '{name}', a {type(value).__name__}, which no "
                    "checkpoint holds; keep numbers, texts, NumPy arrays, lists and dicts."
                ) from None
        text = np.frombuffer(json.dumps(kept).encode(), dtype=np.uint8).copy()
        return {ATTRIBUTES: torch.from_numpy(text), **{str(number): array for number, array in enumerate(arrays)}}


class _NoNodesError(Exception):
    """A strategy asked for nodes."""


class _NoNodes:
    """Flower's grid for ``configure_train``: whatever is asked of it raises _NoNodesError."""

    def __getattr__(self, name: str) -> Any:
        """Raise _NoNodesError for every attribute."""
        raise _NoNodesError(name)


def _strategy_class(name: str) -> type[Any]:
    """Return a strategy's class; InputError without flwr, or if unknown or of flwr.server. Silences flwr."""
    try:
        from flwr.serverapp import strategy as flowers  # noqa: PLC0415 - optional, and takes seconds
    except ImportError:
        raise InputError("aggregation.name: 'flower' needs the package flwr: pip install 'vnetsim[flower]'.") from None
    logging.getLogger("flwr").setLevel(logging.ERROR)  # it warns of clients and metrics that are not used here
    file = code_file(name)
    there = vars(flowers) if file is None else vars(module_of_file(file, "Flower strategy"))
    known: dict[str, type[Any]] = {
        key: one for key, one in there.items() if isinstance(one, type) and issubclass(one, flowers.Strategy)
    }
    if hasattr(there.get(short_name(name)), "aggregate_fit"):
        raise InputError(
            f"aggregation.strategy: '{name}' has aggregate_fit, of flwr.server.strategy; derive it from a class of "
            "flwr.serverapp.strategy, with aggregate_train."
        )
    if short_name(name) not in known:
        raise unknown_name("Flower strategy", name, known, where="aggregation.strategy")
    return known[short_name(name)]


def _to_array_record(tensors: Mapping[str, Tensor], names: list[str]) -> Any:
    """Return those of the tensors that ``names`` lists as a Flower ``ArrayRecord``, in the order of ``names``."""
    from flwr.app import ArrayRecord  # noqa: PLC0415 - optional

    return ArrayRecord({name: tensors[name] for name in names})


def _to_json(value: Any, arrays: list[Tensor]) -> Any:
    """Return a value as JSON can hold it, and append its arrays to ``arrays``; TypeError for other types."""
    if isinstance(value, np.ndarray | np.generic):
        arrays.append(torch.from_numpy(np.array(value)))
        return {"array": len(arrays) - 1}
    if type(value) is list:
        return [_to_json(one, arrays) for one in value]
    if type(value) is dict:
        return {"dict": [[_to_json(key, arrays), _to_json(one, arrays)] for key, one in value.items()]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError


def _restore(memory: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return a strategy's attributes from a rule's memory; empty for an empty memory, before the first round."""

    def value(plain: Any) -> Any:
        """Return the value of its JSON, with arrays from ``memory``; the inverse of ``_to_json``."""
        if isinstance(plain, list):
            return [value(one) for one in plain]
        if isinstance(plain, dict) and "array" in plain:
            return memory[str(plain["array"])].cpu().numpy().copy()
        return {value(key): value(one) for key, one in plain["dict"]} if isinstance(plain, dict) else plain

    kept = json.loads(memory[ATTRIBUTES].cpu().numpy().tobytes()) if memory else {}
    return {name: value(plain) for name, plain in kept.items()}
