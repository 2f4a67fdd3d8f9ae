"""A team's parts in its journal: their steps and their latest answers.

A part takes its steps one after another, so the last committed step of a path is its latest,
whatever other branches commit meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.errors import JournalIncomplete, UnexpectedPayload
from loopline.agents.payloads import PartPayload, parse_payload
from loopline.agents.records import Step
from loopline.agents.team_parts import (
    AgentPart,
    LoopPart,
    ParallelPart,
    Part,
    SequencePart,
    part_at,
)


def payload_of(step: Step) -> PartPayload:
    """The payload of a team's step. Raises `UnexpectedPayload` for any other step."""
    payload = parse_payload(step.input)
    if not isinstance(payload, PartPayload):
        raise UnexpectedPayload(f"a team has no step that takes a {payload.type_name!r}")
    return payload


def latest_step(journal: Sequence[Step], path: tuple[int, ...], act: str) -> Step:
    """The latest step of that part with that act. Raises `JournalIncomplete` if there is none."""
    for step in reversed(journal):
        payload = payload_of(step)
        if payload.path == path and payload.act == act:
            return step
    raise JournalIncomplete(f"the journal has no {act!r} of the team's part {path}")


def result_of(team: Part, path: tuple[int, ...], journal: Sequence[Step]) -> str:
    """The latest answer of the part at `path`. Raises `JournalIncomplete` if it did not answer."""
    match part_at(team, path):
        case AgentPart():
            step = latest_step(journal, path, "answer")
        case SequencePart(parts=parts):
            return result_of(team, (*path, len(parts) - 1), journal)
        case LoopPart():
            return result_of(team, (*path, 0), journal)
        case ParallelPart():
            step = latest_step(journal, path, "gather")
    return str(step.decision.data.get("answer", ""))


def label_of(team: Part, path: tuple[int, ...]) -> str:
    """The agents that speak for a part: the one whose answer is the part's, or all of them."""
    match part_at(team, path):
        case AgentPart(name=name):
            return name
        case SequencePart(parts=parts):
            return label_of(team, (*path, len(parts) - 1))
        case LoopPart():
            return label_of(team, (*path, 0))
        case ParallelPart(parts=parts):
            return ", ".join(label_of(team, (*path, place)) for place in range(len(parts)))


def gathered(team: Part, path: tuple[int, ...], journal: Sequence[Step]) -> str:
    """The answers of a `parallel`, each under its agent's name, in the order of the parts."""
    part = part_at(team, path)
    assert isinstance(part, ParallelPart)
    paths = [(*path, place) for place in range(len(part.parts))]
    return written([(label_of(team, inner), result_of(team, inner, journal)) for inner in paths])


def written(answers: Sequence[tuple[str, str]]) -> str:
    """(agent, answer) as another agent reads them."""
    return "\n\n".join(f"{agent}:\n{answer}" for agent, answer in answers)


def next_turn(journal: Sequence[Step], path: tuple[int, ...]) -> int:
    """A turn later than all steps of the part at `path`. When the part has ended, all its steps are
    in the journal, so the turn does not depend on other commits."""
    turns = [step.turn for step in journal if payload_of(step).path[: len(path)] == path]
    return max(turns, default=-1) + 1
