r"""What each sees, what each earns, when they are done.

A turn is one solution in words, which ends in `\boxed{…}`, and one Python program, which prints its
answer; neither sees the other's of the same turn. Later both see the last of both and that they
differ. They stop when both answers are equal, or after the last turn. Programs are run by the host
(20 s in PettingLLMs); whether answers are equal is a function that it hands in, for example by
Math-Verify. The gold answer is the judge's and in no observation.

Rewards (PettingLLMs):

    reasoner = 2 · c_r          c: 1 for a right answer, else 0
    tool     = own + c_r        own: 1 for a right answer, 0 for a wrong one, -1 for none
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from agents.answers import last_boxed
from agents.records import Record

Member = Literal["reasoner", "tool_user"]
MEMBERS: tuple[Member, ...] = ("reasoner", "tool_user")

Equal = Callable[[str, str], bool]
"""Whether an answer, the first, is the reference, the second. It need not be symmetric. It gets no
empty answer."""

MAX_ANSWER_CHARS = 2_000
MAX_SHOWN = 4_000
"""Of a solution or an output, in what agents see."""


class MathSetting(Record):
    """How it is played."""

    turns: int = Field(default=4, ge=1, le=100)
    program_seconds: float = Field(default=20.0, gt=0, le=600)


class Turn(Record):
    """What both wrote, and their answers; an answer is empty where there is none."""

    solution: str
    """The reasoner's text."""
    reasoner: str
    """Its answer."""
    program: str
    """Empty where the tool user wrote none."""
    output: str = ""
    """What the program wrote."""
    trouble: str = ""
    """How it ended, if not well: `timed_out`, or the exception."""
    tool_user: str
    """The answer of the program."""


def reasoning_answer(text: str) -> str:
    """The content of the last box; empty without one."""
    boxed = last_boxed(text)
    return "" if boxed is None or len(boxed) > MAX_ANSWER_CHARS else boxed


def program_answer(output: str, *, ended_well: bool) -> str:
    """The last line that a program printed (its box, if it has one); empty for a program that was
    ended or failed, whatever it had printed before."""
    lines = output.strip().splitlines()
    if not ended_well or not lines or len(lines[-1]) > MAX_ANSWER_CHARS:
        return ""
    return last_boxed(lines[-1]) or lines[-1].strip()


def agreed(turn: Turn, equal: Equal) -> bool:
    """Whether both have an answer and it is the same."""
    return bool(turn.reasoner and turn.tool_user) and equal(turn.tool_user, turn.reasoner)


def done(turns: Sequence[Turn], setting: MathSetting, equal: Equal) -> bool:
    """Whether the episode has ended."""
    return bool(turns) and (len(turns) >= setting.turns or agreed(turns[-1], equal))


def team_answer(turns: Sequence[Turn]) -> str:
    """The team's answer: the reasoner's last one; where it has none, the tool user's."""
    return (turns[-1].reasoner or turns[-1].tool_user) if turns else ""


def solved(turns: Sequence[Turn], gold: str, equal: Equal) -> bool:
    """Whether the team's answer is right. That both agree says nothing of it."""
    return _right(team_answer(turns), gold, equal)


def reasoner_rewards(turn: Turn, gold: str, equal: Equal) -> dict[str, float]:
    """Parts of the reasoner's reward; their sum is the reward, 0 or 2."""
    right = float(_right(turn.reasoner, gold, equal))
    return {"team.reasoner_right": right, "local.right": right}


def tool_rewards(turn: Turn, gold: str, equal: Equal) -> dict[str, float]:
    """Parts of the tool user's reward; their sum is the reward, -1 to 2."""
    own = float(_right(turn.tool_user, gold, equal)) if turn.tool_user else -1.0
    return {
        "team.reasoner_right": float(_right(turn.reasoner, gold, equal)),
        "local.right": own,
    }


def observe(member: Member, question: str, turns: Sequence[Turn]) -> str:
    """What a member of the team is asked, as plain text."""
    lines = [question.strip()]
    if turns:
        lines += ["", *_last(turns[-1])]
    if member == "reasoner":
        form = "Reason step by step, and put the final answer into \\boxed{}."
    else:
        form = (
            "Write a Python program that works the answer out, in one block that begins with "
            "```python. Its last line of output must be the final answer and nothing else."
        )
    return "\n".join([*lines, "", form])


def _last(turn: Turn) -> list[str]:
    lines = ["The last solution in words:", turn.solution[-MAX_SHOWN:].strip() or "(none)"]
    lines.append(f"Its answer: {turn.reasoner or '(none)'}")
    lines += ["The last program:", f"```python\n{turn.program.strip()[:MAX_SHOWN]}\n```"]
    if turn.trouble:
        lines.append(f"It ended badly: {turn.trouble[:MAX_SHOWN]}")
    lines.append(f"Its answer: {turn.tool_user or '(none)'}")
    return [*lines, "The two do not agree: at least one of them is wrong."]


def _right(answer: str, gold: str, equal: Equal) -> bool:
    return bool(answer) and equal(answer, gold)
