"""A network as a list of steps, each a layer or a method of a tensor: data that any PyTorch can follow, and no code.

A step is ``[name, kind, layer, inputs, arguments]``. Where ``layer`` is given, the prefix of its tensors' names with a
dot at its end, ``kind`` is a class of ``torch.nn`` and ``arguments`` are its constructor's. Else ``kind`` is a method
of ``torch.Tensor``, one of ``METHODS``. ``inputs`` are names of earlier steps or ``images``, and plain values.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

Step = tuple[str, str, str, list[Any], dict[str, Any]]

MODEL_ENTRY = "vnetsim"
"""Key of the metadata of ``model.safetensors``; its value is JSON."""
INPUT = "images"
METHODS = frozenset(
    {"abs", "add", "amax", "clamp", "clamp_min", "div", "expand_as", "flatten", "matmul", "mean", "mul", "neg", "norm"}
    | {"permute", "pow", "relu", "reshape", "sigmoid", "softmax", "sqrt", "square", "squeeze", "sub", "sum", "tanh"}
    | {"transpose", "unsqueeze", "view"}
)
"""What a step may do besides layers: nothing that reads, writes or runs anything but numbers."""

_OPERATORS = {"truediv": "div"}
_LAST_KEYWORDS = {"dim", "start_dim"}
"""Keywords whose value may as well stand second."""


def steps_of(network: Any) -> list[Step]:
    """Return the steps of a network's evaluation, from ``images`` to what it returns.

    Args:
        network: a ``torch.nn.Module`` that takes images, and whose way does not depend on their values.

    Raises:
        ValueError: it cannot be described this way.
    """
    from torch.fx import Tracer  # noqa: PLC0415 - the traffic commands load this package without torch

    training = network.training
    network.eval()
    try:
        nodes = list(Tracer().trace(network).nodes)
    except Exception as error:  # whatever its forward does with what it is given
        raise ValueError(f"not to be followed: {error}") from error
    finally:
        network.train(training)
    steps: list[Step] = []
    names: dict[Any, str] = {}
    for node in nodes:
        if node.op == "placeholder" and not names:
            names[node] = INPUT
        elif node.op == "output":
            _refuse(not steps or node.args != (nodes[-2],), "it returns something else than its last step")
        else:
            steps += _steps(node, network, names)
            names[node] = steps[-1][0]
    return steps


def _steps(node: Any, network: Any, names: Mapping[Any, str]) -> list[Step]:
    """Return what a node does, mostly one step."""
    if node.op == "call_module":
        layer = network.get_submodule(node.target)
        _refuse(bool(node.kwargs), f"layer {node.target} is called by keyword")
        inputs = _inputs(node.args, names)
        return [(node.name, type(layer).__name__, f"{node.target}.", inputs, _arguments(layer))]
    _refuse(node.op not in ("call_method", "call_function"), f"{node.op} {node.target}")
    called = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    kind = _OPERATORS.get(called, called)
    if kind == "normalize" and node.kwargs.keys() <= {"p", "dim", "eps", "out"}:
        return _normalisation(node, names)
    given = list(node.args)
    if len(given) == 1 and len(node.kwargs) == 1 and node.kwargs.keys() <= _LAST_KEYWORDS:
        given += node.kwargs.values()
    else:
        _refuse(bool(node.kwargs), f"{kind} is called by keyword")
    _refuse(kind not in METHODS or given[0] not in names, f"{kind} is none of the methods there are")
    return [(node.name, kind, "", _inputs(given, names), {})]


def _normalisation(node: Any, names: Mapping[Any, str]) -> list[Step]:
    """Return the steps of ``torch.nn.functional.normalize``, which are the ones it takes itself."""
    given = {"p": 2.0, "dim": 1, "eps": 1e-12, **dict(zip(("p", "dim", "eps"), node.args[1:], strict=False))}
    given |= {name: value for name, value in node.kwargs.items() if value is not None}
    (source,) = _inputs(node.args[:1], names)
    norm, least, wide = (f"{node.name}_{part}" for part in ("norm", "least", "wide"))
    return [
        (norm, "norm", "", [source, given["p"], given["dim"], True], {}),
        (least, "clamp_min", "", [norm, given["eps"]], {}),
        (wide, "expand_as", "", [least, source], {}),
        (node.name, "div", "", [source, wide], {}),
    ]


def _inputs(values: Any, names: Mapping[Any, str]) -> list[Any]:
    """Return arguments as JSON values: nodes by their names."""
    plain: list[Any] = []
    for value in values:
        numbers = list(value) if isinstance(value, list | tuple) else [value]
        known = not isinstance(value, list | tuple) and value in names
        _refuse(not known and not all(isinstance(one, bool | int | float) for one in numbers), f"argument {value!r}")
        plain.append(names[value] if known else numbers if isinstance(value, list | tuple) else value)
    return plain


def _arguments(layer: Any) -> dict[str, Any]:
    """Return the constructor's arguments of a layer of ``torch.nn``, which most keep under their names."""
    kind = type(layer)
    _refuse(not kind.__module__.startswith("torch.nn."), f"no layer of torch.nn: {kind.__name__}")
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in ("device", "dtype") or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(layer, name, parameter.empty)
        _refuse(value is parameter.empty, f"layer {kind.__name__} keeps no {name}")
        value = value is not None if name == "bias" else value
        arguments[name] = list(value) if isinstance(value, tuple) else value
        parts = arguments[name] if isinstance(arguments[name], list) else [value]
        _refuse(not all(one is None or isinstance(one, bool | int | float | str) for one in parts), f"argument {name}")
    return arguments


def _refuse(fault: bool, what: str) -> None:
    if fault:
        raise ValueError(what)
