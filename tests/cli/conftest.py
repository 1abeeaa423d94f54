import pytest

from vnetsim.plugins import entry_points


@pytest.fixture
def broken_plug_in(monkeypatch) -> None:
    """Beside the installed plug-ins of each kind there is one that cannot be imported."""

    class Broken:
        name, value = "broken", "nowhere:Broken"

        def load(self) -> type:
            raise ImportError("no nowhere")

    monkeypatch.setattr("vnetsim.plugins.entry_points", lambda group: [*entry_points(group=group), Broken()])
