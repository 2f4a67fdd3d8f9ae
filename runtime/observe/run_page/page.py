"""The page of one run, from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from loopline.agents.records import Run, Step, Trajectory
from loopline.runtime.observe.learned_tokens import LearnedSequence
from loopline.runtime.observe.run_history import KnownRun
from loopline.runtime.observe.run_page.bounds import MOST_STEPS, Room
from loopline.runtime.observe.run_page.candidates import Material
from loopline.runtime.observe.run_page.overview import shape_of, time_of, timeline, tree
from loopline.runtime.observe.run_page.steps import every_step
from loopline.runtime.observe.run_page.tokenizers import Tokenizers
from loopline.runtime.observe.run_page.tokens import Lessons, legends
from loopline.runtime.terminal.dialogue import ended_how, milliseconds, succeeded
from loopline.runtime.terminal.pages.curves import number
from loopline.runtime.terminal.pages.page import figure, page
from loopline.runtime.terminal.pluralize import counted

_WAYS = {
    "likely": "probability",
    "moved": "importance ratio",
    "mask": "mask",
    "plain": "nothing",
}


def render(
    found: KnownRun,
    tokenizers: Tokenizers | None = None,
    learned: Sequence[LearnedSequence] | None = None,
) -> str:
    """The whole page; `learned` is what a training made of the run, None where none was asked."""
    material = Material(Room(), tokenizers or Tokenizers(), Lessons(learned or ()))
    steps = found.steps[:MOST_STEPS]
    agents = dict.fromkeys(step.agent for step in found.steps)
    colours = {name: at for at, name in enumerate(agents)}
    head = _head(found, material.room)
    shown = every_step(steps, material, colours)
    resources = files("loopline.runtime.observe.run_page")
    body = [
        head,
        _notices(found, material, learned),
        _cards(found),
        _drawings(found, steps, colours),
        _ways(material) if steps else "",
        f'<div class="steps">{shown}</div>',
        _facts(found.run, material.room),
    ]
    return page(
        f"{found.run.workflow} {found.run.id}",
        "\n".join(part for part in body if part),
        style=resources.joinpath("run_page.css").read_text(encoding="utf-8"),
        script=resources.joinpath("run_page.js").read_text(encoding="utf-8"),
    )


def _head(found: KnownRun, room: Room) -> str:
    run, ended = found.run, found.ended
    parts = [
        f"<h1>{escape(run.workflow)} <code>{escape(run.id)}</code></h1>",
        f'<div class="question">{room.text(run.task.prompt)}</div>',
    ]
    if ended is None:
        steps = counted(len(found.steps), "step")
        parts.append(f'<p class="notice">Still going on: {steps} so far.</p>')
    elif ended.answer is not None:
        look = "answer" if succeeded(ended) else "answer not"
        parts.append(f'<div class="{look}"><b>answer</b> {room.text(ended.answer)}</div>')
    if ended is not None and not succeeded(ended):
        parts.append(f'<p class="notice failed">{room.text(ended_how(ended))}</p>')
    return "\n".join(parts)


def _notices(found: KnownRun, material: Material, learned: Sequence[LearnedSequence] | None) -> str:
    said: list[str] = []
    if len(found.steps) > MOST_STEPS:
        said.append(f"The first {MOST_STEPS:,} of {len(found.steps):,} steps are shown.")
    if material.room.said:
        said.append(f"For the page's size, {material.room.said}.")
    if said:
        said.append(f"All of it: runtime runs show {found.run.id} --json")
    for base in material.tokenizers.missing:
        said.append(
            f"The text of single tokens of {base} is not known: name the folder of its model "
            "with --tokenizer."
        )
    if learned is not None and not learned:
        said.append("The training's record has no token of this run: none of it was kept.")
    return "".join(f'<p class="notice">{escape(each)}</p>' for each in said)


def _cards(found: KnownRun) -> str:
    run, ended = found.run, found.ended
    calls = [call for step in found.steps for call in step.calls]
    tokens = sum(call.usage.prompt + call.usage.completion for call in calls)
    cost = sum(call.cost_micro_dollars for call in calls) / 1e6
    until = (
        ended.ended
        if ended is not None
        else max([step.timings.ended for step in found.steps], default=run.created)
    )
    spent = max(0.0, until - run.created)
    budget = run.budget
    dollars = None if budget.micro_dollars is None else f"${budget.micro_dollars / 1e6:g}"
    used = {
        "steps, calls": f"{len(found.steps):,}, {len(calls):,}",
        "tokens": _of(f"{tokens:,}", None if budget.tokens is None else f"{budget.tokens:,}"),
        "cost": _of(f"${cost:.6f}" if cost else "$0", dollars),
        "time": _of(milliseconds(spent), f"{budget.seconds:g} s"),
    }
    cards = [_card("outcome", "still going on" if ended is None else ended.outcome.value, used)]
    if ended is not None and (ended.team_reward is not None or ended.agent_rewards):
        cards.append(_rewards(ended))
    policies = dict(run.policies)
    served = dict.fromkeys(
        f"{call.policy.adapter or call.policy.name} v{call.policy.version}" for call in calls
    )
    cards.append(_card("policies", ", ".join(served) or "none asked", policies))
    return f'<div class="cards">{"".join(cards)}</div>'


def _rewards(ended: Trajectory) -> str:
    team = "–" if ended.team_reward is None else number(ended.team_reward)
    own = {name: number(value) for name, value in ended.agent_rewards.items()}
    return _card("team reward", team, own)


def _card(name: str, big: str, rows: dict[str, str]) -> str:
    listed = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows.items())
    look = "big" if len(big) <= 18 else "big long"
    return (
        f'<section class="card"><h3>{escape(name)}</h3>'
        f'<span class="{look}">{escape(big)}</span><dl>{listed}</dl></section>'
    )


def _of(used: str, limit: str | None) -> str:
    return used if limit is None else f"{used} of {limit}"


def _drawings(found: KnownRun, steps: Sequence[Step], colours: dict[str, int]) -> str:
    if not steps:
        return ""
    shape = shape_of(found.steps)
    way = (
        f"{shape}. A row is a turn; ringed and joined: what was executed. The fuller the "
        "green, the greater the reward. Click a candidate to go to it."
        if any(each.reward_parts for step in steps for each in step.candidates)
        else f"{shape}. A row is a turn; joined: what was executed."
    )
    return (
        '<div class="two">'
        f"{figure(tree(steps, colours), way, 'The way through the run')}"
        f"{figure(timeline(steps, found.run.created, colours), time_of(found.steps), 'Time')}</div>"
    )


def _ways(material: Material) -> str:
    """Which colour tokens have: radio buttons that the style reads, with what the colours mean."""
    keys = legends(learned=bool(material.lessons))
    ways = [*keys, "plain"]
    inputs = "".join(
        f'<input type="radio" name="way" class="way-of" id="by-{way}"{checked}>'
        for way, checked in zip(ways, (" checked", *[""] * len(keys)), strict=True)
    )
    labels = "".join(f'<label for="by-{way}">{_WAYS[way]}</label>' for way in ways)
    legend = "".join(f'<span class="legend for-{way}">{html}</span>' for way, html in keys.items())
    return (
        f'{inputs}<div class="ways"><span class="soft">colour tokens by</span>{labels}{legend}'
        '<span class="fold"><button type="button" id="open-all">open all</button>'
        '<button type="button" id="close-all">close all</button></span></div>'
    )


def _facts(run: Run, room: Room) -> str:
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
    listed = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows.items())
    return (
        f'<details class="panel run-facts"><summary>the run as it was admitted</summary><table>'
        f"<tbody>{listed}</tbody></table></details>"
    )
