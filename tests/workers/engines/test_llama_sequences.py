"""Cell ownership: the count compared with sets, over random lives of sequences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loopline.workers.engines.llama_cpp.sequences import LlamaSequence, Sequences
from loopline.workers.engines.local.backend import common_prefix

IN_USE, KEPT, CELLS = 4, 3, 200
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


class Memory:
    """A model of llama.cpp's memory: each sequence's tokens; a copy shares cells with its
    source."""

    def __init__(self) -> None:
        self.cells: dict[int, list[object]] = {}

    def copy(self, source: int, target: int, length: int) -> None:
        assert target not in self.cells, "into a place that is in use"
        assert len(self.cells[source]) >= length
        self.cells[target] = self.cells[source][:length]

    def drop(self, sequence: int) -> None:
        self.cells.pop(sequence, None)

    def used(self) -> int:
        return len({id(cell) for cells in self.cells.values() for cell in cells})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), TOKENS), max_size=60))
def test_the_cell_count_matches_the_memory(moves: list[tuple[int, int, list[int]]]) -> None:
    memory = Memory()
    pool = Sequences(memory, cells=CELLS, in_use=IN_USE, idle=KEPT)
    working: list[LlamaSequence] = []
    for what, key, ids in moves:
        if what < 5 and len(working) < IN_USE:
            source, length = pool.longest_prefix(key, ids)
            if source is not None:
                assert source.key == key, "a beginning computed under another adapter"
                assert source.tokens[:length] == ids[:length]
            sequence = pool.open(key, source, length)
            pool.extend(sequence, ids[length:])
            memory.cells.setdefault(sequence.number, []).extend(object() for _ in ids[length:])
            assert sequence.tokens == ids
            working.append(sequence)
        elif what < 7 and working:
            pool.finish(working.pop(0))
        elif what < 8 and working:
            pool.drop(working.pop())
        elif what < 9:
            pool.evict_oldest()
        else:
            pool.forget(key)
        assert CELLS - pool.free_cells == memory.used()
        assert pool.spare_cells >= pool.free_cells
    for sequence in working:
        pool.drop(sequence)
    while pool.evict_oldest():
        pass
    assert pool.free_cells == CELLS
    assert memory.used() == 0


@given(TOKENS, TOKENS)
def test_the_longest_common_prefix_is_found(a: list[int], b: list[int]) -> None:
    length = common_prefix(a, b)
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]
