"""Converts the merges of a BPE tokenizer to scores of its pieces, which llama.cpp uses.

BPE (as in tokenizer.json) works with pairs: among the neighbours that some merge joins, those of
the earliest merge are joined first, from left to right. llama.cpp's SentencePiece-style tokenizer
works with pieces: any neighbours that form a piece may be joined, and the piece with the highest
score is joined first, from left to right. With scores by each piece's earliest merge, both give
equal results under three conditions: every two pieces that form a piece are a merge; the merges
that form one piece are adjacent; and if two merges compete for a neighbour, both tokenizers prefer
the same one.

All this is true by construction for tokenizers that were converted from SentencePiece, except for
runs of one character, such as blanks (`▁▁▁` is `▁` and `▁▁`, and the other way round). Their merges
may be in any order, so both tokenizers are tried on the texts in question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

REPEATS = 3
"""Number of times that an ambiguous text is repeated when it is tried."""

MAX_DISTANCE = 1000
"""Largest distance between the first and the last merge that form one piece; it limits the texts
that have to be tried."""

Pair = tuple[str, str]


def scores_of_merges(merges: Sequence[Pair], pieces: Sequence[str]) -> dict[str, int]:
    """The score of each piece that merges form: the earlier, the higher.

    `pieces` are the tokens that llama.cpp could form from text, including characters and bytes.
    Raises ValueError, which lists the pieces, if llama.cpp would split some text differently.
    """
    rank = {pair: place for place, pair in enumerate(merges)}
    order: dict[str, int] = {}
    for left, right in merges:
        order.setdefault(left + right, len(order))
    _refuse_ambiguous_merges(pieces, rank)
    for text in sorted(_ambiguous_texts(merges), key=lambda text: (len(text), text)):
        by_pair = _join(text, lambda left, right: rank.get((left, right)))
        by_score = _join(text, lambda left, right: order.get(left + right))
        if by_pair != by_score:
            raise ValueError(f"llama.cpp would split {text!r} into {by_score}, not {by_pair}")
    return {piece: -place for piece, place in order.items()}


def _refuse_ambiguous_merges(pieces: Sequence[str], rank: dict[Pair, int]) -> None:
    piece_set = set(pieces)
    for piece in pieces:
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            # llama.cpp also joins a character that is not a piece.
            parts = (len(part) == 1 or part in piece_set for part in (left, right))
            if all(parts) and (left, right) not in rank:
                raise ValueError(
                    f"llama.cpp would join {left!r} and {right!r} to {piece!r}, but no merge does"
                )


def _ambiguous_texts(merges: Sequence[Pair]) -> set[str]:
    """Texts in which two merges compete for the same neighbour: BPE prefers the earlier one, and
    llama.cpp the other one, since its piece has an earlier merge or since it is further left."""
    first: dict[str, int] = {}
    texts: set[str] = set()
    for place, (left, right) in enumerate(merges):
        piece = left + right
        start = first.setdefault(piece, place)
        if place - start > MAX_DISTANCE:
            raise ValueError(f"the merges that form {piece!r} are too far apart")
        for other_left, other_right in merges[start:place]:
            other_piece = other_left + other_right
            if other_piece != piece and not (_is_run(piece) and _is_run(other_piece)):
                raise ValueError(
                    f"llama.cpp would split some text with {piece!r} differently: the merge that "
                    f"forms {other_piece!r} is between the merges that form it"
                )
            begins = first[other_piece]
            if begins >= start and right == other_left:
                texts.add(left + right + other_right)
            if begins > start and other_right == left:
                texts.add(other_left + left + right)
    return {text * times for text in texts for times in range(1, REPEATS + 1)}


def _is_run(piece: str) -> bool:
    return len(set(piece)) == 1


def _join(text: str, rank: Callable[[str, str], int | None]) -> list[str]:
    """The parts of a text after all joins: lowest rank first, then from left to right."""
    parts = list(text)
    while True:
        possible = [
            (pair_rank, at)
            for at, (left, right) in enumerate(pairwise(parts))
            if (pair_rank := rank(left, right)) is not None
        ]
        if not possible:
            return parts
        _, at = min(possible)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
