"""Crossings of a segment with a circle, against rational arithmetic where digits cancel: at the rim and grazing it."""

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.coverage.windows import crossings


def exact(x: float, y: float, dx: float, dy: float, radius: float) -> tuple[Decimal, Decimal] | None:
    """Return the roots of |f + s d|^2 = r^2 with 60 digits, None when there are none."""
    with localcontext() as context:
        context.prec = 60
        fx, fy, gx, gy, r = (Decimal(value) for value in (x, y, dx, dy, radius))
        a, b, c = gx * gx + gy * gy, fx * gx + fy * gy, fx * fx + fy * fy - r * r
        square = b * b - a * c
        if square <= 0:
            return None
        root = square.sqrt()
        return (-b - root) / a, (-b + root) / a


def error_of(*segment: float) -> float:
    """Return by how much of the segment the crossings are off at most."""
    expected = exact(*segment)
    return max(abs(float(Decimal(found) - root)) for found, root in zip(crossings(*segment), expected, strict=True))


@pytest.mark.parametrize("gap_m", [0.0, 1e-12, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("inwards", [True, False])
def test_a_start_at_the_rim(gap_m, inwards):
    """There |f|^2 - r^2 would lose the digits of the gap: the crossing next to the start keeps them."""
    radius = 250.0
    x, y = (radius + gap_m) * math.cos(0.7), (radius + gap_m) * math.sin(0.7)
    sign = -1 if inwards else 1
    assert error_of(x, y, sign * 3 * math.cos(0.5), sign * 3 * math.sin(0.5), radius) < 1e-13


@pytest.mark.parametrize("angle", [1e-9, 1e-7, 1e-5, 1e-3])
def test_grazing_incidence_at_the_rim(angle):
    """A chord of 2 r sin(angle) from a start on the circle: off by micrometres, whatever the rounding of the start."""
    radius = 250.0
    for turn in (0.7, 2.0, 3.3, 5.9):
        x, y = radius * math.cos(turn), radius * math.sin(turn)
        heading = turn + math.pi / 2 + angle
        dx, dy = 10 * math.cos(heading), 10 * math.sin(heading)
        expected = exact(x, y, dx, dy, radius) or (Decimal(0), Decimal(0))
        for found, root in zip(crossings(x, y, dx, dy, radius), expected, strict=True):
            assert abs(float(Decimal(found) - root)) * 10 < 2e-5, turn


@pytest.mark.parametrize("depth", [1e-8, 1e-4, 0.5, 1.0])
@pytest.mark.parametrize("times", [1e2, 1e4])
def test_a_start_far_away(depth, times):
    """Grazing or not: b^2 - a c would lose the chord of a segment many radii long."""
    radius, heading = 250.0, 0.7 + math.pi
    heading += math.asin((1 - depth) / times)
    x, y, length_m = times * radius * math.cos(0.7), times * radius * math.sin(0.7), 1.2 * times * radius
    found = error_of(x, y, length_m * math.cos(heading), length_m * math.sin(heading), radius)
    # the rounding of the segment's own numbers, which moves the line sideways and with it the end of the chord
    rounding_m = 4e-16 * times * radius
    assert found * length_m < 8 * rounding_m / math.sqrt(depth)


def test_a_miss_a_tangent_and_no_move():
    first, last = crossings(-10.0, 20.0, 40.0, 0.0, 5.0)
    assert first == last == 0.25
    assert crossings(-0.25, 5.0, 1.0, 0.0, 5.0) == (0.25, 0.25)
    assert crossings(1.0, 1.0, 0.0, 0.0, 5.0) == (0.0, 0.0)


@given(
    angle=st.floats(0, 6.3),
    to=st.floats(0, 6.3),
    near=st.floats(0.2, 3.0),
    far=st.floats(0.2, 3.0),
    r=st.floats(1, 1e4),
)
def test_crossings_lie_on_the_circle(angle, to, near, far, r):
    x, y = near * r * math.cos(angle), near * r * math.sin(angle)
    dx, dy = far * r * math.cos(to) - x, far * r * math.sin(to) - y
    first, last = crossings(x, y, dx, dy, r)
    assert first <= last
    if first < last:
        for share in (first, last):
            at = math.hypot(x + share * dx, y + share * dy)
            assert at == pytest.approx(r, rel=1e-9 * max(1.0, abs(share)))
