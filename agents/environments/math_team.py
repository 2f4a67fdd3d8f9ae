r"""Reasoner and tool user on one problem: observations, rewards, and the end of an episode.

A turn is one solution in words, which ends in `\boxed{…}`, and one Python program, which prints its
answer; neither member sees the other's text from the same turn. In later turns, both see the last
solution and program, and that their answers differ. The episode ends when both answers are equal,
or after the last turn. A reasoner alone has one turn. Running programs (20 s in PettingLLMs) and
comparing answers is not pure, so a judge does both (`loopline.agents.judging`) and returns `Facts`.
Only the judge has the gold answer; no observation contains it.

Rewards (PettingLLMs):

    reasoner = α · c_r + c_r    c: 1 for a right answer, else 0
    tool     = α · c_r + own    own: 1 for a right answer, 0 for a wrong one, -1 for none
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from loopline.agents.answers import last_boxed
from loopline.agents.environments.game import Part, Rewards, Verdict
from loopline.agents.records import Record, Task
from loopline.agents.thinking import text_without_thoughts

ENVIRONMENT = "math"

Member = Literal["reasoner", "tool_user"]
MEMBERS: tuple[Member, ...] = ("reasoner", "tool_user")
"""Members of the team in the order of a turn."""

MAX_STATEMENT_CHARS = 200_000
MAX_ANSWER_CHARS = 2_000
MAX_SHOWN = 4_000
"""Maximum length of a solution or a program that agents see, in characters."""


class MathQuestion(Record):
    """The part of a problem that a team sees, without its answer."""

    id: str = Field(min_length=1, max_length=200)
    """Id, including the name of its data set: `aime24/60`."""
    statement: str = Field(min_length=1, max_length=MAX_STATEMENT_CHARS)


class MathProblem(Record):
    """A problem with its answer, for the judge; agents and the bus see only its `question`."""

    question: MathQuestion
    answer: str = Field(min_length=1, max_length=MAX_ANSWER_CHARS)
    """Right answer: a number, or LaTeX between dollar signs."""
    tolerance: float | None = Field(default=None, gt=0)
    """Maximum error of a number, if the problem states one."""


class MathSetting(Record):
    """How a problem is played; part of the instance, so that a run can be rebuilt exactly."""

    turns: int = Field(default=4, ge=1, le=100)
    """Maximum number of turns of both members."""
    program_seconds: float = Field(default=20.0, gt=0, le=600)
    """Limit of CPU seconds for one program."""
    team: tuple[Member, ...] = MEMBERS
    """Members that act in a turn, in order: both, or only the reasoner."""

    @field_validator("team")
    @classmethod
    def _check_team(cls, team: tuple[Member, ...]) -> tuple[Member, ...]:
        if team not in (MEMBERS, MEMBERS[:1]):
            raise ValueError("a team is reasoner, then tool_user; or only the reasoner")
        return team


class MathInstance(Record):
    """Task of a team's run."""

    question: MathQuestion
    judged_as: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Hash under which the judge knows the answer."""
    setting: MathSetting = MathSetting()

    @property
    def task(self) -> Task:
        """The task record."""
        return Task(
            environment=ENVIRONMENT,
            instance=self.model_dump(mode="json"),
            prompt=self.question.statement,
        )


class Facts(Record):
    """A judge's verdict on a turn's answers. A missing answer is not right and agrees with no
    answer."""

    reasoner_right: bool
    tool_right: bool = False
    agree: bool = False
    """Whether both are the same answer."""


class Turn(Record):
    """Texts and answers of both members; a missing answer is empty."""

    solution: str
    """The reasoner's text."""
    reasoner: str
    """Answer of the reasoner."""
    program: str = ""
    """Program of the tool user; empty without one."""
    output: str = ""
    """Output of the program."""
    trouble: str = ""
    """Reason if the program failed: `timed_out`, or the exception."""
    tool_user: str = ""
    """Answer of the program."""
    facts: Facts


def reasoning_answer(text: str) -> str:
    """Return the content of the last box; empty without one."""
    boxed = last_boxed(text_without_thoughts(text))
    return "" if boxed is None or len(boxed) > MAX_ANSWER_CHARS else boxed


def program_answer(output: str, *, ended_well: bool) -> str:
    """Return the last line that a program printed, or the content of its box if the line is a box;
    empty for a program that was stopped or failed, regardless of earlier output. A line with a box
    and a second answer stays whole, so that the box does not choose between them."""
    lines = output.strip().splitlines()
    if not ended_well or not lines or len(lines[-1]) > MAX_ANSWER_CHARS:
        return ""
    line = lines[-1].strip()
    boxed = last_boxed(line)
    around = "" if boxed is None else line.replace(boxed, "", 1)
    return boxed if boxed and _EMPTY_BOX.fullmatch(around) else line


_EMPTY_BOX = re.compile(
    r"(?:[^\d{}\\$]|\\[$\[(])*\$*\s*\\f?boxed\s*\{\s*\}\s*\$*(?:\\[\])])?[\s.]*"
)
"""Matches a line after removal of its only box's content; words may precede the box."""


def done(turns: Sequence[Turn], setting: MathSetting) -> bool:
    """Whether the episode has ended."""
    most = setting.turns if len(setting.team) > 1 else 1
    return bool(turns) and (turns[-1].facts.agree or len(turns) >= most)


def team_answer(turns: Sequence[Turn]) -> str:
    """Return the team's answer: the reasoner's last answer, or else the tool user's."""
    return (turns[-1].reasoner or turns[-1].tool_user) if turns else ""


def verdict(turns: Sequence[Turn]) -> Verdict:
    """Decide whether the team's answer is right. Agreement of both members does not make it
    right."""
    if not team_answer(turns):
        return Verdict("there is no answer")
    last = turns[-1]
    right = last.facts.reasoner_right if last.reasoner else last.facts.tool_right
    return Verdict("" if right else "the answer is wrong")


def reasoner_rewards(answer: str, *, right: bool) -> Rewards:
    """Return the reasoner's rewards, 0 or 2 with α = 1; the mask is 0 without an answer."""
    return Rewards(
        parts=(
            Part("team", "reasoner_right", float(right), 1.0),
            Part("local", "right", float(right), 1.0),
            Part("dense", "right", float(right), 2.0),
            Part("sparse", "right", float(right), 1.0),
        ),
        mask=float(bool(answer)),
    )


def tool_rewards(answer: str, *, right: bool, reasoner_right: bool) -> Rewards:
    """Return the tool user's rewards, -1 to 2 with α = 1. `right`: whether its own answer is right.
    The mask stays 1, since a missing answer has a cost."""
    answer_reward = float(right) if answer else -1.0
    return Rewards(
        parts=(
            Part("team", "reasoner_right", float(reasoner_right), 1.0),
            Part("local", "right", answer_reward, 1.0),
            Part("dense", "reasoner_right", float(reasoner_right), 1.0),
            Part("dense", "right", answer_reward, 1.0),
            Part("sparse", "right", float(right), 1.0),
        )
    )


def observe(member: Member, question: str, turns: Sequence[Turn]) -> str:
    """Return the question for a member of the team as plain text."""
    lines = [question.strip()]
    if turns:
        lines += ["", *_last_turn_lines(turns[-1])]
    if member == "reasoner":
        form = "Reason step by step, and put the final answer into \\boxed{}."
    else:
        form = (
            "Write a Python program that works the answer out, in one block that begins with "
            "```python. Its last line of output must be the final answer and nothing else."
        )
    return "\n".join([*lines, "", form])


def _last_turn_lines(turn: Turn) -> list[str]:
    lines = ["The last solution in words:", turn.solution[-MAX_SHOWN:].strip() or "(none)"]
    lines.append(f"Its answer: {turn.reasoner or '(none)'}")
    lines += ["The last program:", f"```python\n{turn.program.strip()[:MAX_SHOWN]}\n```"]
    if turn.trouble:
        lines.append(f"It ended badly: {turn.trouble[:MAX_SHOWN]}")
    lines.append(f"Its answer: {turn.tool_user or '(none)'}")
    return [*lines, "The two do not agree: at least one of them is wrong."]
