"""Coder and unit tester on one problem: what each sees, what each earns, when they are done.

A turn is one program and one test, written side by side: neither sees the other's of the same turn.
In the first turn both have the problem alone; later both see the last program, the last test and
where they disagree. They stop when the program passes the generated test, or after the last turn.
What they never see is a golden test or a golden program.

Running programs is not pure, so the host does it (`workers.sandbox.code_team`) and hands `Facts`
in.

Rewards (PettingLLMs; its paper's team and local parts, as its code has them):

    coder  = 2 · p             p: the share of golden tests that its program passes
    tester = g + p             g: 1 if a golden program passes its test, else 0

The published code has another g (the generated program against the generated test), which pays a
tester for agreeing with a wrong program; this one pays for tests that are right. Where a problem
has no golden program g is not known and its part is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from agents.environments.code.generated_test import function_of, show_test
from agents.environments.code.problem import CallTest, CodeProblem, ProgramTest
from agents.records import Record

Member = Literal["coder", "tester"]
MEMBERS: tuple[Member, ...] = ("coder", "tester")

TURNS = 5
MAX_SHOWN = 2_000
"""Of what a program wrote, in what agents see."""


class Facts(Record):
    """What running a turn's program and test came to."""

    golden_pass_rate: float = Field(ge=0, le=1)
    """Of the program."""
    golden_passes_test: bool | None
    """Whether a golden program passes the generated test; None if there is none to ask."""
    agree: bool
    """Whether the program passes the generated test; False without either."""
    actual: str = ""
    """What the program did with the test's input."""
    why: str = ""
    """Why it did not pass."""


class Turn(Record):
    """What both wrote, and what came of it."""

    code: str
    """Empty where none was found in the completion."""
    test: ProgramTest | CallTest | None
    facts: Facts


def coder_rewards(facts: Facts) -> dict[str, float]:
    """Parts of the coder's reward; their sum is the reward, 0–2."""
    return {"team.golden": facts.golden_pass_rate, "local.golden": facts.golden_pass_rate}


def tester_rewards(facts: Facts) -> dict[str, float]:
    """Parts of the tester's reward; their sum is the reward, 0–2 (0–1 without a golden
    program)."""
    parts = {"team.golden": facts.golden_pass_rate}
    if facts.golden_passes_test is not None:
        parts["local.right_test"] = float(facts.golden_passes_test)
    return parts


def done(turns: Sequence[Turn], most: int = TURNS) -> bool:
    """Whether the episode has ended."""
    return bool(turns) and (turns[-1].facts.agree or len(turns) >= most)


def solved(turns: Sequence[Turn]) -> bool:
    """Whether the last program passes all golden tests. That both agree says nothing of it."""
    return bool(turns) and turns[-1].facts.golden_pass_rate == 1.0


def observe(member: Member, problem: CodeProblem, turns: Sequence[Turn]) -> str:
    """What a member of the team is asked, as plain text."""
    lines = [problem.statement.strip()]
    if problem.starter_code.strip() and problem.starter_code.strip() not in problem.statement:
        lines += ["", "The program begins like this:", _fenced(problem.starter_code, "python")]
    lines += _examples(problem)
    if turns:
        lines += _disagreement(turns[-1])
    lines += ["", _coder_form(problem) if member == "coder" else _tester_form(problem)]
    return "\n".join(lines)


def _examples(problem: CodeProblem) -> list[str]:
    lines: list[str] = []
    for test in problem.examples:
        told = test.source if test.kind == "assertion" else show_test(test)
        lines += ["", told]
    return ["", "Examples:", *lines] if lines else []


def _disagreement(turn: Turn) -> list[str]:
    lines = [""]
    if turn.code:
        lines += ["The last program:", _fenced(turn.code, "python")]
    else:
        lines.append("There was no program in the last turn.")
    if turn.test is None:
        return [*lines, "There was no test that could be used in the last turn."]
    lines += ["The last test:", show_test(turn.test)]
    if not turn.code:
        return lines
    if turn.facts.actual:
        lines += ["The program answered:", _fenced(turn.facts.actual[:MAX_SHOWN])]
    return [*lines, f"They disagree ({turn.facts.why[:MAX_SHOWN]}): one of them is wrong."]


def _coder_form(problem: CodeProblem) -> str:
    function = function_of(problem)
    whole = "a whole program that reads standard input and writes standard output"
    asked = whole if function is None else f"Python that defines `{function}`"
    return f"Write {asked}, in one block that begins with ```python."


def _tester_form(problem: CodeProblem) -> str:
    if function_of(problem) is None:
        test = ProgramTest(stdin="(all that is read)", stdout="(all that must be written)")
        shown, said = show_test(test), ""
    else:
        shown = (
            "**Test Input:**\n```\n(each argument on a line)\n```\n**Test Output:**\n```\n"
            "(the value)\n```"
        )
        said = ", arguments and value as JSON"
    return f"Write one new test that a right program passes{said}, in this form:\n{shown}"


def _fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"
