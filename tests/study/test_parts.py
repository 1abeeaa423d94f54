"""How cells are shared out to the parts of a comparison."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from vnetsim.study.parts import in_part


@given(arms=st.integers(1, 9), seeds=st.integers(1, 12), parts=st.integers(1, 24))
def test_parts_are_equal_in_all_cells_and_in_those_of_an_arm(arms: int, seeds: int, parts: int) -> None:
    cells = [SimpleNamespace(arm=f"arm {arm}", condition="") for _ in range(seeds) for arm in range(arms)]
    shares = [in_part(cells, (number, parts)) for number in range(1, parts + 1)]
    assert all(sum(of_cell) == 1 for of_cell in zip(*shares, strict=True))
    for chosen in (cells, [cell for cell in cells if cell.arm == "arm 0"]):
        sizes = [sum(mine for mine, cell in zip(share, cells, strict=True) if cell in chosen) for share in shares]
        assert max(sizes) - min(sizes) <= 1
