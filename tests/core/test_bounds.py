"""Every number that can be set has bounds with a reason, found and checked in one way."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import pytest
from received import MANIFEST

import vnetsim
from vnetsim.api.settings import overrides_of
from vnetsim.cli.lookup import kinds
from vnetsim.errors import InputError
from vnetsim.errors.bounds import Within, bounds_of, check_bounds
from vnetsim.experiment import Experiment
from vnetsim.scenario.settings_file import load_experiment
from vnetsim.setting_texts import MISSING, setting_texts
from vnetsim.storage.records import ComparisonRecord, ManifestRecord
from vnetsim.storage.structure import build_record, structure


def numbers_of(kind: type, table: str = "") -> Iterator[tuple[str, type, Within | None]]:
    """Every number of a settings class: its key, whether float or int, and its bounds."""
    bounds = bounds_of(kind)
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, key = hints[field.name], f"{table}.{field.name}" if table else field.name
        if dataclasses.is_dataclass(hint):
            yield from numbers_of(hint, key)
        elif hint in (float, int, int | None, float | None):
            yield key, float if hint in (float, float | None) else int, bounds.get(field.name)


OF_PLUGINS = [
    (kind.name, name, *leaf)
    for kind in kinds()
    for name in kind.names()
    for leaf in numbers_of(kind.settings_of(kind.find(name)), kind.table)
]
OF_EXPERIMENT = list(numbers_of(Experiment))


def outside(kind: type, within: Within) -> list[float]:
    if kind is int:
        return [int(within.low) - 1, int(within.high) + 1]
    return [math.nextafter(within.low, -math.inf), math.nextafter(within.high, math.inf), math.nan, math.inf, -math.inf]


def of_kind(kind: type, within: Within) -> list[float]:
    return [kind(within.low), kind(within.high)]


def refused(key: str, value: float) -> str:
    with pytest.raises(InputError) as caught:
        load_experiment("gaussian", [(tuple(key.split(".")), value)])
    return str(caught.value)


def fault(call: Callable[..., Any], *args: Any, **keywords: Any) -> str:
    try:
        call(*args, **keywords)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("key", "kind", "within"), OF_EXPERIMENT, ids=str)
def test_every_number_of_an_experiment_has_bounds_that_hold(key, kind, within):
    assert within is not None, f"{key} has no bounds"
    assert within.reason
    for value in outside(kind, within):
        message = refused(key, value)
        assert message.startswith(f"{key} must be between "), message
        assert within.reason in message
        assert message.endswith(f"got {value}.")
    for value in of_kind(kind, within):
        # what must hold between two settings is another matter
        assert f"{key} must be between" not in fault(load_experiment, "gaussian", [(tuple(key.split(".")), value)])


@pytest.mark.parametrize(("kind", "plugin", "key", "number", "within"), OF_PLUGINS, ids=str)
def test_every_number_of_a_plugin_has_bounds_that_hold(kind, plugin, key, number, within):
    assert within is not None, f"{key} of {plugin} has no bounds"
    found = next(one for one in kinds() if one.name == kind)
    settings = found.settings_of(found.find(plugin))
    table, *within_table, name = key.split(".")
    given = {text.key.rpartition(".")[2]: "x" for text in setting_texts(settings) if text.default == MISSING}
    for value in outside(number, within):
        values = {name: value}
        for nested in reversed(within_table):
            values = {nested: values}
        with pytest.raises(InputError) as caught:
            structure({**given, **values}, settings, "", (table,))
        assert str(caught.value).startswith(f"{key} must be between ")
        assert str(caught.value).endswith(f"({within.reason}), got {value}.")
    for value in of_kind(number, within):
        assert f"{key} must be between" not in fault(structure, {**given, name: value}, settings, "", (table,))


@pytest.mark.parametrize("value", [{}, {"a": {}}, [], True, "1"], ids=repr)
def test_no_number_of_an_experiment_takes_anything_else(value):
    for key, *_ in OF_EXPERIMENT:
        message = fault(load_experiment, "gaussian", overrides_of({key: value}))
        assert message.startswith(f"{key}: expected a"), f"{key}: {message!r}"
        assert f"got {value!r}" in message


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_no_number_of_a_plugin_takes_an_empty_table(kind):
    for of, name, key, *_ in OF_PLUGINS:
        if of == kind.name:
            file = {"source.file": "x"} if name == "access-log" else {}
            given = {"scenario": "gaussian", kind.key: name, "settings": {**file, key: {}}}
            assert fault(vnetsim.Experiment, **given).startswith(f"{key}: expected a"), f"{key} of {name}"


def test_an_empty_table_changes_nothing_of_a_table(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('scenario = "gaussian"\nround.quorum = 3\ncompute.fleet = { ecu = 1.0 }\n')
    made = vnetsim.Experiment(file, round={}, compute={}, settings={"compute.fleet": {}})
    assert made.round.quorum == 3
    assert made.compute.fleet == {}


def test_bounds_are_told_in_few_characters_with_unit_and_reason():
    assert str(Within(0.1, 1e7, "s", "why")) == "between 0.1 and 1e7 s"
    assert str(Within(1, 500, "", "why")) == "between 1 and 500"
    with pytest.raises(InputError) as caught:
        Within(1, 500, "m", "no radio reaches further").check("link.x_m", 501)
    assert str(caught.value) == "link.x_m must be between 1 and 500 m (no radio reaches further), got 501."


@dataclass(frozen=True, kw_only=True)
class Parent:
    x_m: Annotated[float, Within(0, 1, "m", "why")] = 0.5
    n: Annotated[int, Within(1, 9, "", "why")] | None = None


@dataclass(frozen=True, kw_only=True)
class Child(Parent):
    x_m: float = 0.25
    free: float = 1e300


def test_a_subclass_that_sets_another_default_keeps_the_bounds():
    assert set(bounds_of(Child)) == {"x_m", "n"}
    check_bounds("own", Child())
    with pytest.raises(InputError, match=r"own\.x_m must be between 0 and 1 m"):
        check_bounds("own", Child(x_m=2))
    with pytest.raises(InputError, match=r"own\.n must be between 1 and 9"):
        check_bounds("own", Child(n=10))


def test_settings_of_a_user_are_checked_without_a_line_of_theirs_and_need_no_bounds():
    assert structure({"x_m": 1, "n": 9}, Child, "") == Child(x_m=1.0, n=9)
    with pytest.raises(InputError, match=r"^learning\.x_m must be between 0 and 1 m \(why\), got 3\.0\.$"):
        structure({"x_m": 3}, Child, "", ("learning",))
    with pytest.raises(InputError, match=r"learning\.x_m: expected a number, got 'three'"):
        structure({"x_m": "three"}, Child, "", ("learning",))
    assert structure({"free": -1e300}, Child, "").free == -1e300


def test_a_quorum_above_the_number_of_distinct_silos():
    values: list[tuple[tuple[str, ...], Any]] = [(("round", "distinct_silos"), True), (("silos", "count"), 4)]
    values += [(("round", "quorum"), 5), (("round", "invited"), 8)]
    with pytest.raises(InputError, match=r"round\.quorum must be at most silos\.count \(4\), got 5: with round\.dist"):
        load_experiment("gaussian", values)
    load_experiment("gaussian", [*values, (("round", "quorum"), 4)])


def test_the_greatest_seed_can_be_read_again(tmp_path):
    (within,) = (within for key, _, within in OF_EXPERIMENT if key == "seed" and within)
    seed = int(within.high)
    traffic = {**MANIFEST["traffic"], "seed": seed}
    build_record(tmp_path / "manifest.json", {**MANIFEST, "seed": seed, "traffic": traffic}, ManifestRecord)
    cell = {**dict.fromkeys(("folder", "arm", "condition", "learner", "traffic"), "a"), "seed": seed}
    comparison = {"vnetsim": "0.1.0", "traffic": [], "cells": [cell]}
    build_record(tmp_path / "comparison.json", comparison, ComparisonRecord)
