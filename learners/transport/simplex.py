"""Simplex method for one transport problem, which ends exactly where the interior-point method may not.

When parts of the marginals add up to the same total (integer marginals, zeros), the optimal flow falls apart into
pieces that no flow connects, and in float64 the interior-point iterates cannot tell how the potentials of the pieces
relate. From their plan a vertex is taken that is optimal or nearly so, and a few pivots finish it (the
"stepping stone" or MODI method, G. B. Dantzig, "Linear Programming and Extensions", 1963, ch. 14).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vnetsim.errors import RunError

Array = NDArray[np.float64]
Cell = tuple[int, int]

TOLERANCE = 1e-14  # on reduced costs, in units of the largest cost
DANTZIG_PIVOTS = 1_000  # with the steepest reduced cost; then by Bland's rule, which cannot cycle
MAX_PIVOTS = 20_000


def finish(cost: Array, a: Array, b: Array, plan: Array) -> tuple[Array, Array]:
    """Return an optimal vertex and optimal column potentials.

    Args:
        cost: c, shape (n, m), largest entry about 1.
        a: row sums >= 0, shape (n,).
        b: column sums >= 0 of the same total, shape (m,).
        plan: a nearly optimal flow, shape (n, m); only the order of its entries matters.

    Returns:
        The flow, shape (n, m), and v with c_ij - u_i - v_j >= 0, zero where flow may be positive, shape (m,).

    Raises:
        RunError: after ``MAX_PIVOTS``, which nothing is known to cause.
    """
    flow, tree = _vertex(a, b, plan)
    for pivot in range(MAX_PIVOTS):
        u, v = _potentials(cost, tree)
        reduced = cost - u[:, None] - v
        if reduced.min() >= -TOLERANCE:
            return flow, v
        if pivot < DANTZIG_PIVOTS:
            entering = divmod(int(reduced.argmin()), len(b))
        else:
            entering = divmod(int((reduced < -TOLERANCE).argmax()), len(b))
        _pivot(flow, tree, entering)
    raise RunError(f"a transport problem of {len(a)} x {len(b)} did not end after {MAX_PIVOTS} simplex pivots")


def _vertex(a: Array, b: Array, plan: Array) -> tuple[Array, set[Cell]]:
    """Fill the cells greedily, largest plan first; each fills up one row or column, which makes a spanning tree."""
    left_a, left_b = a.copy(), b.copy()
    rows, columns = set(range(len(a))), set(range(len(b)))
    flow = np.zeros_like(plan)
    tree: set[Cell] = set()
    for index in np.argsort(-plan, axis=None, kind="stable").tolist():
        i, j = divmod(index, len(b))
        if i not in rows or j not in columns:
            continue
        amount = min(left_a[i], left_b[j])
        flow[i, j] = amount
        tree.add((i, j))
        left_a[i] -= amount
        left_b[j] -= amount
        if len(columns) == 1 or (len(rows) > 1 and left_a[i] <= left_b[j]):
            rows.remove(i)
        else:
            columns.remove(j)
    return flow, tree


def _neighbours(tree: set[Cell], n: int) -> dict[int, list[int]]:
    """Return the tree as adjacency lists; column j is node n + j."""
    lists: dict[int, list[int]] = {}
    for i, j in tree:
        lists.setdefault(i, []).append(n + j)
        lists.setdefault(n + j, []).append(i)
    return lists


def _potentials(cost: Array, tree: set[Cell]) -> tuple[Array, Array]:
    """Solve u_i + v_j = c_ij on the tree, with u_0 = 0."""
    n = len(cost)
    lists = _neighbours(tree, n)
    y = np.zeros(sum(cost.shape))
    seen, queue = {0}, [0]
    for node in queue:
        for other in lists[node]:
            if other not in seen:
                seen.add(other)
                queue.append(other)
                y[other] = cost[min(node, other), max(node, other) - n] - y[node]
    return y[:n], y[n:]


def _pivot(flow: Array, tree: set[Cell], entering: Cell) -> None:
    """Send as much as possible around the cycle that ``entering`` closes, in place."""
    n = len(flow)
    lists = _neighbours(tree, n)
    start, end = entering[0], n + entering[1]
    parent, queue = {start: start}, [start]
    for node in queue:
        for other in lists[node]:
            if other not in parent:
                parent[other] = node
                queue.append(other)
    path: list[Cell] = []
    node = end
    while node != start:
        path.append((min(node, parent[node]), max(node, parent[node]) - n))
        node = parent[node]
    giving, taking = path[0::2], path[1::2]
    leaving = min(giving, key=lambda cell: (flow[cell], cell))
    amount = flow[leaving]
    for cell in giving:
        flow[cell] -= amount
    for cell in taking:
        flow[cell] += amount
    flow[entering] = amount
    flow[leaving] = 0.0
    tree.remove(leaving)
    tree.add(entering)
