"""The scorer of `bench run examples/own_data.jsonl --scorer examples/own_scorer.py`."""

from __future__ import annotations

import re

from loopline.bench.judgement import Question


def score(item: Question, answer: str) -> float:
    """1 for the right number at the end, a half for the right number anywhere."""
    numbers = re.findall(r"-?\d+", answer)
    if item.gold not in numbers:
        return 0.0
    return 1.0 if numbers[-1] == item.gold else 0.5
