"""The page of one run, from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from importlib.resources import files

from markupsafe import Markup

from loopline.agents.records import Call, Run, Step
from loopline.runtime.observe.cost_words import format_dollars, spent_words
from loopline.runtime.observe.learned_tokens import LearnedSequence
from loopline.runtime.observe.recorded_runs import KnownRun
from loopline.runtime.observe.run_page.bounds import MAX_MESSAGES, MAX_STEPS, SizeBudget
from loopline.runtime.observe.run_page.candidates import CandidateContext
from loopline.runtime.observe.run_page.overview import shape_of, time_of, timeline, tree
from loopline.runtime.observe.run_page.steps import render_steps
from loopline.runtime.observe.run_page.tokenizers import Tokenizers
from loopline.runtime.observe.run_page.tokens import LearnedCompletions, legends
from loopline.runtime.terminal.dialogue import ending_reason, milliseconds, succeeded
from loopline.runtime.terminal.pages.curves import number
from loopline.runtime.terminal.pages.page import page
from loopline.runtime.terminal.pages.templates import render as fill
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.safe_text import sanitize

_PACKAGE = "loopline.runtime.observe.run_page"
_WAYS = {
    "likely": "probability",
    "moved": "importance ratio",
    "mask": "mask",
    "plain": "nothing",
}


def render(
    known_run: KnownRun,
    tokenizers: Tokenizers | None = None,
    learned: Sequence[LearnedSequence] | None = None,
) -> str:
    """Return the whole page. `learned`: the sequences of the run that a training learned from; None
    if no training was requested."""
    resources = files(_PACKAGE)
    return page(
        f"{known_run.run.workflow} {known_run.run.id}",
        render_body(known_run, tokenizers, learned),
        style=resources.joinpath("run_page.css").read_text(encoding="utf-8"),
        script=resources.joinpath("run_page.js").read_text(encoding="utf-8"),
    )


def render_body(
    known_run: KnownRun,
    tokenizers: Tokenizers | None = None,
    learned: Sequence[LearnedSequence] | None = None,
    priced: Collection[str] | None = None,
) -> Markup:
    """Return the body of the page, for another page with the same style and script. `priced`: the
    pools with a price, if known."""
    material = CandidateContext(
        SizeBudget(), tokenizers or Tokenizers(), LearnedCompletions(learned or ())
    )
    steps = known_run.steps[:MAX_STEPS]
    agents = dict.fromkeys(step.agent for step in known_run.steps)
    colours = {name: at for at, name in enumerate(agents)}
    head = _head(known_run, material.room)
    conversation = _conversation(known_run.run, material.room)
    steps_html = render_steps(steps, material, colours)
    return fill(
        _PACKAGE,
        "run.html.j2",
        run=known_run.run,
        head=head,
        conversation=conversation,
        earlier=max(0, len(known_run.run.task.messages) - MAX_MESSAGES),
        notices=_notices(known_run, material, learned),
        cards=_cards(known_run, priced),
        tree=(tree(steps, colours), _way(known_run, steps), "Path through the run")
        if steps
        else (),
        time=(timeline(steps, known_run.run.created, colours), time_of(known_run.steps), "Time"),
        legends=legends(learned=bool(material.learned)),
        names_of_ways=_WAYS,
        steps=steps_html,
        facts=_facts(known_run.run, material.room),
    )


def _head(known_run: KnownRun, room: SizeBudget) -> dict[str, object]:
    ended = known_run.ended
    failed = ended is not None and not succeeded(ended)
    return {
        "question": room.text(known_run.run.task.prompt),
        "steps_so_far": "" if ended is not None else format_count(len(known_run.steps), "step"),
        "answer": room.text(ended.answer) if ended and ended.answer is not None else None,
        "failed": room.text(ending_reason(ended)) if ended and failed else None,
    }


def _conversation(run: Run, room: SizeBudget) -> list[dict[str, object]]:
    """Return the caller's messages in addition to the question; empty if there are none."""
    messages = run.task.messages
    if len(messages) < 2:
        return []
    return [
        {
            "role": message.role,
            "name": sanitize(message.name or ""),
            "text": room.text(message.content),
            "images": sum(part.type != "text" for part in message.parts),
            "calls": [
                (
                    room.text(call.name),
                    room.json(call.arguments)
                    if call.arguments is not None
                    else room.text(call.raw_arguments),
                )
                for call in message.tool_calls
            ],
        }
        for message in messages[-MAX_MESSAGES:]
    ]


def _notices(
    known_run: KnownRun, material: CandidateContext, learned: Sequence[LearnedSequence] | None
) -> list[str]:
    notices: list[str] = []
    if len(known_run.steps) > MAX_STEPS:
        notices.append(f"The first {MAX_STEPS:,} of {len(known_run.steps):,} steps are shown.")
    if material.room.omissions:
        notices.append(f"To keep the page small: {material.room.omissions}.")
    if notices:
        notices.append(f"The whole run: runtime runs show {known_run.run.id} --json")
    for base in material.tokenizers.missing:
        notices.append(
            f"The text of single tokens of {base} is not known here: `runtime runs show "
            f"{known_run.run.id} --html FILE --tokenizer FOLDER` takes it from a model's folder."
        )
    if learned is not None and not learned:
        notices.append("The training's record has no token of this run: none of it was kept.")
    return notices


def _cost_words(calls: Sequence[Call], priced: Collection[str] | None) -> str:
    """Format dollars. If it is unknown which pools have a price, tokens without a cost are treated
    as those of a pool without a price."""
    if not calls:
        return "$0"
    micro = sum(call.cost_micro_dollars for call in calls)
    if priced is None:
        tokens = sum(call.usage.prompt + call.usage.completion for call in calls)
        has_cost = bool(micro) or not tokens
        return spent_words(micro, all_known=has_cost, none_known=not has_cost, decimals=6)
    unpriced = [call.policy.name not in priced for call in calls]
    return spent_words(micro, all_known=not any(unpriced), none_known=all(unpriced), decimals=6)


def _cards(
    known_run: KnownRun, priced: Collection[str] | None
) -> list[tuple[str, str, dict[str, str]]]:
    run, ended = known_run.run, known_run.ended
    calls = [call for step in known_run.steps for call in step.calls]
    tokens = sum(call.usage.prompt + call.usage.completion for call in calls)
    until = time.time() if ended is None else ended.ended
    spent = max(0.0, until - run.created)
    budget = run.budget
    dollars = (
        None if budget.micro_dollars is None else format_dollars(budget.micro_dollars / 1e6, 2)
    )
    used = {
        "steps, calls": f"{len(known_run.steps):,}, {len(calls):,}",
        "tokens": _used_of_limit(
            f"{tokens:,}", None if budget.tokens is None else f"{budget.tokens:,}"
        ),
        "cost": _used_of_limit(_cost_words(calls, priced), dollars),
        "time": _used_of_limit(milliseconds(spent), f"{budget.seconds:g} s"),
    }
    cards = [("outcome", "running" if ended is None else ended.outcome.value, used)]
    if ended is not None and (ended.team_reward is not None or ended.agent_rewards):
        team = "–" if ended.team_reward is None else number(ended.team_reward)
        rewards_by_agent = {name: number(value) for name, value in ended.agent_rewards.items()}
        cards.append(("team reward", team, rewards_by_agent))
    policies = dict(run.policies)
    policy_names = dict.fromkeys(
        f"{call.policy.adapter or call.policy.name} v{call.policy.version}" for call in calls
    )
    names = ", ".join(policy_names) or ("none yet" if ended is None else "none")
    cards.append(("policies", names, policies))
    return cards


def _used_of_limit(used: str, limit: str | None) -> str:
    return used if limit is None else f"{used} of {limit}"


def _way(run: KnownRun, steps: Sequence[Step]) -> str:
    """Describe the drawing of the path through the run."""
    shape = shape_of(run.steps)
    if any(candidate.reward_parts for step in steps for candidate in step.candidates):
        return (
            f"{shape}. A row is a turn; ringed and joined: what was executed. The fuller the "
            "green, the greater the reward. Click a candidate to go to it."
        )
    return f"{shape}. A row is a turn; joined: what was executed."


def _facts(run: Run, room: SizeBudget) -> dict[str, str]:
    day = "%Y-%m-%d %H:%M:%S UTC"
    rows = {
        "environment": room.text(run.task.environment),
        "instance": room.json(run.task.instance),
        "options": room.json(run.options),
        "seed": f"{run.seed}",
        "created": time.strftime(day, time.gmtime(run.created)),
        "deadline": time.strftime(day, time.gmtime(run.deadline)),
        "tags": room.json(dict(run.tags)),
        "prompts": room.json(dict(run.prompts)),
    }
    if run.parent is not None:
        rows["forked from"] = room.text(run.parent)
    return rows
