"""Divides the rows of an update among several processes. Every process computes the same division,
so they need not communicate.

If the weights are sharded over the processes (FSDP), each pass needs the parts of all processes, so
that all must make equally many passes. A process with fewer micro-batches repeats a row, from which
nothing is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopline.trainers.core.processes import Processes
from loopline.trainers.grpo.rows import MicroBatch, Row


def deal_rows(rows: Sequence[Row], count: int, *, share_prefixes: bool) -> list[list[int]]:
    """Indices of each process's rows, in order.

    Rows are dealt one by one. If rows with a common prefix go through the model as one tree, the
    rows of a prompt stay together instead, since otherwise each process would compute all prompts.
    With too few prompts or too long answers this would give one process more work than dealing one
    by one; then rows are dealt one by one.
    """
    one_by_one = [list(range(index, len(rows), count)) for index in range(count)]
    if count == 1 or not share_prefixes:
        return one_by_one
    prompts = [row.prompt for row in rows]

    def most(shares: list[list[int]]) -> int:
        return max(_tokens(rows, prompts, share) for share in shares)

    return min(_by_prompt(rows, prompts, count), one_by_one, key=most)


def _by_prompt(
    rows: Sequence[Row], prompts: Sequence[tuple[int, ...]], count: int
) -> list[list[int]]:
    """Assign the largest trees first, each to the process that has the least so far."""
    trees: dict[tuple[int, ...], list[int]] = {}
    for number, prompt in enumerate(prompts):
        trees.setdefault(prompt, []).append(number)
    sized = [(_tokens(rows, prompts, tree), tree) for tree in trees.values()]
    shares, loads = [list[int]() for _ in range(count)], [0] * count
    for size, tree in sorted(sized, key=lambda pair: -pair[0]):
        least = loads.index(min(loads))
        shares[least] += tree
        loads[least] += size
    return [sorted(share) for share in shares]


def _tokens(rows: Sequence[Row], prompts: Sequence[tuple[int, ...]], numbers: Sequence[int]) -> int:
    """Tokens that go through the model: each prompt once, and each answer."""
    answers = sum(len(rows[number].sequence.ids) - len(prompts[number]) for number in numbers)
    return answers + sum(map(len, {prompts[number] for number in numbers}))


def echoes_of(
    rows: Sequence[Row],
    micro_batches: Sequence[MicroBatch],
    cut: Callable[[Sequence[Row]], Sequence[MicroBatch]],
    processes: Processes,
) -> list[MicroBatch]:
    """Micro-batches from which nothing is learned, added to a process's `micro_batches` so that all
    make equally many passes; none unless the weights are sharded. `rows` are those of all
    processes."""
    if not processes.sharded or not rows:
        return []
    missing = processes.largest_of(len(micro_batches)) - len(micro_batches)
    return list(cut(rows[:1])) * missing
