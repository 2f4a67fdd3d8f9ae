"""The steps of a run, each with its candidates: the executed one open, the others folded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from loopline.agents.records import Step
from loopline.runtime.observe.run_page.bounds import Room
from loopline.runtime.observe.run_page.candidates import (
    Material,
    anchor,
    body,
    mean_logprob_of,
    read,
    reward_of,
)
from loopline.runtime.observe.run_page.tokens import Lessons
from loopline.runtime.terminal.dialogue import decision_of, milliseconds
from loopline.runtime.terminal.pages.curves import number
from loopline.runtime.terminal.pluralize import counted

COLOURS = 6
SHOWN_TOGETHER = 8
"""Candidates of one step; of more, those that were not executed are folded away together."""
_BARE = '<div class="small soft">Not shown, for the page\'s size: the journal has it.</div>'


def every_step(steps: Sequence[Step], material: Material, colours: dict[str, int]) -> str:
    """All steps as HTML. What was executed gets its room first."""
    places = [(at, k) for at, step in enumerate(steps) for k in range(len(step.candidates))]
    places.sort(key=lambda place: steps[place[0]].selected != place[1])
    above = [shared_prompt(step) for step in steps]

    def shown(at: int, k: int) -> str:
        room = material.room
        return body(steps[at], k, material, above[at] or ()) if room.candidate() else _BARE

    bodies = {place: shown(*place) for place in places}
    return "\n".join(
        _step(step, [bodies[at, k] for k in range(len(step.candidates))], material, colours)
        for at, step in enumerate(steps)
    )


def shared_prompt(step: Step) -> tuple[int, ...] | None:
    """The prompt that all of several candidates answered to."""
    prompts = {each.calls[0].prompt_ids if each.calls else () for each in step.candidates}
    if len(step.candidates) < 2 or len(prompts) != 1:
        return None
    return prompts.pop() or None


def _step(step: Step, bodies: Sequence[str], material: Material, colours: dict[str, int]) -> str:
    room = material.room
    several = len(step.candidates) > 1
    head = (
        f"<header><h3>turn {step.turn}{f'.{step.branch}' if step.branch else ''} "
        f'<span class="who">{escape(step.agent)}</span></h3>'
        f'<span class="chip">{room.text(decision_of(step))}</span>'
        f'<span class="soft small">{escape(_figures(step))}</span></header>'
    )
    parts = [head, _handed_over(step, room)]
    shared = shared_prompt(step)
    if shared is not None:
        parts.append(read(shared, step.candidates[0].calls[0], material))
    if several:
        folded = [_folded(step, at, each, material.lessons) for at, each in enumerate(bodies)]
        if len(folded) > SHOWN_TOGETHER and 0 <= step.selected < len(folded):
            parts.append(folded.pop(step.selected))
            folded = [_others(step, folded)]
        parts += folded
    else:
        parts += bodies
    parts.append(_came_back(step, room))
    own = f"own-{colours.get(step.agent, 0) % COLOURS}"
    return f'<section class="step {own}" id="{anchor(step)}">{"".join(parts)}</section>'


def _others(step: Step, folded: Sequence[str]) -> str:
    """Those that were not executed, under one heading."""
    others = [each for at, each in enumerate(step.candidates) if at != step.selected]
    known = [value for each in others if (value := reward_of(each)) is not None]
    worth = f", rewards {number(min(known))} to {number(max(known))}" if known else ""
    return (
        f'<details class="others"><summary>{counted(len(others), "other candidate")}{worth}'
        f"</summary>{''.join(folded)}</details>"
    )


def _folded(step: Step, at: int, inner: str, lessons: Lessons) -> str:
    candidate = step.candidates[at]
    chosen = at == step.selected
    facts: list[str] = []
    reward = reward_of(candidate)
    if reward is not None:
        facts.append(f"reward {number(reward)}")
    facts.append(counted(sum(call.usage.completion for call in candidate.calls), "token"))
    mean = mean_logprob_of(candidate)
    if mean is not None:
        facts.append(f"mean log p {number(mean)}")
    learned = next(filter(None, (lessons.of(c, step, at) for c in candidate.calls)), None)
    if learned is not None:
        facts.append(f"advantage {number(learned.sequence.advantage)}")
    look = "candidate chosen" if chosen else "candidate"
    mark = '<span class="chip yes">✓ executed</span>' if chosen else ""
    return (
        f'<details class="{look}" id="{anchor(step, at)}"{" open" if chosen else ""}><summary>'
        f"<b>candidate {at}</b> {mark}{escape(', '.join(facts))}</summary>{inner}</details>"
    )


def _handed_over(step: Step, room: Room) -> str:
    """What the agent was asked, where that is more than to go on."""
    asked = {key: value for key, value in step.input.items() if key != "type"}
    problem = asked.pop("problem", None)
    parts = [f'<div class="asked">{room.text(problem)}</div>'] if isinstance(problem, str) else []
    if asked:
        kind = escape(str(step.input.get("type", "input")))
        parts.append(f'<div class="action"><b>{kind}</b> {room.json(asked)}</div>')
    return "".join(parts)


def _came_back(step: Step, room: Room) -> str:
    """Observation and decision."""
    parts: list[str] = []
    seen = {key: value for key, value in step.observation.items() if key != "turns"}
    failure, text = seen.pop("failure", None), seen.pop("text", None)
    if failure is not None:
        parts.append(f'<div class="failed">{room.json(failure)}</div>')
    if isinstance(text, str):
        parts.append(f'<div class="observed"><b>observation</b><pre>{room.text(text)}</pre></div>')
    if seen:
        parts.append(f'<div class="observed"><b>observation</b> {room.json(seen)}</div>')
    if step.decision.data:
        parts.append(
            f'<div class="action"><b>{room.text(step.decision.kind)}</b> '
            f"{room.json(step.decision.data)}</div>"
        )
    return "".join(parts)


def _figures(step: Step) -> str:
    calls = step.calls
    prompt = sum(call.usage.prompt for call in calls)
    completion = sum(call.usage.completion for call in calls)
    spent = max(0.0, step.timings.ended - step.timings.started)
    found = [f"{prompt:,} + {completion:,} tokens", milliseconds(spent)]
    if step.timings.waited > 0.05:
        found.append(f"waited {milliseconds(step.timings.waited)}")
    served = (f"{call.policy.adapter or call.policy.name} v{call.policy.version}" for call in calls)
    return ", ".join([*dict.fromkeys(served), *found, step.worker])
