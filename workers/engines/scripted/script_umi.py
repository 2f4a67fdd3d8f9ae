"""The scripted engine's text as planner, caller and summarizer of `umi`.

It acts as a competent team on arithmetic: one call of `calculate` for each operation, with the real
answers of the earlier calls. It knows only its input, like a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from loopline.agents.roles.umi.output import format_call, format_plan
from loopline.agents.roles.umi.transcript import END_OF_TURN
from loopline.workers.engines.scripted.script_arithmetic import (
    Leaf,
    Node,
    Operation,
    combine,
    read_number,
    show,
    write,
)

_ROLE = re.compile(r"\nHistory:\nuser: .*\n(assistant|caller|conclusion):\Z", re.DOTALL)
_THOUGHT = re.compile(r"\nThought:\nI need (.+)\.\n")


def umi_reply(
    text: str, expression_of: Callable[[str], Operation], *, as_json: bool = False
) -> str | None:
    """The next turn of a team member; None for an input of another workflow."""
    role_match = _ROLE.search("\n" + text)
    if role_match is None:
        return None
    question, observations = _question_and_observations(text)
    wanted = expression_of(question)
    match role_match[1]:
        case "caller":
            thought = _THOUGHT.search(text)
            arguments = {"expression": thought[1] if thought else write(wanted)}
            return format_call("calculate", {**arguments}, as_json=as_json)
        case "conclusion":
            return f"The answer is {observations[-1] if observations else show(wanted.value)}."
        case _:
            return _plan(text, wanted, observations)


def _plan(text: str, wanted: Operation, observations: list[str]) -> str:
    if json.dumps("calculate") not in text and "\ncalculate(" not in text:
        return format_plan("There is no tool that calculates.", "give_up")
    results = [read_number(observation) for observation in observations]
    try:
        rest = _reduce(wanted, [Leaf(value) for value in results if value is not None])
    except ZeroDivisionError:
        return format_plan("It comes down to a division by zero.", "give_up")
    if None in results:
        return format_plan(f"The tool says: {observations[results.index(None)]}", "give_up")
    if isinstance(rest, Leaf):
        return format_plan(f"It is {show(rest.value)}.", "conclude")
    return format_plan(f"I need {write(_innermost_operation(rest))}.", "call")


def _question_and_observations(text: str) -> tuple[str, list[str]]:
    history = text.partition("History:\n")[2]
    turns = [turn.partition(": ") for turn in history.split(END_OF_TURN)]
    observed = [content for label, _, content in turns if label == "observation"]
    return turns[0][2], observed


def _reduce(node: Node, answers: list[Leaf]) -> Node:
    """The expression with its first operations, innermost first, replaced by their answers."""
    if isinstance(node, Leaf):
        return node
    left, right = _reduce(node.left, answers), _reduce(node.right, answers)
    if answers and isinstance(left, Leaf) and isinstance(right, Leaf):
        return answers.pop(0)
    return combine(node.symbol, left, right)


def _innermost_operation(node: Operation) -> Operation:
    for side in (node.left, node.right):
        if isinstance(side, Operation):
            return _innermost_operation(side)
    return node
