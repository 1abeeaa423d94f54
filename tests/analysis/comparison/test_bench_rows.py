"""The table of a benchmark's rows."""

from analysis.comparison.bench import overview
from vnetsim.storage.bench_track import BenchControl, BenchTask, Track
from vnetsim.storage.records import BenchRecord, BenchSeed, BenchValues

TRACK = Track(
    version="v0", title="Tiny", scenario="gaussian", sumo="", windows=(), files={}, open=(), settings={}, sizes={},
    tasks={"walk": BenchTask(baseline="toy", metric="m", label="Distance", unit="")},
    controls=(BenchControl(name="light", task="walk", says="less to send"),), name="tiny", size="small",
)  # fmt: skip


def row(arm: str, more: float, control: str = "") -> BenchRecord:
    """A row of six seeds whose metric is higher than the baseline's by ``more`` at each."""

    def values(final: float) -> BenchValues:
        return BenchValues(
            untrained=0.0, half=0.4, final=final, time_to_target_s=None, span_s=9.0, commits=3, bytes=4e6, energy_j=None
        )

    seeds = [
        BenchSeed(seed=seed, traffic="", row=values(1.0 + more + seed / 100), baseline=values(1.0)) for seed in range(6)
    ]
    return BenchRecord(
        track="tiny", version="v0", track_sha256="", size="small", task="walk", arm=arm, learner="toy", seeds=seeds,
        control=control,
    )  # fmt: skip


def test_arms_and_controls_are_corrected_apart_and_the_best_is_first():
    """One arm at six seeds has p = 2 / 64; the control is one of three, so that its p is three times that."""
    table = overview([row("light", 2.0, "light"), row("toy, mine", 1.0)], TRACK)
    assert [line[0] for line in table.rows] == [
        "control: light", "mine", "control: half of the time", "control: random initialisation, 0 rounds",
    ]  # fmt: skip
    assert [line[1].endswith("*") for line in table.rows] == [False, True, False, False]
    assert "light: less to send." in table.note
