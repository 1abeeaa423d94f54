"""A folder of tiny pictures along the streets of a net, as ``scenarios/plugins/own_frames.py`` reads it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from learners.data.streets import read_net

SCENARIOS = Path(__file__).parents[1] / "scenarios"
PLUGIN = f"{SCENARIOS / 'plugins' / 'own_frames.py'}:OwnFrames"
COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}


def write_index(net: Path, folder: Path) -> Path:
    """Write pictures of one colour each, the first pixel being the picture's number, every 15 m; return their CSV."""
    lines, edges = ["file,edge,pos_m,label"], set()
    for lane in read_net(net).lanes:
        if lane.function or lane.paved or lane.edge in edges:
            continue
        edges.add(lane.edge)
        for pos_m in np.arange(8, np.hypot(*np.diff(lane.shape, axis=0).T).sum(), 15):
            number = len(lines) - 1
            label = sorted(COLOURS)[number % 3]
            picture = np.full((8, 8, 3), COLOURS[label], dtype=np.uint8)
            picture[0, 0] = number // 256, number % 256, 7
            Image.fromarray(picture).save(folder / f"{number}.png")
            lines.append(f"{number}.png,{lane.edge},{pos_m:g},{label}")
    (folder / "index.csv").write_text("\n".join(lines) + "\n")
    return folder / "index.csv"


@pytest.fixture(scope="session")
def own_frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CSV of pictures along the streets of the shipped crossing."""
    return write_index(SCENARIOS / "intersection" / "intersection.net.xml", tmp_path_factory.mktemp("own_frames"))
