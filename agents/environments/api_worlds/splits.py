"""Splits: rules for keeping instances away from training.

Every rule is a property of the instance itself, decided by a hash or written below, so no list of
seen instances is needed and two machines agree:

* `unseen_apis`: the intent needs an API that training never calls and never offers;
* `unseen_combinations`: known APIs in a combination that training never has;
* `unseen_wordings`: the request has a wording and a frame that training never has;
* `unseen_worlds`: a world that training never has, and a wording that training has, but never with
  these names and numbers; so none of its instructions occurs in training, either;
* `train`: none of these.

An instance that fits several of these, or a held-out instruction in a training world, is left out,
so that a split's figure measures a single property.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from enum import StrEnum

from loopline.agents.environments.api_worlds.domains import APIS
from loopline.agents.environments.api_worlds.intent import Intent, Slots, Wording
from loopline.agents.environments.api_worlds.intents import COMBINED, SINGLE


class Split(StrEnum):
    """Disjoint parts of all instances."""

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
"""APIs that training never sees: two whole domains, and single APIs of known domains."""

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
    uses the wording, not the intent: otherwise training would see only one order of the two values
    of `first` and `second`."""
    return _hash(f"{wording.id} {sorted(slots.items())}") % _INSTRUCTIONS_MODULUS == 0


def split_of(
    intent: Intent, wording: Wording, world: int, slots: Slots, offered: Collection[str]
) -> Split | None:
    """Return the split of an instance; `None` if no split includes it."""
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
    """Return the intents that a split may use: single ones, and combinations."""

    def fits(intent: Intent) -> bool:
        unseen_api = not HELD_OUT_APIS.isdisjoint(intent.tools)
        unseen_pair = not unseen_api and holds_out_combination(intent)
        right_apis = unseen_api == (split is Split.UNSEEN_APIS)
        return right_apis and unseen_pair == (split is Split.UNSEEN_COMBINATIONS)

    return tuple(filter(fits, SINGLE)), tuple(filter(fits, COMBINED))
