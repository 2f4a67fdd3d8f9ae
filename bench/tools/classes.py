"""The class of a tool suite's run: the first that applies, from the outside in."""

from __future__ import annotations

from collections.abc import Collection

from loopline.agents.records import Outcome
from loopline.bench.taxonomy import ENDED_OTHERWISE, Class

_IN_ORDER = (
    Class.CYCLE,
    Class.CALL_LIMIT,
    Class.DAMAGE,
    Class.HALLUCINATED,
    Class.UNREADABLE,
    Class.GAVE_UP,
    Class.NO_WAY,
    Class.NOT_TRIED,
    Class.NOT_DONE,
    Class.WRONG_DECISION,
    Class.NO_CALL,
    Class.UNWANTED_CALL,
    Class.WRONG_TOOL,
    Class.WRONG_ARGUMENTS,
    Class.WRONG_ANSWER,
)


def class_of(outcome: Outcome, right: bool, signals: Collection[str]) -> Class:
    """Return the class of one finished run; its judge's signals are the names of the classes that
    apply."""
    if right:
        return Class.RIGHT
    if outcome in ENDED_OTHERWISE:
        return ENDED_OTHERWISE[outcome]
    failure_class = next((name for name in _IN_ORDER if name in signals), None)
    if failure_class is not None:
        return failure_class
    return Class.GAVE_UP if outcome is Outcome.GAVE_UP else Class.WRONG_ANSWER
