"""Splits: rules for keeping problems away from training.

Every rule is a property of the problem itself, decided by a hash or written with the scheme, so no
list of seen problems is needed and two machines agree:

* `unseen_structures`: at least one scheme of the story never occurs in training;
* `unseen_wordings`: *every* sentence of the story has a wording that never occurs in training;
* `unseen_combinations`: known schemes and wordings in a sequence that never occurs in training;
* `new_numbers`: known sequence and wordings, with numbers that the sequence never has in training;
* `train`: everything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum

from loopline.agents.environments.word_problems.scheme import Scheme


class Split(StrEnum):
    """Disjoint parts of all problems."""

    TRAIN = "train"
    NEW_NUMBERS = "new_numbers"
    UNSEEN_COMBINATIONS = "unseen_combinations"
    UNSEEN_WORDINGS = "unseen_wordings"
    UNSEEN_STRUCTURES = "unseen_structures"


HELD_OUT = tuple(split for split in Split if split is not Split.TRAIN)

_COMBINATIONS_MODULUS = 6
_NUMBERS_MODULUS = 12


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def holds_out_combination(chain: Sequence[Scheme]) -> bool:
    """Whether this sequence of schemes is kept away from training (about one in six)."""
    return _hash("+".join(link.name for link in chain)) % _COMBINATIONS_MODULUS == 0


def accepts_numbers(
    split: Split, chain: Sequence[Scheme], numbers: Sequence[Mapping[str, int]]
) -> bool:
    """Whether these numbers may occur in the split. One in twelve is for `new_numbers`."""
    text = ";".join(
        f"{link.name}:{sorted(values.items())}" for link, values in zip(chain, numbers, strict=True)
    )
    new = _hash(text) % _NUMBERS_MODULUS == 0
    match split:
        case Split.TRAIN:
            return not new
        case Split.NEW_NUMBERS:
            return new
        case _:
            return True
