"""Where a straight segment crosses a circle."""

from __future__ import annotations

import math


def crossings(x_m: float, y_m: float, dx_m: float, dy_m: float, radius_m: float) -> tuple[float, float]:
    """Return at which shares of a segment its line enters and leaves a disc; equal when it misses.

    |f + s d|^2 = r^2 with f from the centre to the start and d along the segment. The discriminant is written with
    the cross product, and each root in the form that does not subtract nearly equal numbers: shares keep their digits
    at the rim and at grazing incidence.

    Args:
        x_m: start of the segment as seen from the circle's centre (m), like ``y_m``.
        y_m: see ``x_m``.
        dx_m: from its start to its end (m), like ``dy_m``.
        dy_m: see ``dx_m``.
        radius_m: of the circle (m).
    """
    a = dx_m * dx_m + dy_m * dy_m
    b = x_m * dx_m + y_m * dy_m
    # (|f| - r)(|f| + r) keeps the digits of a start close to the circle
    distance_m = math.hypot(x_m, y_m)
    c = (distance_m - radius_m) * (distance_m + radius_m)
    cross = x_m * dy_m - y_m * dx_m
    discriminant = a * radius_m * radius_m - cross * cross
    if a == 0 or discriminant <= 0:
        # A miss, a tangent, or rounding at the circle: both crossings at the closest point.
        closest = -b / a if a > 0 else 0.0
        return closest, closest
    root = math.sqrt(discriminant)
    if b > 0:
        q = -(b + root)
        return q / a, c / q
    q = root - b
    return c / q, q / a
