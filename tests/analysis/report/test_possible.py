import pytest

from analysis.loading import load
from analysis.report import possible
from analysis.style import styled


@pytest.mark.parametrize(("most", "drawn"), [(20_000, ""), (20, " Shown is one in 5 of them.")])
def test_of_very_many_cut_participations_some_are_drawn_and_all_counted(learning_run, monkeypatch, most, drawn):
    monkeypatch.setattr(possible, "_MOST_FAILED", most)
    read = []
    monkeypatch.setattr(
        possible, "_places", lambda run, failed, places=possible._places: read.append(failed) or places(run, failed)
    )
    run = load(learning_run)
    with styled():
        panel = possible.failed_panel(run)
    outcomes = run.invited["outcome"]
    cut = len(outcomes) - outcomes.is_in(["committed", "unfinished", "rejected"]).sum()
    assert f"{cut} of {run.invited.height} participations were cut: " in panel.caption
    assert panel.caption.endswith(f".{drawn}")
    assert read[0].height == (cut if not drawn else -(-cut // 5))
