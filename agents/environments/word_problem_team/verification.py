"""Verifies that a problem is solved: the solution and the calculations are recomputed, in
fractions.

The verification shares the naming of a text's numbers (`numbers_of`) with the judged episode, and
takes an item's calculations from it (`Item.works`). It uses neither the episode's state nor its
arithmetic, nor any recorded result.

Only the first answer decides. Its origin does not matter: a right number without a calculation is a
right answer, as in an exam. A result counts with its recomputed value, not with its stated one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from loopline.agents.environments.game import Verdict
from loopline.agents.environments.team_episode import PLAN
from loopline.agents.environments.word_problem_team.instance import WordProblemInstance
from loopline.agents.environments.word_problem_team.numbers import numbers_of
from loopline.agents.environments.word_problem_team.rules import Calculation, Items


def check_work(instance: WordProblemInstance, actions: Sequence[Items]) -> Verdict:
    """Recompute the solution and the kept calculations, and compare the answer. A tool agent alone
    answers only by a program; with calls, its last result counts."""
    gold = Fraction(0)
    for step in instance.solution:
        gold = _value(step.operator, Fraction(step.left), Fraction(step.right))
    names = {number.name: Fraction(number.value) for number in numbers_of(instance.text)}
    results: dict[str, Fraction] = {}
    answer_value: Fraction | None = None
    for item in (item for action in actions for item in action):
        for worked in item.works:
            results[worked.name] = _evaluate_step(worked, names | results)
        if item.verb == "answer":
            answer_value = Fraction(item.of) if item.of.isdigit() else results.get(item.of)
            if answer_value is not None:
                break
        elif PLAN not in instance.setting.team:
            answer_value = results.get(item.of)
    if answer_value is None:
        return Verdict("there is no answer")
    return Verdict() if answer_value == gold else Verdict(f"{answer_value} is not the answer")


def _evaluate_step(step: Calculation, values: dict[str, Fraction]) -> Fraction:
    left, right = (
        Fraction(side) if side.isdigit() else values[side] for side in (step.left, step.right)
    )
    signs = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
    return _value(signs[step.call], left, right)


def _value(sign: str, left: Fraction, right: Fraction) -> Fraction:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    return left * right if sign == "*" else left / right
