"""SUMO's mesoscopic model has no positions: refused in one line, live and recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic


def test_a_mesoscopic_scenario_is_refused(make_scenario: Callable[..., Path], tmp_path: Path) -> None:
    config = make_scenario(tmp_path)
    text = config.read_text()
    config.write_text(text.replace("<processing>", '<mesoscopic><mesosim value="on"/></mesoscopic><processing>'))
    with pytest.raises(InputError, match=r"mesosim: SUMO's mesoscopic model .* set it to false"):
        open_traffic(Experiment(scenario=str(config)))


@pytest.mark.parametrize(
    ("suffix", "says"),
    [
        *((suffix, r":\d+: recorded with SUMO's mesoscopic model") for suffix in ("xml", "xml.gz")),
        *((suffix, r": no row has a lane: .*--mesosim") for suffix in ("csv", "parquet")),
    ],
)
def test_a_mesoscopic_recording_is_refused(
    suffix: str, says: str, make_scenario: Callable[..., Path], sumo_tool: Callable[..., None], tmp_path: Path
) -> None:
    config, recording = make_scenario(tmp_path), tmp_path / f"fcd.{suffix}"
    sumo_tool("sumo", "-c", config, "--mesosim", "--fcd-output", recording, cwd=tmp_path)
    settings = TrafficSettings(rsu=("300,200",))
    with pytest.raises(InputError, match=rf"fcd\.{suffix}{says}"):
        list(open_traffic(Experiment(scenario=str(recording), traffic=settings)).events())
