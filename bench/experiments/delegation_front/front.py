"""Fronts of accuracy against dollars, and how far a point lies above one.

A rule may be mixed with any other of its family, question by question at random, and with asking
nobody, which costs nothing and is never right. So a family's front is the upper hull of its points.
It is chosen on the very questions that it is measured on, which favours it.
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
    """Best mixture of a family for this many dollars: a share of the questions by `dear`, the
    others by `cheap`."""

    cheap: Rule
    dear: Rule
    share: float
    slope: float
    """Accuracy gained per additional dollar."""

    def right(self) -> Floats:
        return (1 - self.share) * self.cheap.right + self.share * self.dear.right

    def cost(self) -> Floats:
        return (1 - self.share) * self.cheap.cost + self.share * self.dear.cost


def nobody(like: Rule) -> Rule:
    """Rule that asks no model."""
    return Rule("nobody", np.zeros_like(like.right), np.zeros_like(like.cost))


def best_mixture(family: Sequence[Rule], dollars: float) -> Mixture:
    """Return the best mixture of at most two rules that costs at most this many dollars a
    question."""
    rules = [nobody(family[0]), *family]
    affordable = [rule for rule in rules if rule.dollars <= dollars]
    best = max(affordable, key=lambda rule: (rule.accuracy, -rule.dollars))
    mixture, accuracy = Mixture(best, best, 0.0, 0.0), best.accuracy
    for cheap in affordable:
        for dear in rules:
            if dear.dollars <= dollars or dear.accuracy <= cheap.accuracy:
                continue
            slope = (dear.accuracy - cheap.accuracy) / (dear.dollars - cheap.dollars)
            reached = cheap.accuracy + slope * (dollars - cheap.dollars)
            if reached > accuracy:
                share = (dollars - cheap.dollars) / (dear.dollars - cheap.dollars)
                mixture, accuracy = Mixture(cheap, dear, share, slope), reached
    return mixture


def gaps(rule: Rule, family: Sequence[Rule]) -> Floats:
    """Advantage of a rule over its family's front at the same dollars, shape (seeds, questions);
    its mean is the difference in accuracy. A question's value takes its dollars into account, at
    the front's slope: the mixture would change with the rule's dollars (the delta method), which an
    interval over other questions needs.
    """
    mixture = best_mixture(family, rule.dollars)
    return (rule.right - mixture.right()) - mixture.slope * (rule.cost - mixture.cost())


def undominated(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that no other rule dominates: none is at least as good in both accuracy and
    dollars and better in one of them."""

    def beats(other: Rule, rule: Rule) -> bool:
        as_good = other.accuracy >= rule.accuracy and other.dollars <= rule.dollars
        return as_good and (other.accuracy > rule.accuracy or other.dollars < rule.dollars)

    return [rule for rule in rules if not any(beats(other, rule) for other in rules)]
