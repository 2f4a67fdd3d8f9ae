"""The five step metrics of α-UMi (Small LLMs Are Weak Tool Learners, section 4).

Each step of a reference trajectory is predicted from the reference's own history. A step calls a
tool, finishes with an answer, or gives up.

- *Plan ACC*: share of all steps with the reference's decision.
- *Act EM*: share of reference-call steps that name the reference's tool.
- *Hallu.*: share of all steps that name a tool that is not offered.
- *Argument F1*: F1 of the arguments on reference-call steps, where an argument with the right key
  and value counts 1, and one with only the right key ½; with another tool it is 0.
- *Rouge-L*: Rouge-L of the answer on reference-finish steps; without an answer it is 0.

An unreadable prediction has no decision, no tool and no arguments: it is wrong, never left out. Two
empty sets of arguments agree fully. A reference whose arguments are not a JSON object has no
argument F1, as in the published scorer. Means and step counts are computed as for every measure of
a benchmark (`loopline.bench.report.measures`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from loopline.trainers.data.json_files import Unreadable, parse

MAX_CHARS = 200_000
"""Maximum length of either text in characters; longer ones are truncated."""

_WORD = re.compile(r"[a-z0-9]+")


def rouge_l(prediction: str, reference: str) -> float:
    """Return the share of two texts that is one common subsequence of words, in 0…1 (Lin 2004,
    section 3):

        P = LCS / words of the prediction,  R = LCS / words of the reference,  F = 2PR / (P + R)

    Words are those of the `rouge-score` package without stemming: runs of a–z and 0–9, lower case.
    The tests compare this function with the package, which needs nltk, and quadratic time in
    Python. Texts without a word score 0.
    """
    prediction_words, wanted = _words(prediction), _words(reference)
    if not prediction_words or not wanted:
        return 0.0
    common = common_subsequence(prediction_words, wanted)
    if not common:
        return 0.0
    precision, recall = common / len(prediction_words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def common_subsequence(first: list[str], second: list[str]) -> int:
    """Return the length of the longest common subsequence.

    Bit-parallel (Hyyrö, 2004): bit i of `row` is clear if the table's row grows at word i of
    `second`, so a whole row takes three operations on long integers.
    """
    places: defaultdict[str, int] = defaultdict(int)
    for at, word in enumerate(second):
        places[word] |= 1 << at
    full = (1 << len(second)) - 1
    row = full
    for word in first:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(second) - row.bit_count()


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:MAX_CHARS].lower())


Decision = Literal["call", "finish", "give_up"]


@dataclass(frozen=True)
class ToolStep:
    """A decision and its parts; a prediction may be empty."""

    decision: Decision | None = None
    action: str | None = None
    arguments: str | dict[str, Any] | None = None
    """JSON text as written by the caller, or its object."""
    answer: str | None = None


@dataclass(frozen=True)
class StepScore:
    """Scores of one predicted step; None if a metric does not apply to the reference."""

    plan: bool
    hallucinated: bool
    action: bool | None = None
    argument_f1: float | None = None
    rouge_l: float | None = None

    @property
    def measures(self) -> dict[str, float]:
        """Return the metrics by column name, each in 0…1, without those that do not apply."""
        scores = {
            "plan_accuracy": self.plan,
            "action_match": self.action,
            "hallucination": self.hallucinated,
            "argument_f1": self.argument_f1,
            "rouge_l": self.rouge_l,
        }
        return {name: float(value) for name, value in scores.items() if value is not None}


def score_step(predicted: ToolStep, reference: ToolStep, tools: Collection[str]) -> StepScore:
    """Score one step. Raises ValueError if the reference has no decision."""
    if reference.decision is None:
        raise ValueError("a reference step must call, finish or give up")
    plan = predicted.decision == reference.decision
    calls = predicted.decision == "call" and bool(predicted.action)
    hallucinated = calls and predicted.action not in tools
    if reference.decision == "call":
        same = calls and predicted.action == reference.action
        f1 = argument_f1(predicted.arguments, reference.arguments, same_action=same)
        return StepScore(plan, hallucinated, action=same, argument_f1=f1)
    if reference.decision == "finish":
        answer = predicted.answer if predicted.decision == "finish" else None
        return StepScore(plan, hallucinated, rouge_l=rouge_l(answer or "", reference.answer or ""))
    return StepScore(plan, hallucinated)


def argument_f1(
    predicted: str | dict[str, Any] | None,
    reference: str | dict[str, Any] | None,
    *,
    same_action: bool = True,
) -> float | None:
    """Return the argument F1 of a call; None if the reference's arguments are not a JSON object."""
    wanted = _object(reference)
    if wanted is None:
        return None
    arguments = _object(predicted)
    if arguments is None or not same_action:
        return 0.0
    if not wanted or not arguments:
        return float(not wanted and not arguments)
    shared = wanted.keys() & arguments.keys()
    credit = sum(1.0 if _same(arguments[key], wanted[key]) else 0.5 for key in shared)
    precision, recall = credit / len(arguments), credit / len(wanted)
    return 2 * precision * recall / (precision + recall) if credit else 0.0


def _object(arguments: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """Parse the arguments of a call. An empty text (a call without arguments) means the empty
    object."""
    if isinstance(arguments, str):
        try:
            arguments = parse(arguments) if arguments.strip() else {}
        except Unreadable:
            return None
    if arguments is None:
        return {}
    return arguments if isinstance(arguments, dict) else None


def _same(actual: Any, wanted: Any) -> bool:
    # In Python true equals 1; in JSON they are different values.
    return actual == wanted and isinstance(actual, bool) == isinstance(wanted, bool)
