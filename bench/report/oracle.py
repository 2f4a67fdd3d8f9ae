"""The upper bound of any router between two models, and the line that a useful router must beat.

A router picks one of two models per question. The *oracle* picks the cheap model wherever it is
right, and the expensive one where only that one is right: no router is more accurate, for any share
of questions sent to the expensive model. *Mixing* sends questions at random: a router on that line
has learnt nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopline.bench.report.facts import ArmRuns

SOLO_ARMS = ("llm", "slm")


def oracle_of(arms: Sequence[ArmRuns]) -> dict[str, Any] | None:
    """Return the oracle over the two single-model arms; None unless both exist. Costs are per
    question, in micro-dollars and in tokens.
    """
    by_name = {arm.name: arm for arm in arms}
    if not all(name in by_name for name in SOLO_ARMS):
        return None
    big, small = (by_name[name] for name in SOLO_ARMS)
    big_runs, small_runs = big.by_item(), small.by_item()
    shared = [item for item in big_runs if item in small_runs]
    if not shared:
        return None
    right = sent_to_big = 0
    micro = tokens = 0
    for item in shared:
        small_right = small_runs[item].right
        big_right = big_runs[item].right
        right += small_right or big_right
        takes_big = big_right and not small_right
        sent_to_big += takes_big
        arm, runs = (big, big_runs) if takes_big else (small, small_runs)
        paid = arm.spent_on(runs[item])
        micro += paid.micro_dollars
        tokens += paid.tokens
    n = len(shared)
    return {
        "n": n,
        "right": right,
        "accuracy": right / n,
        "sent_to_llm": sent_to_big / n,
        "micro_dollars_per_question": micro / n,
        "tokens_per_question": tokens / n,
    }
