"""Baseline of a player that always gives the same answer, chosen with knowledge of the answers to
the questions asked, so that no constant that is chosen beforehand does better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loopline.agents.records import JsonObject


def best_constant(answers: Sequence[str | None], name: str | None = None) -> JsonObject:
    """Return the baseline for a data set's `reference`: the number of questions, and how many of
    them the most frequent answer gets right. None is a question that no constant solves; `name`
    replaces an answer that must not be published."""
    ranking = Counter(answer for answer in answers if answer is not None).most_common(1)
    answer, right = ranking[0] if ranking else ("the same", 0)
    return {"instances": len(answers), "baselines": {name or f"always {answer[:80]}": right}}
