"""The big model of the stream: an endpoint that solves each question like the generator, but
answers a stated share of them wrongly by exchanging one operation."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from loopline.agents.environments.word_problems import Equation, WordProblem
from loopline.agents.environments.word_problems.scheme import Operator, apply
from loopline.agents.records import Message, ToolSpec
from loopline.trainers.sft.dialogues import Turn, dialogue
from loopline.workers.engines.faults import unit_interval
from loopline.workers.engines.scripted.script import ScriptedCall, ScriptedReply
from loopline.workers.engines.text.tool_markup import parse_tool_calls

_WRONG_OPERATORS: dict[Operator, Operator] = {"+": "*", "-": "+", "*": "+", "/": "*"}


class BigModel:
    """Script of the scripted endpoint (`loopline.workers.scripted_api`)."""

    def __init__(self, problems: Iterable[WordProblem], accuracy: float, seed: int) -> None:
        self._problems = {problem.prompt: problem for problem in problems}
        self._accuracy = accuracy
        self._seed = seed

    def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ScriptedReply:
        """Return the next turn of a conversation about one of the problems."""
        at = max(n for n, message in enumerate(messages) if message.role == "user")
        problem = self._problems.get(messages[at].content)
        if problem is None:
            return ScriptedReply("I do not know this problem.")
        has_calculator = any(tool.name == "calculate" for tool in tools)
        done = sum(message.role == "assistant" for message in messages[at + 1 :])
        turns = self._turns(problem, calculator=has_calculator)
        return _spoken(turns[min(done, len(turns) - 1)].text)

    def is_right(self, problem: WordProblem) -> bool:
        """Whether the endpoint answers this problem correctly."""
        return unit_interval("big", self._seed, problem.id) < self._accuracy

    def _turns(self, problem: WordProblem, *, calculator: bool) -> list[Turn]:
        solved = problem if self.is_right(problem) else with_wrong_operation(problem)
        # The endpoint does not name steps, it only calculates.
        solved = replace(solved, links=tuple(replace(link, label="") for link in solved.links))
        kind = "solo" if calculator else "solo_without_tools"
        worked = dialogue(kind, solved, random.Random(problem.id))
        return [turn for turn in worked.turns if turn.learned]


def with_wrong_operation(problem: WordProblem) -> WordProblem:
    """Return the problem with another operation in its last equation, and therefore a wrong
    answer."""
    link = problem.links[-1]
    part = link.parts[-1]
    *before, last = part.equations
    wrong = _with_wrong_operator(last)
    part = replace(part, equations=(*before, wrong))
    link = replace(link, parts=(*link.parts[:-1], part))
    return replace(problem, links=(*problem.links[:-1], link), answer=str(wrong.result))


def _with_wrong_operator(equation: Equation) -> Equation:
    op = _WRONG_OPERATORS[equation.op]
    result = apply(op, Fraction(equation.left), Fraction(equation.right))
    right = equation.right
    while result == equation.result:
        right += 1
        result = apply(op, Fraction(equation.left), Fraction(right))
    return Equation(equation.left, op, right, int(result))


def _spoken(text: str) -> ScriptedReply:
    calls = parse_tool_calls(text, id_seed="")
    if not calls:
        return ScriptedReply(text)
    words = text.partition("<tool_call>")[0].removesuffix("\n")
    return ScriptedReply(words, tuple(ScriptedCall(c.name, c.arguments or {}) for c in calls))
