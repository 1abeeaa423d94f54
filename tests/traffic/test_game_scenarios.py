"""Scenarios by others: those of SUMO's traffic-light game, with trains, pedestrians and on-demand buses among them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import sumo

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic

GAME = Path(sumo.SUMO_HOME) / "tools" / "game"
CONFIGS = sorted(path.name for path in GAME.glob("*.sumocfg"))
LASTS_S = 300
# Made for sumo-gui with OpenSceneGraph: the plain sumo binary refuses them with the same words.
GUI_ONLY = {"bs3d.sumocfg", "bs3Dosm.sumocfg"}


def mirrored(config: Path, folder: Path) -> Path:
    """Return the scenario's copy in a writable folder: links to everything beside it, so that outputs land there."""
    for root, folders, files in os.walk(config.parent):
        target = folder / Path(root).relative_to(config.parent)
        for name in folders:
            (target / name).mkdir()
        for name in files:
            (target / name).symlink_to(Path(root) / name)
    return folder / config.name


def _shortened(name: str, folder: Path) -> Path:
    """Return the scenario with an early end, in a folder of our own, for SUMO writes beside the scenario."""
    config = mirrored(GAME / name, folder)
    text = config.read_text()
    shortened = re.sub(r'<end value="\d+"', f'<end value="{LASTS_S}"', text)
    shortened = shortened.replace('<end value="16:0:0"', '<end value="15:5:0"')
    assert shortened != text
    config.unlink()
    config.write_text(shortened)
    return config


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_plays(name, tmp_path, checked):
    config = _shortened(name, tmp_path)
    if name in GUI_ONLY:
        with pytest.raises(InputError, match="No option with the name 'osg-view' exists"):
            open_traffic(Experiment(scenario=str(config)))
        return
    traffic = open_traffic(Experiment(scenario=str(config), traffic=TrafficSettings(repeat=False)))
    try:
        events = list(traffic.events())
    finally:
        traffic.close()
    assert traffic.info.lanes
    checked(events)
