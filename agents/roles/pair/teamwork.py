"""Code shared by the steps of the code team and the math team.

Each turn of both teams has two steps. In the journal, a step contains the texts of its candidates
and the judge's facts about the selected one; the turns are rebuilt from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loopline.agents.environments.game import Verdict
from loopline.agents.environments.puzzle_splits import content_hash
from loopline.agents.errors import JournalIncomplete
from loopline.agents.records import Decision, JsonObject, Step
from loopline.agents.roles.pair.candidates import Choice
from loopline.agents.roles.pair.episode import text_of
from loopline.agents.roles.protocol import StepResult


@dataclass(frozen=True, slots=True)
class ExecutedCandidate:
    """The executed candidate of an earlier step."""

    text: str
    judged: JsonObject
    """The judge's facts about the candidate."""


def executed_candidate(step: Step) -> ExecutedCandidate:
    """The executed candidate of a step. Raises `JournalIncomplete` for a step that executed
    nothing."""
    judged = step.decision.data.get("judged")
    if not isinstance(judged, dict):
        raise JournalIncomplete(f"turn {step.turn} of {step.agent!r} has no verdict")
    return ExecutedCandidate(text_of(step), judged)


def candidates_by_turn(
    journal: Sequence[Step], team: Sequence[str]
) -> Iterator[dict[str, ExecutedCandidate]]:
    """Executed candidate of each member, turn by turn; the last turn may lack later members. Raises
    `JournalIncomplete` for steps that do not match this team and its order."""
    ordered = sorted(journal, key=lambda step: step.turn)
    for place, step in enumerate(ordered):
        if step.agent != team[place % len(team)]:
            raise JournalIncomplete(
                f"{step.agent!r} took turn {step.turn}, which belongs to another agent"
            )
    for first in range(0, len(ordered), len(team)):
        yield {step.agent: executed_candidate(step) for step in ordered[first : first + len(team)]}


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """State of the episode after a step."""

    turn: int
    """Number of the turn that the step belongs to."""
    following: str | None
    """Member that takes the next step; None at the end."""
    verdict: Verdict
    answer: str
    """Answer that the team would hand in now."""


def action_result(
    choice: Choice[Any],
    observed: str,
    judged: JsonObject,
    messages: Sequence[JsonObject],
    standing: EpisodeState,
) -> StepResult:
    """The step's result: the decision `acted`, as for a puzzle's agents, with the judge's facts
    about the selected candidate, and `answer` at the end. `messages`: each request to the judge, as
    `ask_judge` records it."""
    done = standing.following is None
    data: JsonObject = {
        "turn": standing.turn,
        "observed": content_hash(observed)[:16],
        "done": done,
        "solved": done and standing.verdict.solved,
        "reason": standing.verdict.reason,
        "next": standing.following,
        "reward": choice.reward,
        "judged": judged,
    }
    if done:
        data["answer"] = standing.answer
    return StepResult(
        candidates=choice.candidates,
        decision=Decision(kind="acted", data=data),
        selected=choice.selected,
        observation={"turns": [list(messages)]},
    )
