"""Renders a run's steps with their candidates: the executed one expanded, the others folded."""

from __future__ import annotations

import time
from collections.abc import Sequence

from markupsafe import Markup

from loopline.agents.records import Approval, Step
from loopline.runtime.observe.run_page.bounds import SizeBudget
from loopline.runtime.observe.run_page.candidates import (
    CandidateContext,
    anchor,
    body,
    mean_logprob_of,
    prompt_html,
    reward_of,
)
from loopline.runtime.observe.run_page.tokens import LearnedCompletions
from loopline.runtime.terminal.dialogue import decision_of, milliseconds
from loopline.runtime.terminal.pages.curves import number
from loopline.runtime.terminal.pages.templates import render
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.safe_text import sanitize

COLOURS = 6
SHOWN_TOGETHER = 8
"""Maximum candidates of a step that are shown separately; beyond it, the candidates that were not
executed are folded together."""
_BARE = Markup('<div class="small soft">Not shown, to keep the page small: see the journal.</div>')


def render_steps(
    steps: Sequence[Step], material: CandidateContext, colours: dict[str, int]
) -> Markup:
    """Return all steps as HTML. Executed candidates get their space first."""
    places = [(at, k) for at, step in enumerate(steps) for k in range(len(step.candidates))]
    places.sort(key=lambda place: steps[place[0]].selected != place[1])
    above = [shared_prompt(step) for step in steps]

    def shown(at: int, k: int) -> Markup:
        room = material.room
        return body(steps[at], k, material, above[at] or ()) if room.candidate() else _BARE

    bodies = {place: shown(*place) for place in places}
    return Markup("").join(
        _step(step, [bodies[at, k] for k in range(len(step.candidates))], material, colours)
        for at, step in enumerate(steps)
    )


def shared_prompt(step: Step) -> tuple[int, ...] | None:
    """Return the prompt of all candidates of a step, if they share one."""
    prompts = {
        candidate.calls[0].prompt_ids if candidate.calls else () for candidate in step.candidates
    }
    if len(step.candidates) < 2 or len(prompts) != 1:
        return None
    return prompts.pop() or None


def _step(
    step: Step, bodies: Sequence[Markup], material: CandidateContext, colours: dict[str, int]
) -> Markup:
    room = material.room
    decision = room.text(decision_of(step))
    input_fields = {key: value for key, value in step.input.items() if key != "type"}
    problem = input_fields.pop("problem", None)
    prompt = shared_prompt(step)
    handed_over = {
        "problem": room.text(problem) if isinstance(problem, str) else None,
        "asked": room.json(input_fields) if input_fields else None,
        "kind": str(step.input.get("type", "input")),
        "shared": prompt and prompt_html(prompt, step.candidates[0].calls[0], material),
    }
    candidates = [
        _candidate(step, at, candidate, material.learned) for at, candidate in enumerate(bodies)
    ]
    visible_candidates, others = candidates, list[dict[str, object]]()
    if len(candidates) > SHOWN_TOGETHER and 0 <= step.selected < len(candidates):
        visible_candidates = [candidates[step.selected]]
        others = [candidate for at, candidate in enumerate(candidates) if at != step.selected]
    return render(
        "loopline.runtime.observe.run_page",
        "step.html.j2",
        step=step,
        anchor=anchor(step),
        colour=colours.get(step.agent, 0) % COLOURS,
        decision=decision,
        figures=_figures(step),
        candidates=candidates,
        shown=visible_candidates,
        others=others,
        others_count=format_count(len(others), "other candidate"),
        worth=_worth(step),
        **handed_over,
        **_step_result(step, room),
        approvals=[_approval(approval) for approval in step.approvals],
    )


def _worth(step: Step) -> str:
    """Summarize the rewards of the candidates that were not executed."""
    others = [candidate for at, candidate in enumerate(step.candidates) if at != step.selected]
    rewards = [value for candidate in others if (value := reward_of(candidate)) is not None]
    return f", rewards {number(min(rewards))} to {number(max(rewards))}" if rewards else ""


def _candidate(
    step: Step, at: int, inner: Markup, completions: LearnedCompletions
) -> dict[str, object]:
    candidate = step.candidates[at]
    facts: list[str] = []
    reward = reward_of(candidate)
    if reward is not None:
        facts.append(f"reward {number(reward)}")
    facts.append(format_count(sum(call.usage.completion for call in candidate.calls), "token"))
    mean = mean_logprob_of(candidate)
    if mean is not None:
        facts.append(f"mean log p {number(mean)}")
    learned = next(filter(None, (completions.of(c, step, at) for c in candidate.calls)), None)
    if learned is not None:
        facts.append(f"advantage {number(learned.sequence.advantage)}")
    return {
        "number": at, "anchor": anchor(step, at), "chosen": at == step.selected, "facts": facts,
        "body": inner,
    }  # fmt: skip


def _step_result(step: Step, room: SizeBudget) -> dict[str, Markup | None]:
    """Return the observation and the decision."""
    fields = {key: value for key, value in step.observation.items() if key != "turns"}
    failure, text = fields.pop("failure", None), fields.pop("text", None)
    decided = step.decision
    return {
        "failure": None if failure is None else room.json(failure),
        "observation": room.text(text) if isinstance(text, str) else None,
        "seen": room.json(fields) if fields else None,
        "data_kind": room.text(decided.kind) if decided.data else None,
        "data": room.json(decided.data) if decided.data else None,
    }


def _approval(approval: Approval) -> str:
    """Describe the result of an approval."""
    by = f" by {approval.by}" if approval.by else ""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(approval.at))
    why = f": {approval.reason}" if approval.reason else ""
    return sanitize(f"{approval.name} {approval.decision}{by}, {when}{why}")


def _figures(step: Step) -> str:
    calls = step.calls
    prompt = sum(call.usage.prompt for call in calls)
    completion = sum(call.usage.completion for call in calls)
    spent = max(0.0, step.timings.ended - step.timings.started)
    parts = [f"{prompt:,} + {completion:,} tokens", milliseconds(spent)]
    if step.timings.waited > 0.05:
        parts.append(f"waited {milliseconds(step.timings.waited)}")
    if step.timings.retries:
        parts.append(f"retried {format_count(step.timings.retries, 'time')}")
    if step.timings.deliveries > 1:
        parts.append(f"taken over, {step.timings.deliveries} deliveries")
    policy_versions = (
        f"{call.policy.adapter or call.policy.name} v{call.policy.version}" for call in calls
    )
    return ", ".join([*dict.fromkeys(policy_versions), *parts, step.worker])
