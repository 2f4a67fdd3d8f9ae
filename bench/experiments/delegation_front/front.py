"""Fronts of accuracy against dollars, and a point's distance above a front.

A rule may be mixed at random, question by question, with any other rule of its family and with
asking no model, which is free and never right. So a family's front is the upper hull of its points.
It is chosen on the same questions on which it is measured, which favours it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rule:
    """Result of a rule on the held-out questions, shape (seeds, questions)."""

    name: str
    right: Floats
    cost: Floats
    """US dollars, shape (seeds, questions)."""

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())

    @property
    def dollars(self) -> float:
        """Mean US dollars per question."""
        return float(self.cost.mean())


class Mixture(NamedTuple):
    """Best mixture of a family for a given cost: a share of the questions by `costly`, the others
    by `cheap`."""

    cheap: Rule
    costly: Rule
    share: float
    slope: float
    """Accuracy gained per additional dollar."""

    def right(self) -> Floats:
        return (1 - self.share) * self.cheap.right + self.share * self.costly.right

    def cost(self) -> Floats:
        return (1 - self.share) * self.cheap.cost + self.share * self.costly.cost


def no_model(like: Rule) -> Rule:
    """Rule that asks no model."""
    return Rule("no model", np.zeros_like(like.right), np.zeros_like(like.cost))


def best_mixture(family: Sequence[Rule], dollars: float) -> Mixture:
    """Return the best mixture of at most two rules that costs at most `dollars` per question."""
    rules = [no_model(family[0]), *family]
    affordable = [rule for rule in rules if rule.dollars <= dollars]
    best = max(affordable, key=lambda rule: (rule.accuracy, -rule.dollars))
    mixture, accuracy = Mixture(best, best, 0.0, 0.0), best.accuracy
    for cheap in affordable:
        for costly in rules:
            if costly.dollars <= dollars or costly.accuracy <= cheap.accuracy:
                continue
            slope = (costly.accuracy - cheap.accuracy) / (costly.dollars - cheap.dollars)
            reached = cheap.accuracy + slope * (dollars - cheap.dollars)
            if reached > accuracy:
                share = (dollars - cheap.dollars) / (costly.dollars - cheap.dollars)
                mixture, accuracy = Mixture(cheap, costly, share, slope), reached
    return mixture


def gaps(rule: Rule, family: Sequence[Rule]) -> Floats:
    """Advantage of a rule over its family's front at the same dollars, shape (seeds, questions);
    its mean is the difference in accuracy. Each question's value is adjusted for its dollars at the
    front's slope, because the mixture changes with the rule's dollars (the delta method); intervals
    over other questions need this.
    """
    mixture = best_mixture(family, rule.dollars)
    return (rule.right - mixture.right()) - mixture.slope * (rule.cost - mixture.cost())


def undominated(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that no other rule dominates, that is, no other is at least as good in both
    accuracy and dollars, and better in one."""

    def beats(other: Rule, rule: Rule) -> bool:
        as_good = other.accuracy >= rule.accuracy and other.dollars <= rule.dollars
        return as_good and (other.accuracy > rule.accuracy or other.dollars < rule.dollars)

    return [rule for rule in rules if not any(beats(other, rule) for other in rules)]
