"""`vnetsim settings`, `cite` and `init`: what a user looks up."""

import re
import webbrowser

import pytest

from vnetsim.api.export import references
from vnetsim.cli import lookup
from vnetsim.cli.commands import main
from vnetsim.cli.lookup import kinds
from vnetsim.experiment import DEFAULT_NAMES, PLUGIN_TABLES, Experiment
from vnetsim.learning.kinds import LEARNERS
from vnetsim.setting_texts import setting_texts

Captured = pytest.CaptureFixture[str]


def told(capsys: Captured, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_settings_say_which_values_they_take():
    values = {text.key: text.values for text in setting_texts(Experiment)}
    expected = {"rounds": "whole number | left out", "time_s": "number | left out", "round.quorum": "whole number"}
    expected |= {"association.rule": "first | nearest | strongest", "compute.fleet": "table"}
    assert values | expected == values


def test_every_setting_is_listed(capsys):
    lines = told(capsys, "settings").splitlines()
    listed = [line.partition(" = ")[0] for line in lines if line and not line.startswith(" ")]
    assert {text.key for text in setting_texts(Experiment)} - DEFAULT_NAMES.keys() <= set(listed)
    assert {*(f"{table}.name" for table in DEFAULT_NAMES), "radio.bandwidth_hz"} <= set(listed)
    assert "round.quorum = 3" in lines
    assert all(len(line) <= 100 and line == line.rstrip() for line in lines)


def test_one_setting(capsys):
    assert "\n\nround.quorum = 3\n" in told(capsys, "settings", "round.quorum")
    assert told(capsys, "settings", "radio.name").startswith("[radio]\n")
    assert told(capsys, "settings", "radio.bandwidth_hz").splitlines() == [
        "[radio] of tr37885",
        "Rates from the vehicle's position by 3GPP TR 37.885, with a share of the Shannon",
        "capacity.",
        "",
        "radio.bandwidth_hz = 3e7",
        "    channel bandwidth (Hz).",
        "    number, between 1000 and 1e11 Hz: from telemetry to all microwave bands",
    ]


def test_one_table_and_nothing_else(capsys):
    out = told(capsys, "settings", "blur")
    assert "physical motion kernel" in out
    assert re.findall(r"^(\w+\.\w+)", out, re.MULTILINE) == ["blur.threshold_kmh", "blur.fraction"]


@pytest.mark.parametrize("table", PLUGIN_TABLES)
def test_a_table_of_plug_ins_has_the_settings_of_each_and_so_has_a_key(table, capsys):
    kind = next(kind for kind in kinds() if kind.table == table)
    out = told(capsys, "settings", table)
    first, *sections = out.split(f"\n[{table}] of ")
    assert first.startswith(f"[{table}]\n")
    shown = {section.split("\n")[0]: section for section in sections}
    of_key: dict[str, set[str]] = {}
    for name in kind.names():
        texts = list(setting_texts(kind.settings_of(kind.find(name)), table))
        assert (name in shown) == bool(texts)
        assert (name in re.split(r"[\s,.]+", first.partition("Without settings")[2])) != bool(texts)
        for text in texts:
            assert f"\n{text.key}" + f" = {text.default}" * bool(text.default) + "\n" in shown[name]
            assert text.meaning in " ".join(shown[name].split())
            assert text.bounds in " ".join(shown[name].split())
            of_key.setdefault(text.key, set()).add(name)
    if of_key:
        key, names = max(of_key.items(), key=lambda one: len(one[1]))
        alone = told(capsys, "settings", key)
        assert set(re.findall(rf"^\[{table}\] of (\S+)$", alone, re.MULTILINE)) == names
        assert set(re.findall(r"^(\w+\.\w+)", alone, re.MULTILINE)) == {key}


def test_a_setting_of_another_learner_than_the_default_is_found(capsys):
    assert told(capsys, "settings", "learning.temperature").startswith("[learning] of cdl\n")
    assert "[learning] of flsimco\n" in told(capsys, "settings", "learning.t_alpha")


def test_what_to_cite(capsys):
    entries = re.findall(r"^@\w+\{(\S+),$", told(capsys, "cite", "fedco"), re.MULTILINE)
    assert entries == ["vnetsim", "sumo", "flsimco", "moco"], "its paper names both"
    everything = re.findall(r"^@\w+\{(\S+),$", told(capsys, "cite"), re.MULTILINE)
    assert len(set(everything)) == len(everything)
    assert {"fedefm", "cdl", "dsgd", "fedavg"} <= set(everything)


@pytest.mark.parametrize("name", LEARNERS.names())
def test_every_learners_paper_has_an_entry(name):
    entries = references([LEARNERS.find(name)])
    assert len(entries) >= 3
    for entry in entries:
        assert entry.count("{") == entry.count("}")
        assert "  note = " not in entry
        assert "@VERSION@" not in entry


def test_the_documentation_is_opened_where_there_is_one(tmp_path, capsys, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(lookup, "__file__", str(tmp_path / "vnetsim/cli/lookup.py"))
    with pytest.raises(SystemExit) as stopped:
        main(["docs"])
    assert stopped.value.code == 2
    assert "no documentation is built here: `make docs`" in capsys.readouterr().err
    for name in ("site/index.html", "vnetsim/documentation.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        assert told(capsys, "docs") == f"{tmp_path / name}\n"
        assert opened[-1] == (tmp_path / name).as_uri()
