"""The merges of a BPE tokenizer as scores of its pieces, which is what llama.cpp goes by.

BPE (as in tokenizer.json) knows pairs: of the neighbours that some merge joins, those of the
earliest merge are joined first, from left to right. llama.cpp's tokenizer of SentencePiece's style
knows pieces: any neighbours that make a piece may be joined, and of those the piece with the
highest score is, from left to right. With scores by each piece's earliest merge both do the same,
if every two pieces that make a piece are a merge, if the merges that make one piece stand together,
and if of two merges that want the same neighbour both prefer the same one.

All this holds by construction for tokenizers that were converted from SentencePiece, but for runs
of one character, such as blanks (`▁▁▁` is `▁` and `▁▁`, and the other way round): they may stand in
any order, and so both ways are tried on the texts in question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

REPEATS = 3
"""Number of times that an ambiguous text is repeated when it is tried."""

MAX_DISTANCE = 1000
"""Largest distance between the first and the last merge that make one piece; it bounds the texts
that have to be tried."""

Pair = tuple[str, str]


def scores_of_merges(merges: Sequence[Pair], pieces: Sequence[str]) -> dict[str, int]:
    """The score of each piece that merges make: the earlier, the higher.

    `pieces` are the tokens that llama.cpp could make out of text, characters and bytes included.
    Raises ValueError, which names the pieces, if llama.cpp would cut some text otherwise.
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
            raise ValueError(f"llama.cpp would cut {text!r} into {by_score}, not {by_pair}")
    return {piece: -place for piece, place in order.items()}


def _refuse_ambiguous_merges(pieces: Sequence[str], rank: dict[Pair, int]) -> None:
    piece_set = set(pieces)
    for piece in pieces:
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            # A character that is not a piece is joined by llama.cpp, too.
            parts = (len(part) == 1 or part in piece_set for part in (left, right))
            if all(parts) and (left, right) not in rank:
                raise ValueError(
                    f"llama.cpp would join {left!r} and {right!r} to {piece!r}, but no merge does"
                )


def _ambiguous_texts(merges: Sequence[Pair]) -> set[str]:
    """Texts in which two merges want the same neighbour: BPE prefers the earlier one, and
    llama.cpp the other one, since its piece has an earlier merge or since it is further left."""
    first: dict[str, int] = {}
    texts: set[str] = set()
    for place, (left, right) in enumerate(merges):
        piece = left + right
        start = first.setdefault(piece, place)
        if place - start > MAX_DISTANCE:
            raise ValueError(f"the merges that make {piece!r} stand too far apart")
        for other_left, other_right in merges[start:place]:
            other_piece = other_left + other_right
            if other_piece != piece and not (_is_run(piece) and _is_run(other_piece)):
                raise ValueError(
                    f"llama.cpp would cut some text with {piece!r} otherwise: between the merges "
                    f"that make it stands the one that makes {other_piece!r}"
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
    """The parts of a text after all joining: lowest rank first, then from left to right."""
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
