"""The text of the scripted engine and the scripted server: a competent, deterministic team member.

The reply is a pure function of (messages, offered tools, seed, mistake rate). A conversation is
replayed on every call: the script is a generator that yields tool calls and receives the answers in
the messages. If an answer is missing, that call is the reply; if the script ends, its text is. So
the reply uses the real answers of tools and other agents.

Arithmetic such as "What is 12 * 7 + 5?" is answered correctly. For any other text, an expression is
made up from its numbers: a deterministic pseudo-answer whose equations are all true but do not
concern the text.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pydantic import JsonValue

from loopline.agents.records import JsonObject, Message, ToolChoice, ToolSpec
from loopline.workers.engines.faults import unit_interval
from loopline.workers.engines.scripted.script_arithmetic import (
    Leaf,
    Node,
    Operation,
    combine,
    equation,
    equations,
    find_expression,
    numbers_in,
    read_number,
    show,
    write,
)
from loopline.workers.engines.scripted.script_umi import umi_reply

_ANSWER_TYPE = re.compile(r"^Answer type: (\w+)\.?\s*$", re.MULTILINE)
_OPENINGS = ("Let me work it out.", "Step by step.", "First the numbers.", "Here we go.")


@dataclass(frozen=True)
class ScriptedCall:
    """A tool call that the script makes."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True)
class ScriptedReply:
    """One turn: text, and tool calls if it is not the last."""

    text: str
    calls: tuple[ScriptedCall, ...] = ()

    def constrained_to(
        self, tools: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool
    ) -> ScriptedReply:
        """The same turn with no call, one or several calls of `tools`, as `choice` requires. If a
        call is required but not part of the script, its arguments follow the tool's schema."""
        if choice.mode == "none":
            return ScriptedReply(self.text)
        calls = self.calls
        if choice.mode == "required" and not calls:
            tool = offered(tools, choice)[0]
            arguments = instance_of({**tool.parameters, "type": "object"}, Fraction(0))
            calls = (ScriptedCall(tool.name, arguments if isinstance(arguments, dict) else {}),)
        single = not parallel or choice.name is not None
        return ScriptedReply(self.text, calls[:1] if single else calls)


def offered(tools: Sequence[ToolSpec], choice: ToolChoice) -> tuple[ToolSpec, ...]:
    """The tools that this choice allows."""
    if choice.mode == "none":
        return ()
    return tuple(tool for tool in tools if choice.name in (None, tool.name))


Script = Generator[tuple[str, ScriptedCall], str, str]
"""Yields (words, call), receives the tool's answer, returns the final text."""


def scripted_reply(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    *,
    seed: int = 0,
    mistake_rate: float = 0.0,
    json_schema: JsonObject | None = None,
) -> ScriptedReply:
    """The next turn of the conversation. With a schema it is an instance of that schema, with the
    answer wherever a string or a number is allowed."""
    question_index = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    question = messages[question_index].content if question_index >= 0 else ""
    answers = [m.content for m in messages[question_index + 1 :] if m.role == "tool"]
    umi = umi_reply(
        question,
        lambda text: _expression(text, _rng(text, seed)),
        as_json=json_schema is not None,
    )
    if umi is not None:
        return ScriptedReply(umi)
    if json_schema is not None:
        value = _expression(question, _rng(question, seed)).value
        return ScriptedReply(json.dumps(instance_of(json_schema, value), ensure_ascii=False))
    script = _choose_script(question, {tool.name for tool in tools}, seed, mistake_rate)
    try:
        words, call = next(script)
        for answer in answers:
            words, call = script.send(answer)
    except StopIteration as end:
        return ScriptedReply(str(end.value))
    return ScriptedReply(words, (call,))


def conversation_key(
    messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *extra: object
) -> str:
    """A text that is the same for equal requests, regardless of their tool-call ids."""
    return json.dumps(
        [
            [
                [m.role, m.content, [[c.name, c.raw_arguments] for c in m.tool_calls]]
                for m in messages
            ],
            [t.name for t in tools],
            [str(part) for part in extra],
        ]
    )


def _choose_script(question: str, tools: set[str], seed: int, mistake_rate: float) -> Script:
    rng = _rng(question, seed)
    answer_type = _ANSWER_TYPE.search(question)
    expression = _expression(question, rng)
    if "delegate" in tools:
        return _plan(expression, tools, rng)
    wrong = answer_type is not None and unit_interval("wrong", seed, question) < mistake_rate
    return _solve(expression, "calculate" in tools, wrong, rng)


def _rng(question: str, seed: int) -> random.Random:
    return random.Random(unit_interval("script", seed, question))


def _expression(question: str, rng: random.Random) -> Operation:
    problem = _ANSWER_TYPE.sub("", question)
    return find_expression(problem) or _invent_expression(problem, rng)


def _plan(expression: Operation, tools: set[str], rng: random.Random) -> Script:
    """The planner: delegates parts (or all) of the expression and combines the answers."""
    opening, style = rng.choice(_OPENINGS), rng.random()
    left, right = expression.left, expression.right
    both = isinstance(left, Operation) and isinstance(right, Operation)
    if both and "delegate_many" in tools and style < 0.8:
        parts = (left, right)
        listed: list[JsonObject] = [_sub_problem(part) for part in parts]
        call = ScriptedCall("delegate_many", {"problems": [*listed]})
        answer = yield f"{opening} The parts are independent.", call
        lines = answer.splitlines()
        left, right = (
            _leaf_of_answer(part, _line(lines, number))
            for number, part in enumerate(parts, start=1)
        )
    elif isinstance(left, Operation) and style < 0.6:
        left = _leaf_of_answer(left, (yield opening, ScriptedCall("delegate", _sub_problem(left))))
    else:
        answer = yield opening, ScriptedCall("delegate", _sub_problem(expression))
        value = _leaf_of_answer(expression, answer).value
        return f"The answer is {show(value)}.\n\n\\boxed{{{show(value)}}}"
    expression = _rebuild(expression, left, right)
    if "calculate" in tools and style < 0.3:
        call = ScriptedCall("calculate", {"expression": write(expression)})
        answer = yield "Now I put the parts together.", call
        value = _leaf_of_answer(expression, answer).value
        return f"So the result is {show(value)}.\n\n\\boxed{{{show(value)}}}"
    return f"{'. '.join(equations(expression))}.\n\n\\boxed{{{show(expression.value)}}}"


def _solve(expression: Operation, calculator: bool, wrong: bool, rng: random.Random) -> Script:
    """A small model, or a single model: equations, then the boxed answer."""
    opening, style = rng.choice(_OPENINGS), rng.random()
    if calculator and style < 0.4:
        call = ScriptedCall("calculate", {"expression": write(expression)})
        answer = yield opening, call
        value = _leaf_of_answer(expression, answer).value
        steps = f"{write(expression)} = {show(value)}"
    else:
        value = expression.value
        steps = "\n".join(equations(expression))
    if not wrong:
        return f"{opening}\n{steps}\n\n\\boxed{{{show(value)}}}"
    if rng.random() < 0.5:
        return f"{opening}\n{steps}\n\nThat is all I can say."
    false = f"{equation(expression).rpartition(' = ')[0]} = {show(value + 1)}"
    return f"{opening}\n{false}\n\n\\boxed{{{show(value + 1)}}}"


def _sub_problem(node: Node) -> JsonObject:
    kind = "integer" if node.value.denominator == 1 else "number"
    return {"problem": f"What is {write(node)}?", "expected_type": kind}


def _leaf_of_answer(node: Node, answer: str) -> Leaf:
    """The returned value, or the true one if the answer is not a number."""
    value = read_number(answer)
    return Leaf(node.value if value is None else value)


def _line(lines: list[str], number: int) -> str:
    prefix = f"{number}:"
    return next((line[len(prefix) :] for line in lines if line.startswith(prefix)), "error")


def _rebuild(expression: Operation, left: Node, right: Node) -> Operation:
    """The operation over the answers; the original operation if a wrong answer makes it
    impossible."""
    try:
        return combine(expression.symbol, left, right)
    except ZeroDivisionError:
        return expression


def _invent_expression(text: str, rng: random.Random) -> Operation:
    """A positive-valued expression over up to four numbers of the text."""
    numbers = [n for n in numbers_in(text) if 0 < n < 10**6][:4]
    while len(numbers) < 2:
        numbers.append(Fraction(rng.randint(2, 20)))
    node: Node = Leaf(numbers[0])
    for number in numbers[1:]:
        symbol = rng.choice("+-*") if node.value > number else rng.choice("+*")
        node = combine(symbol, node, Leaf(number))
    assert isinstance(node, Operation)
    return node


def instance_of(schema: JsonObject, answer: Fraction) -> JsonValue:
    """A value that `schema` accepts, for the keywords type, properties, items, enum and const."""
    if "const" in schema:
        return schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties")
            if not isinstance(properties, dict):
                return {}
            return {
                name: instance_of(part if isinstance(part, dict) else {}, answer)
                for name, part in properties.items()
            }
        case "array":
            items = schema.get("items")
            return [instance_of(items if isinstance(items, dict) else {}, answer)]
        case "integer":
            return answer.numerator // answer.denominator
        case "number":
            return float(answer)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return show(answer)
