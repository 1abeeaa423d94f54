"""What a comparison says while its traffics are recorded."""

from vnetsim.study.progress import NotesOnce


class Display:
    def __init__(self) -> None:
        self.said: list[object] = []

    def stage(self, text: str) -> None:
        self.said.append(("stage", text))

    def note(self, text: str) -> None:
        self.said.append(("note", text))

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        self.said.append((time_s, done, total))


def test_a_note_is_told_once_and_all_else_as_it_is() -> None:
    display = Display()
    once = NotesOnce(display)
    for text in ("no RSU", "no RSU", "go to /x/traffic/0123456789ab/sumo.", "go to /x/traffic/ba9876543210/sumo."):
        once.note(text)
    once.stage("recording")
    once.stage("recording")
    once.advance(time_s=1.0, done=2.0, total=None)
    assert display.said == [
        ("note", "no RSU"),
        ("note", "go to /x/traffic/0123456789ab/sumo."),
        ("stage", "recording"),
        ("stage", "recording"),
        (1.0, 2.0, None),
    ]
