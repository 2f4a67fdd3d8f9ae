"""Tables on terminals of any width."""

from __future__ import annotations

import io
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from loopline.runtime.terminal.tables import new_table

Cells = list[list[str]]
CELL = st.text(alphabet="0123456789.,%−", min_size=1, max_size=24)


@given(
    st.integers(1, 14).flatmap(
        lambda columns: st.lists(
            st.lists(CELL, min_size=columns, max_size=columns), min_size=1, max_size=4
        )
    )
)
def test_numbers_are_wrapped_and_no_digit_is_lost(rows: Cells) -> None:
    head = [f"h{at}" for at in range(len(rows[0]))]
    table = new_table(*head, words=("h0",))
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=80).print(table)
    cells = "".join("".join(row) for row in (head, *rows))
    assert Counter("".join(out.getvalue().split())) == Counter(cells)
