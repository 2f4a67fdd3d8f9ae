"""Rows that share a prefix go through the model as one tree: each id once, however many candidates
share it.

A row of the micro-batch is a tree. An id attends only to itself and its ancestors, at the position
of its depth, so that every log-probability equals that of the separate sequence up to rounding. If
K short candidates answer one long prompt, this saves most of a training's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.trainers.core.network import Network
from loopline.trainers.grpo.rows import LENGTH_STEP, MicroBatch, Row

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TreeMicroBatch(MicroBatch):
    """A micro-batch whose rows are trees; `sequence` numbers the sampled rows of this process's
    whole share of the minibatch."""

    parents: torch.Tensor
    """[n]: index in [rows · length] of the hidden state that predicts each learned id."""
    children: torch.Tensor
    """[n]: the learned ids."""
    positions: torch.Tensor
    """[rows, length]: depth of each id."""
    above: torch.Tensor
    """[rows, length], in CPU memory: the index of each id's parent in its row; -1 for ids without a
    parent, including padding."""

    @property
    def targets(self) -> torch.Tensor:
        return self.children

    def logits(self, network: Network) -> torch.Tensor:
        return network.tree_logits(self.ids, self.positions, self.ancestor_mask(), self.parents)

    def hidden(self, network: Network) -> torch.Tensor:
        return network.tree_hidden(self.ids, self.positions, self.ancestor_mask(), self.parents)

    def ancestor_mask(self) -> torch.Tensor:
        """[rows, 1, length, length]: whether the second id is the first or one of its ancestors.

        The mask grows with the square of the length, and a step holds all of its micro-batches at
        once. Therefore each pass through the model computes it again, and no micro-batch keeps it.
        """
        import numpy as np
        import torch

        rows, length = self.above.shape
        # Padding attends to itself: a softmax over nothing is NaN.
        mask = np.tile(np.eye(length, dtype=np.bool_), (rows, 1, 1))
        above: list[list[int]] = self.above.tolist()
        for row_index, parents in enumerate(above):
            trunk = _trunk(parents)
            mask[row_index, :trunk, :trunk] = np.tri(trunk, dtype=np.bool_)
            for at in range(trunk, length):
                up = parents[at]
                if up >= 0:
                    mask[row_index, at] |= mask[row_index, up]
        return torch.from_numpy(mask)[:, None].to(self.ids.device)


class _Tree:
    """One tree: its nodes in the order in which they were added."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.parents: list[int] = []
        self.learned: list[tuple[int, int]] = []
        """Parent and id of each learned token, row after row."""
        self.rows: list[tuple[int, Row]] = []
        self._children: dict[tuple[int, int], int] = {}

    def add(self, number: int, row: Row) -> None:
        at = -1
        for token, learned in zip(row.sequence.ids, row.sequence.learned, strict=True):
            if learned:
                self.learned.append((at, token))
            key = (at, token)
            node = self._children.get(key)
            if node is None:
                node = self._children[key] = len(self.ids)
                self.ids.append(token)
                self.parents.append(at)
            at = node
        self.rows.append((number, row))


def tree_micro_batches_of(
    rows: Sequence[Row], micro_batch_tokens: int, device: torch.device
) -> list[TreeMicroBatch]:
    """The rows as trees, one for each prompt (the ids before the first learned one), in
    micro-batches of at most that many tokens. A tree that would be longer is split as well; a row
    that is longer by itself becomes its own micro-batch."""
    trees: list[_Tree] = []
    by_prompt: dict[tuple[int, ...], _Tree] = {}
    for number, row in enumerate(rows):
        prompt = row.prompt
        tree = by_prompt.get(prompt)
        if tree is None or len(tree.ids) + len(row.sequence.ids) - len(prompt) > micro_batch_tokens:
            tree = by_prompt[prompt] = _Tree()
            trees.append(tree)
        tree.add(number, row)
    trees.sort(key=lambda tree: len(tree.ids))
    micro_batches: list[TreeMicroBatch] = []
    begin = 0
    for at in range(1, len(trees) + 1):
        if at == len(trees) or _length(trees[at]) * (at + 1 - begin) > micro_batch_tokens:
            micro_batches.append(_micro_batch(trees[begin:at], device))
            begin = at
    return micro_batches


def _length(tree: _Tree) -> int:
    return -(-len(tree.ids) // LENGTH_STEP) * LENGTH_STEP


def _trunk(parents: Sequence[int]) -> int:
    """Number of ids in sequence before the tree branches or ends."""
    return next((at for at, up in enumerate(parents) if up != at - 1), len(parents))


def _micro_batch(trees: Sequence[_Tree], device: torch.device) -> TreeMicroBatch:
    import numpy as np
    import torch

    length = _length(trees[-1])
    ids = np.zeros((len(trees), length), dtype=np.int64)
    positions = np.zeros((len(trees), length), dtype=np.int64)
    above = np.full((len(trees), length), -1, dtype=np.int32)
    parents: list[int] = []
    children: list[int] = []
    behaviour: list[float] = []
    sequence: list[int] = []
    advantages: list[float] = []
    temperatures: list[float] = []
    for number, tree in enumerate(trees):
        ids[number, : len(tree.ids)] = tree.ids
        above[number, : len(tree.ids)] = tree.parents
        trunk = _trunk(tree.parents)
        positions[number, :trunk] = np.arange(trunk)
        for at in range(trunk, len(tree.ids)):
            up = tree.parents[at]
            if up >= 0:
                positions[number, at] = positions[number, up] + 1
        parents += [number * length + up for up, _ in tree.learned]
        children += [token for _, token in tree.learned]
        for row_number, row in tree.rows:
            token_sequence = row.sequence
            behaviour += [
                p
                for p, learned in zip(token_sequence.logprobs, token_sequence.learned, strict=True)
                if learned
            ]
            sequence += [row_number] * token_sequence.count
            advantages += [row.advantage] * token_sequence.count
            temperatures += [token_sequence.temperature] * token_sequence.count
    whole = torch.from_numpy(ids)
    return TreeMicroBatch(
        ids=whole.to(device),
        learned=torch.zeros(0, dtype=torch.bool, device=device),
        behaviour=torch.tensor(behaviour, device=device),
        advantages=torch.tensor(advantages, device=device),
        temperatures=torch.tensor(temperatures, device=device),
        sequence=torch.tensor(sequence, device=device),
        first=0,
        parents=torch.tensor(parents, device=device),
        children=torch.tensor(children, device=device),
        positions=torch.from_numpy(positions).to(device),
        above=torch.from_numpy(above),
    )
