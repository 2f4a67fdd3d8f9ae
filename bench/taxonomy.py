"""Failure classes: why an item was not solved, decided by deterministic rules.

`signals_of` reads facts from the trajectory when the run ends; `classify` turns facts and verdicts
into a class. The first rule that fits wins, from the outside in: how the run ended, then the form
of the answer, then the events of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from fractions import Fraction

from loopline.agents.equations import first_wrong
from loopline.agents.records import Outcome, Step, Trajectory
from loopline.bench.checkers import PRIMARY
from loopline.bench.checkers.numbers import clean, find_numbers, last_number
from loopline.bench.checkers.numeric import boxed_answers, gold_number


class Class(StrEnum):
    """Class of an item's result."""

    RIGHT = "right"
    ERROR = "error"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    BUDGET = "budget"
    GAVE_UP = "gave_up"
    NO_ANSWER = "no_answer"
    FORMAT = "format"
    CHECKERS = "checker_disagreement"
    ARITHMETIC = "wrong_arithmetic"
    SUBTASK = "wrong_subtask"
    ESCALATED = "escalated"
    REASONING = "wrong_reasoning"
    CYCLE = "cycle"
    CALL_LIMIT = "call_limit"
    DAMAGE = "damage"
    HALLUCINATED = "hallucinated_tool"
    UNREADABLE = "unreadable"
    NOT_DONE = "not_done"
    NO_WAY = "answered_without_a_way"
    NOT_TRIED = "not_tried"
    WRONG_ANSWER = "wrong_answer"
    WRONG_DECISION = "wrong_decision"
    NO_CALL = "no_call"
    UNWANTED_CALL = "unwanted_call"
    WRONG_TOOL = "wrong_tool"
    WRONG_ARGUMENTS = "wrong_arguments"
    ILLEGAL = "illegal_action"
    OUT_OF_TURNS = "out_of_turns"
    NO_CODE = "no_code"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"


MEANINGS: dict[Class, str] = {
    Class.RIGHT: "the primary checker accepts the answer",
    Class.ERROR: "the run ended in an error",
    Class.CANCELLED: "the run was cancelled",
    Class.DEADLINE: "the run missed its deadline",
    Class.BUDGET: "the run used up its budget",
    Class.GAVE_UP: "the workflow gave up",
    Class.NO_ANSWER: "the final text contains no number, or was truncated before its answer",
    Class.FORMAT: "the right number is there, but not where the answer is read (not in the box)",
    Class.CHECKERS: "another checker accepts the answer: inspect it",
    Class.ARITHMETIC: "an equation that the answering model wrote is false",
    Class.SUBTASK: "a sub-problem failed, or returned a value that the reference solution lacks",
    Class.ESCALATED: "the small model's answer was rejected, and the expert's answer is wrong, too",
    Class.REASONING: "the arithmetic is right, but for another problem: the answer is wrong",
    Class.CYCLE: "the run was stopped because it repeated the same call",
    Class.CALL_LIMIT: "requested more calls than a run may make",
    Class.DAMAGE: "made a change in the world that was not requested, or not in this form",
    Class.HALLUCINATED: "called a tool that was not offered",
    Class.UNREADABLE: "wrote text that its role could not parse",
    Class.NOT_DONE: "answered, but did not make the requested changes in the world",
    Class.NO_WAY: "answered an impossible instruction; giving up was right",
    Class.NOT_TRIED: "called no tool that could know the answer",
    Class.WRONG_ANSWER: "the answer is wrong (simulated world: although the actions are right; "
    "program: on a hidden test that it completed)",
    Class.WRONG_DECISION: "called, answered or gave up, unlike the reference",
    Class.NO_CALL: "wrote no readable call where one was expected",
    Class.UNWANTED_CALL: "made a call where none was expected",
    Class.WRONG_TOOL: "called a different function, or a different number of them, than expected",
    Class.WRONG_ARGUMENTS: "the function is right, but its arguments are wrong",
    Class.ILLEGAL: "tried an action that the puzzle's rules forbid, and did not solve it",
    Class.OUT_OF_TURNS: "every action was legal, but the turns ran out",
    Class.NO_CODE: "wrote text without a program",
    Class.REFUSED: "the sandbox refused an operation of the program, or stopped it because of its "
    "memory or output",
    Class.TIMED_OUT: "the program exceeded its time limit",
    Class.CRASHED: "the program ended with an exception, a syntax error, an exit code or a signal",
}

ENDED_OTHERWISE = {
    Outcome.ERROR: Class.ERROR,
    Outcome.CANCELLED: Class.CANCELLED,
    Outcome.DEADLINE: Class.DEADLINE,
    Outcome.BUDGET: Class.BUDGET,
}

CALLED = "called_tools"
DELEGATED = "delegated"
ESCALATED = "escalated"
SUBTASK_FAILED = "subtask_failed"
SUBTASK_OFF_PATH = "subtask_off_path"
WRONG_EQUATION = "wrong_equation"
CUT_OFF = "cut_off"
WITHOUT_ANSWER = "without_answer"


def signals_of(trajectory: Trajectory, reference_values: Sequence[str] = ()) -> tuple[str, ...]:
    """Facts about a run, one word each, in a fixed order.

    `reference_values`: the intermediate and final results of the reference solution, if the data
    set has one; a sub-answer that is none of them is off its path.
    """
    steps = trajectory.steps
    facts = {
        DELEGATED: any(step.agent == "slm" for step in steps),
        ESCALATED: any(step.agent == "expert" for step in steps),
        SUBTASK_FAILED: any(
            step.agent in {"slm", "expert"} and step.decision.kind in {"give_up", "failed"}
            for step in steps
        ),
        SUBTASK_OFF_PATH: _left_reference_path(steps, reference_values),
        WRONG_EQUATION: any(
            first_wrong(call.text) is not None
            for step in steps
            if step.agent not in {"slm", "expert"}
            for call in step.calls
        ),
        CUT_OFF: any(call.finish_reason == "length" for step in steps for call in step.calls),
        WITHOUT_ANSWER: trajectory.outcome is Outcome.GAVE_UP and _gave_no_answer(steps),
    }
    return tuple(name for name, holds in facts.items() if holds)


def classify(
    *,
    outcome: Outcome,
    prediction: str | None,
    where: str,
    verdicts: dict[str, bool],
    signals: Iterable[str],
    gold: str,
) -> Class:
    """Return the class of one finished run."""
    if verdicts.get(PRIMARY):
        return Class.RIGHT
    facts = set(signals)
    if outcome in ENDED_OTHERWISE:
        return ENDED_OTHERWISE[outcome]
    if outcome is Outcome.GAVE_UP:
        return Class.NO_ANSWER if facts & {WITHOUT_ANSWER, CUT_OFF} else Class.GAVE_UP
    if not prediction or where == "none":
        return Class.NO_ANSWER
    if _contains_gold(prediction, gold):
        return Class.FORMAT
    if any(verdicts.get(name) for name in ("flexible", "math_verify", "delegate", "strict")):
        return Class.CHECKERS
    if WRONG_EQUATION in facts:
        return Class.ARITHMETIC
    if facts & {SUBTASK_FAILED, SUBTASK_OFF_PATH}:
        return Class.SUBTASK
    if ESCALATED in facts:
        return Class.ESCALATED
    return Class.REASONING


def _contains_gold(prediction: str, gold: str) -> bool:
    """Whether the gold number is the last number of the text or is in a box."""
    number = gold_number(gold)
    if number is None:
        return False
    wanted = number.readings
    last = last_number(clean(prediction))
    if last is not None and last.readings & wanted:
        return True
    return any(
        number.readings & wanted
        for box in boxed_answers(prediction)
        for number in find_numbers(clean(box))
    )


def _left_reference_path(steps: Sequence[Step], reference_values: Sequence[str]) -> bool:
    reference_numbers = {value for text in reference_values if (value := _value(text)) is not None}
    if not reference_numbers:
        return False
    # The expert's answer replaces that of the small model in the same branch.
    final: dict[tuple[object, int], Step] = {}
    for step in steps:
        if step.agent in {"slm", "expert"} and step.decision.kind == "answer":
            final[(step.input.get("asked_turn"), step.branch)] = step
    answers = (step.decision.data.get("answer") for step in final.values())
    values = [_value(answer) for answer in answers if isinstance(answer, str)]
    return any(value is not None and value not in reference_numbers for value in values)


def _value(text: str) -> Fraction | None:
    number = last_number(clean(text))
    return None if number is None else number.value


def _gave_no_answer(steps: Sequence[Step]) -> bool:
    """Whether the last step gave up because of a text without an answer (not for lack of turns)."""
    last = steps[-1] if steps else None
    if last is None or last.decision.kind != "give_up" or not last.calls:
        return False
    return not last.calls[-1].tool_calls
