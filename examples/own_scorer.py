"""The scorer of `bench run examples/own_data.jsonl --scorer examples/own_scorer.py`."""

from __future__ import annotations

import re

from loopline.bench.judgement import Question


def score(item: Question, answer: str) -> float:
    """Return 1 if the right number comes last, 0.5 if it is anywhere else, and otherwise 0."""
    numbers = re.findall(r"-?\d+", answer)
    if item.gold not in numbers:
        return 0.0
    return 1.0 if numbers[-1] == item.gold else 0.5
