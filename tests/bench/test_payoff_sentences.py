"""The report's sentences on whether delegation pays off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loopline.bench.report.sections import payoffs


def facts(
    *,
    spent: float,
    low: float,
    high: float,
    p: float = 0.5,
    gap: float = 0.0,
    alone: float = 2000,
    unpriced: tuple[str, ...] = (),
) -> Any:
    """A cascade compared with the big model: micro-dollars per question, the interval of their
    difference, and the difference of accuracy with its p."""
    arms = {
        "llm": {"micro_dollars_per_question": alone, "unpriced": []},
        "cascade": {"micro_dollars_per_question": spent, "unpriced": list(unpriced)},
    }
    pair = {
        "a": "llm",
        "b": "cascade",
        "n": 40,
        "p": p,
        "micro_dollars": {"low": -high, "high": -low},
        "difference": {"estimate": -gap},
    }
    return SimpleNamespace(results={"arms": arms, "pairs": [pair]})


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            facts(spent=500, low=-1600, high=-1400),
            "cascade pays off: $0.50 for 1,000 questions, $2.00 with only llm (−75% [−80%, −70%]), "
            "at 0.0 points of accuracy.",
        ),
        (facts(spent=2500, low=400, high=600), "cascade does not pay off (more expensive): $2.50"),
        (facts(spent=1900, low=-300, high=100), "does not pay off (savings not significant)"),
        (
            facts(spent=500, low=-1600, high=-1400, p=0.001, gap=-0.6),
            "does not pay off (less accurate): $0.50 for 1,000 questions, $2.00 with only llm (",
        ),
    ],
)
def test_a_delegating_arm_is_compared_with_the_big_model_in_dollars(case: Any, words: str) -> None:
    (sentence,) = payoffs(case)
    assert words in sentence


def test_there_is_no_payoff_sentence_without_prices() -> None:
    assert payoffs(facts(spent=0, low=0, high=0, alone=0)) == []


def test_there_is_no_payoff_sentence_if_part_of_the_cost_is_unknown() -> None:
    assert payoffs(facts(spent=500, low=-1600, high=-1400, unpriced=("slm",))) == []
