"""A second Sudoku solver: exact cover by Knuth's Algorithm X on sets (Dancing Links, 2000). It
shares neither code nor method with the environment's solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Choice = tuple[int, int, int]
"""Row, column, digit."""
Need = tuple[str, int, int]


def solutions(givens: Sequence[Sequence[int]]) -> Iterator[list[list[int]]]:
    """Yield every completion of a grid; 0 is blank."""
    size = len(givens)
    side = int(size**0.5)
    needs: dict[Need, set[Choice]] = {}
    meets: dict[Choice, list[Need]] = {}
    for r in range(size):
        for c in range(size):
            for d in [givens[r][c]] if givens[r][c] else range(1, size + 1):
                box = r // side * side + c // side
                meets[r, c, d] = [("cell", r, c), ("row", r, d), ("column", c, d), ("box", box, d)]
                for need in meets[r, c, d]:
                    needs.setdefault(need, set()).add((r, c, d))
    if len(needs) < 4 * size * size:
        return
    for cover in _covers(needs, meets, []):
        grid = [[0] * size for _ in range(size)]
        for r, c, d in cover:
            grid[r][c] = d
        yield grid


def _covers(
    needs: dict[Need, set[Choice]], meets: dict[Choice, list[Need]], partial_cover: list[Choice]
) -> Iterator[list[Choice]]:
    if not needs:
        yield partial_cover
        return
    need = min(needs, key=lambda need: len(needs[need]))
    for choice in sorted(needs[need]):
        gone = {conflict for met in meets[choice] for conflict in needs[met]}
        rest = {n: needs[n] - gone for n in needs if n not in meets[choice]}
        yield from _covers(rest, meets, [*partial_cover, choice])
