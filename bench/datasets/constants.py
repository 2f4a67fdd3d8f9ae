"""What who always says the same solves of a data set, found by search: of the questions that are
asked, and knowing their answers, so that no constant which is chosen beforehand does better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loopline.agents.records import JsonObject


def best_constant(answers: Sequence[str | None], name: str | None = None) -> JsonObject:
    """For a data set's `reference`: how many questions there are, and of how many the answer is
    right that most of them have. None is a question that no constant solves; `name` stands in for
    an answer that may not be told."""
    ranking = Counter(answer for answer in answers if answer is not None).most_common(1)
    answer, right = ranking[0] if ranking else ("the same", 0)
    return {"instances": len(answers), "baselines": {name or f"always {answer[:80]}": right}}
