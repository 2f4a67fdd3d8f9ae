"""Coder and unit tester on one problem: observations, rewards, and the end of an episode.

A turn is one program and one test, written in parallel: neither member sees the other's text from
the same turn. In the first turn, both see only the problem; in later turns, both see the last
program, the last test and their disagreement. The episode ends when the program passes the
generated test, or after the last turn. The members never see a golden test or a golden program.

A coder alone has one turn, since no other member could add information.

Running programs is not pure, so a judge does it (`loopline.agents.judging`) and returns `Facts`.

Rewards (PettingLLMs; its paper's team and local parts, as implemented in its code):

    coder  = α · p + p         p: the share of golden tests that its program passes
    tester = α · p + g         g: 1 if a golden program passes its test, else 0

The published code has another g (the generated program against the generated test), which rewards a
tester for agreeing with a wrong program; it is the scheme `dense` here. The g used here rewards
right tests. If a problem has no golden program, g is unknown and its part is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from loopline.agents.environments.code.generated_test import show_test
from loopline.agents.environments.code.problem import CallTest, CodeQuestion, ProgramTest
from loopline.agents.environments.game import Part, Rewards, Verdict
from loopline.agents.records import Record, Task

ENVIRONMENT = "code"

Member = Literal["coder", "tester"]
MEMBERS: tuple[Member, ...] = ("coder", "tester")
"""Members of the team in the order of a turn."""

MAX_SHOWN = 2_000
"""Maximum length of a program's output that agents see, in characters."""


class CodeSetting(Record):
    """How a problem is played; part of the instance, so that a run can be rebuilt exactly."""

    turns: int = Field(default=5, ge=1, le=100)
    """Maximum number of turns of both members. The published code has 5."""
    team: tuple[Member, ...] = MEMBERS
    """Members that act in a turn, in order: both, or only the coder."""

    @field_validator("team")
    @classmethod
    def _check_team(cls, team: tuple[Member, ...]) -> tuple[Member, ...]:
        if team not in (MEMBERS, MEMBERS[:1]):
            raise ValueError("a team is coder, then tester; or only the coder")
        return team


class CodeInstance(Record):
    """Task of a team's run."""

    question: CodeQuestion
    judged_as: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Name under which the judge knows the complete problem: a hash that commits to its tests and
    reveals nothing about them."""
    setting: CodeSetting = CodeSetting()

    @property
    def task(self) -> Task:
        """The task record."""
        return Task(
            environment=ENVIRONMENT,
            instance=self.model_dump(mode="json"),
            prompt=self.question.statement,
        )


class Facts(Record):
    """Results of running a turn's program and test."""

    golden_pass_rate: float = Field(ge=0, le=1)
    """Share of the golden tests that the program passes."""
    golden_passes_test: bool | None
    """Whether a golden program passes the generated test; None if there is no golden program."""
    agree: bool
    """Whether the program passes the generated test; False if either is missing."""
    actual: str = ""
    """Output of the program on the test's input."""
    why: str = ""
    """Reason why the program did not pass."""


class Turn(Record):
    """Texts of both members and their results."""

    code: str
    """Program of the completion; empty if it has none."""
    test: ProgramTest | CallTest | None
    facts: Facts


def coder_rewards(code: str, golden_pass_rate: float) -> Rewards:
    """Return the coder's rewards, 0–2 with α = 1; the mask is 0 without a program."""
    rate = golden_pass_rate
    return Rewards(
        parts=(
            Part("team", "golden", rate, 1.0),
            Part("local", "golden", rate, 1.0),
            Part("dense", "golden", rate, 2.0),
            Part("sparse", "solved", float(rate == 1.0), 1.0),
        ),
        mask=float(bool(code)),
    )


def tester_rewards(
    golden_pass_rate: float, *, written: bool, right: bool | None, agrees: bool
) -> Rewards:
    """Return the tester's rewards, 0–2 with α = 1 (0–1 without a golden program).
    `golden_pass_rate`: that of the turn's program; `written`: whether there is a usable test;
    `right`: whether a golden program passes it; `agrees`: whether the turn's program does."""
    rate = golden_pass_rate
    test_parts = () if right is None else (Part("local", "right_test", float(right), 1.0),)
    return Rewards(
        parts=(
            Part("team", "golden", rate, 1.0),
            *test_parts,
            Part("dense", "golden", rate, 1.0),
            Part("dense", "agrees", float(agrees), 1.0),
            Part("sparse", "solved", float(rate == 1.0), 1.0),
        ),
        mask=float(written),
    )


def done(turns: Sequence[Turn], setting: CodeSetting) -> bool:
    """Whether the episode has ended."""
    most = setting.turns if len(setting.team) > 1 else 1
    return bool(turns) and (turns[-1].facts.agree or len(turns) >= most)


def verdict(turns: Sequence[Turn]) -> Verdict:
    """Decide whether the last program passes all golden tests. Agreement of both members does not
    imply this."""
    if not turns or not turns[-1].code:
        return Verdict("there is no program")
    rate = turns[-1].facts.golden_pass_rate
    return Verdict("" if rate == 1.0 else f"the last program passes {rate:.0%} of the tests")


def observe(member: Member, question: CodeQuestion, turns: Sequence[Turn]) -> str:
    """Return the question for a member of the team as plain text."""
    lines = [question.statement.strip()]
    if question.starter_code.strip() and question.starter_code.strip() not in question.statement:
        lines += ["", "The program begins like this:", _fence(question.starter_code, "python")]
    lines += _examples(question)
    if turns:
        lines += _disagreement_lines(turns[-1])
    lines += ["", _coder_form(question) if member == "coder" else _tester_form(question)]
    return "\n".join(lines)


def _examples(question: CodeQuestion) -> list[str]:
    lines: list[str] = []
    for test in question.examples:
        text = test.source if test.kind == "assertion" else show_test(test)
        lines += ["", text]
    return ["", "Examples:", *lines] if lines else []


def _disagreement_lines(turn: Turn) -> list[str]:
    lines = [""]
    if turn.code:
        lines += ["The last program:", _fence(turn.code, "python")]
    else:
        lines.append("There was no program in the last turn.")
    if turn.test is None:
        return [*lines, "There was no test that could be used in the last turn."]
    lines += ["The last test:", show_test(turn.test)]
    if not turn.code:
        return lines
    if turn.facts.actual:
        lines += ["The program answered:", _fence(turn.facts.actual[:MAX_SHOWN])]
    return [*lines, f"They disagree ({turn.facts.why[:MAX_SHOWN]}): one of them is wrong."]


def _coder_form(question: CodeQuestion) -> str:
    function = question.function
    whole = "a whole program that reads standard input and writes standard output"
    request = whole if function is None else f"Python that defines `{function}`"
    return f"Write {request}, in one block that begins with ```python."


def _tester_form(question: CodeQuestion) -> str:
    if question.function is None:
        test = ProgramTest(stdin="(all that is read)", stdout="(all that must be written)")
        example, note = show_test(test), ""
    else:
        example = (
            "**Test Input:**\n```\n(each argument on a line)\n```\n**Test Output:**\n```\n"
            "(the value)\n```"
        )
        note = ", arguments and value as JSON"
    return f"Write one new test that a right program passes{note}, in this form:\n{example}"


def _fence(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"
