r"""What each sees, what each earns, when they are done.

A turn is one solution in words, which ends in `\boxed{…}`, and one Python program, which prints its
answer; neither sees the other's of the same turn. Later both see the last of both and that they
differ. They stop when both answers are equal, or after the last turn. A reasoner alone has one
turn. Running programs (20 s in PettingLLMs) and comparing answers is not pure, so a judge does both
(`loopline.agents.judging`) and what it says are `Facts`. The gold answer is the judge's and in no
observation.

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
"""In the order of a turn."""

MAX_STATEMENT_CHARS = 200_000
MAX_ANSWER_CHARS = 2_000
MAX_SHOWN = 4_000
"""Of a solution or an output, in what agents see."""


class MathQuestion(Record):
    """What is asked of a team, without its answer."""

    id: str = Field(min_length=1, max_length=200)
    """With its data set: `aime24/60`."""
    statement: str = Field(min_length=1, max_length=MAX_STATEMENT_CHARS)


class MathProblem(Record):
    """What is asked, and what decides. A problem is the judge's; agents and the bus get to see its
    `question`."""

    question: MathQuestion
    answer: str = Field(min_length=1, max_length=MAX_ANSWER_CHARS)
    """A number, or LaTeX between dollar signs."""
    tolerance: float | None = Field(default=None, gt=0)
    """How far a number may be off, where the problem says so."""


class MathSetting(Record):
    """How it is played; part of the instance, so that a run is rebuilt as it was."""

    turns: int = Field(default=4, ge=1, le=100)
    """Most turns of both."""
    program_seconds: float = Field(default=20.0, gt=0, le=600)
    """Of one program, of CPU."""
    team: tuple[Member, ...] = MEMBERS
    """Who acts in a turn, in order: both, or the reasoner alone."""

    @field_validator("team")
    @classmethod
    def _check_team(cls, team: tuple[Member, ...]) -> tuple[Member, ...]:
        if team not in (MEMBERS, MEMBERS[:1]):
            raise ValueError("a team is reasoner, then tool_user; or the reasoner alone")
        return team


class MathInstance(Record):
    """What a run of the team is about."""

    question: MathQuestion
    judged_as: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Under which the judge knows the answer."""
    setting: MathSetting = MathSetting()

    @property
    def task(self) -> Task:
        """The record of it."""
        return Task(
            environment=ENVIRONMENT,
            instance=self.model_dump(mode="json"),
            prompt=self.question.statement,
        )


class Facts(Record):
    """What a judge says of a turn's answers. A missing answer is not right and agrees with none."""

    reasoner_right: bool
    tool_right: bool = False
    agree: bool = False
    """Whether both are the same answer."""


class Turn(Record):
    """What both wrote, and their answers; an answer is empty where there is none."""

    solution: str
    """The reasoner's text."""
    reasoner: str
    """Its answer."""
    program: str = ""
    """Empty where the tool user wrote none."""
    output: str = ""
    """What the program wrote."""
    trouble: str = ""
    """How it ended, if not well: `timed_out`, or the exception."""
    tool_user: str = ""
    """The answer of the program."""
    facts: Facts


def reasoning_answer(text: str) -> str:
    """The content of the last box; empty without one."""
    boxed = last_boxed(text_without_thoughts(text))
    return "" if boxed is None or len(boxed) > MAX_ANSWER_CHARS else boxed


def program_answer(output: str, *, ended_well: bool) -> str:
    """The last line that a program printed, its box if it is one; empty for a program that was
    ended or failed, whatever it had printed before. A line with a box and a second answer
    alongside it stays whole, so that the box does not choose among them."""
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
"""A line without what its only box holds: words may lead to it."""


def done(turns: Sequence[Turn], setting: MathSetting) -> bool:
    """Whether the episode has ended."""
    most = setting.turns if len(setting.team) > 1 else 1
    return bool(turns) and (turns[-1].facts.agree or len(turns) >= most)


def team_answer(turns: Sequence[Turn]) -> str:
    """The team's answer: the reasoner's last one; where it has none, the tool user's."""
    return (turns[-1].reasoner or turns[-1].tool_user) if turns else ""


def verdict(turns: Sequence[Turn]) -> Verdict:
    """Whether the team's answer is right. That both agree says nothing of it."""
    if not team_answer(turns):
        return Verdict("there is no answer")
    last = turns[-1]
    right = last.facts.reasoner_right if last.reasoner else last.facts.tool_right
    return Verdict("" if right else "the answer is wrong")


def reasoner_rewards(answer: str, *, right: bool) -> Rewards:
    """0 or 2 with α = 1; the mask is 0 without an answer."""
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
    """-1 to 2 with α = 1. `right`: of its own answer. The mask stays 1, as to have no answer costs
    something."""
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
    """What a member of the team is asked, as plain text."""
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
