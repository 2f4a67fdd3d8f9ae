"""Splits: what is kept away from training, and how.

Every rule is a property of the instance itself, decided by a hash or written below, so no list of
seen instances has to be kept and two machines agree:

* `unseen_apis`: the intent needs an API that training never calls and never offers;
* `unseen_combinations`: known APIs in a combination that training never has;
* `unseen_wordings`: the request is said in a way, and framed in a way, that training never has;
* `unseen_worlds`: a world that training never has, and a wording that training has, but never with
  these names and numbers; so none of its instructions is one of training, either;
* `train`: none of these.

An instance that several of them would claim, or a held-out instruction in a world of training, is
left out: a number for one split measures one thing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from enum import StrEnum

from loopline.agents.environments.api_worlds.domains import APIS
from loopline.agents.environments.api_worlds.intent import Intent, Slots, Wording
from loopline.agents.environments.api_worlds.intents import COMBINED, SINGLE


class Split(StrEnum):
    """The parts into which all instances fall; no instance is in two of them."""

    TRAIN = "train"
    UNSEEN_WORLDS = "unseen_worlds"
    UNSEEN_WORDINGS = "unseen_wordings"
    UNSEEN_COMBINATIONS = "unseen_combinations"
    UNSEEN_APIS = "unseen_apis"


HELD_OUT = tuple(split for split in Split if split is not Split.TRAIN)

HELD_OUT_DOMAINS = frozenset({"hotels", "sports"})
HELD_OUT_APIS = frozenset(
    name
    for name, api in APIS.items()
    if api.domain in HELD_OUT_DOMAINS
    or name
    in {"air_quality", "move_event", "pay_bill", "recipe_calories", "renew_loan", "travel_time",
        "update_phone"}
)  # fmt: skip
"""APIs that training never sees: two whole domains, and single ones of known domains."""

_COMBINED = frozenset(intent.name for intent in COMBINED)
_COMBINATIONS_MODULUS = 5
_WORLDS_MODULUS = 8
_INSTRUCTIONS_MODULUS = 8


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def holds_out_combination(intent: Intent) -> bool:
    """Whether training never has these APIs together (about one combination in five)."""
    together = "+".join(sorted(intent.tools))
    return intent.name in _COMBINED and _hash(f"pair {together}") % _COMBINATIONS_MODULUS == 0


def holds_out_world(seed: int) -> bool:
    """Whether training never sees the world (one in eight)."""
    return _hash(f"world {seed}") % _WORLDS_MODULUS == 0


def holds_out_instruction(wording: Wording, slots: Slots) -> bool:
    """Whether training never has the wording with these names and numbers (one in eight). The rule
    is not on the intent with them: of the two values of `first` and `second` it would then see only
    one."""
    return _hash(f"{wording.id} {sorted(slots.items())}") % _INSTRUCTIONS_MODULUS == 0


def split_of(
    intent: Intent, wording: Wording, world: int, slots: Slots, offered: Collection[str]
) -> Split | None:
    """Split that an instance belongs to; `None` where none includes it."""
    reasons: list[Split] = []
    if not HELD_OUT_APIS.isdisjoint((*intent.tools, *offered)):
        reasons.append(Split.UNSEEN_APIS)
    elif holds_out_combination(intent):
        reasons.append(Split.UNSEEN_COMBINATIONS)
    if wording.held_out:
        reasons.append(Split.UNSEEN_WORDINGS)
    held_out_world = holds_out_world(world)
    if held_out_world != holds_out_instruction(wording, slots):
        return None
    if held_out_world:
        reasons.append(Split.UNSEEN_WORLDS)
    if len(reasons) > 1:
        return None
    return reasons[0] if reasons else Split.TRAIN


def intents_of(split: Split) -> tuple[tuple[Intent, ...], tuple[Intent, ...]]:
    """The intents that a split may use: those of one part, and combinations."""

    def fits(intent: Intent) -> bool:
        unseen_api = not HELD_OUT_APIS.isdisjoint(intent.tools)
        unseen_pair = not unseen_api and holds_out_combination(intent)
        right_apis = unseen_api == (split is Split.UNSEEN_APIS)
        return right_apis and unseen_pair == (split is Split.UNSEEN_COMBINATIONS)

    return tuple(filter(fits, SINGLE)), tuple(filter(fits, COMBINED))
