"""Batches as a pure function of seed and step: resuming needs only the step's number.

Steps are made in groups. The dialogues of a group are sorted by length before they are split into
batches, which reduces padding; the order of the batches is then shuffled again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from loopline.trainers.core.tokenizer import END, END_OF_TEXT, START, token_id
from loopline.trainers.sft.dialogues import Dialogue, dialogues, system_line
from loopline.trainers.sft.recipes import Recipe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

GROUP = 8
"""Steps per group."""
LENGTH_STEP = 16
"""Lengths are rounded up to a multiple of this: fewer shapes, so that freed memory fits the next
batch."""


@dataclass(frozen=True)
class Batch:
    """Token ids, padded on the right, and a mask of the learned ones; both [rows, length]."""

    ids: list[list[int]]
    learned: list[list[bool]]

    @property
    def tokens(self) -> int:
        return len(self.ids) * len(self.ids[0])


def batches(recipe: Recipe, tokenizer: Tokenizer, *, start: int) -> Iterator[tuple[int, Batch]]:
    """Yield `(step, batch)` endlessly, starting with step `start`."""
    padding = token_id(tokenizer, END_OF_TEXT)
    group = start // GROUP
    while True:
        seed = recipe.seed * 1_000_003 + group
        selected_dialogues = list(islice(dialogues(recipe.mix, seed), GROUP * recipe.batch))
        rows = sorted(encode_all(tokenizer, selected_dialogues), key=lambda row: len(row[0]))
        cut = [rows[i : i + recipe.batch] for i in range(0, len(rows), recipe.batch)]
        random.Random(seed).shuffle(cut)
        for offset, part in enumerate(cut):
            step = group * GROUP + offset
            if step >= start:
                yield step, _pad_rows(part, padding)
        group += 1


def encode_all(
    tokenizer: Tokenizer, dialogues: list[Dialogue]
) -> list[tuple[list[int], list[bool]]]:
    """Encode each dialogue as ids and, per id, whether it is learned.

    Text is split where an engine splits it: before and after the text that the model itself writes.
    """
    texts: list[str] = []
    learned: list[bool] = []
    counts: list[int] = []
    for dialogue in dialogues:
        before = len(texts)
        text = f"{START}system\n{system_line(dialogue.tools)}{END}\n"
        for turn in dialogue.turns:
            text += f"{START}{turn.role}\n"
            if turn.learned:
                texts += [text, f"{turn.text}{END}"]
                learned += [False, True]
                text = "\n"
            else:
                text += f"{turn.text}{END}\n"
        counts.append(len(texts) - before)
    encoded = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    rows: list[tuple[list[int], list[bool]]] = []
    at = 0
    for count in counts:
        ids: list[int] = []
        mask: list[bool] = []
        for piece, is_learned in zip(
            encoded[at : at + count], learned[at : at + count], strict=True
        ):
            ids += piece
            mask += [is_learned] * len(piece)
        rows.append((ids, mask))
        at += count
    return rows


def _pad_rows(rows: list[tuple[list[int], list[bool]]], padding: int) -> Batch:
    longest = max(len(ids) for ids, _ in rows)
    length = -(-longest // LENGTH_STEP) * LENGTH_STEP
    return Batch(
        ids=[ids + [padding] * (length - len(ids)) for ids, _ in rows],
        learned=[mask + [False] * (length - len(mask)) for _, mask in rows],
    )
