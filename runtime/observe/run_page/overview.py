"""The drawings at the top: the tree of candidates with the executed path, and the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from loopline.agents.records import RequestTiming, Step
from loopline.runtime.observe.run_page.candidates import anchor, reward_of
from loopline.runtime.terminal.dialogue import decision_of, milliseconds
from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.curves import number
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.safe_text import sanitize

WIDTH = 400.0
"""Slightly more than the width of a phone, so that a drawing keeps its size there."""
MAX_ROWS = 60
MAX_REQUESTS = 12
"""Maximum requests of one step that are drawn."""
MAX_NODES = 64
"""Maximum nodes of one row: the largest possible K."""
SHADES = 5
_ROW, _LEFT, _TOP = 46.0, 104.0, 20.0
_WIDEST = 42.0
"""Maximum pixels between two candidates."""
_BAR_ROW, _BAR = 22.0, 14.0
_WORDS = 36
"""Maximum characters of a decision that fit."""


@dataclass(frozen=True)
class _Node:
    """One candidate in the drawing; a step without candidates is a node too."""

    step: Step
    number: int | None
    x: float
    y: float

    @property
    def chosen(self) -> bool:
        return self.number is None or self.number == self.step.selected

    @property
    def reward(self) -> float | None:
        return None if self.number is None else reward_of(self.step.candidates[self.number])


def tree(steps: Sequence[Step], colours: dict[str, int]) -> str:
    """Draw one row per turn with its candidates; the path through the run joins the executed ones.
    Fuller nodes earned more; without rewards, nodes have their agent's colour."""
    rows = _rows(steps)[:MAX_ROWS]
    nodes = [_place_nodes(row, at) for at, row in enumerate(rows)]
    reward_values = [value for row in nodes for node in row if (value := node.reward) is not None]
    parts: list[str] = []
    for above, below in pairwise(nodes):
        begins = [node for node in above if node.chosen]
        # The path is drawn on top of the other edges.
        for way in (False, True):
            parts += [_edge(begin, end) for begin in begins for end in below if end.chosen is way]
    for row in nodes:
        parts.append(_label(row, colours))
        parts += [_draw_node(node, reward_values, len(row), colours) for node in row]
    height = _TOP + _ROW * len(rows)
    return svg.picture(WIDTH, height, "Candidates, and the path that was taken", *parts)


def timeline(steps: Sequence[Step], began: float, colours: dict[str, int]) -> str:
    """Draw one bar per step with its wait, its models (the longest candidate) and the rest, and
    below it thin bars for its requests to other processes."""
    rows = _waterfall(steps)
    ends = max([step.timings.ended for step, _ in rows], default=began)
    x = svg.Scale(0.0, max(ends - began, 0.1), _LEFT, WIDTH - 16)
    bottom = 6.0 + _BAR_ROW * len(rows)
    parts: list[str] = []
    for tick in x.ticks(4):
        parts.append(svg.line(x(tick), 4.0, x(tick), bottom, "grid"))
        parts.append(svg.text(x(tick), bottom + 16, f"{tick:g} s", "tick", "middle"))
    for at, (step, request) in enumerate(rows):
        y = 6.0 + _BAR_ROW * at
        if request is None:
            parts.append(svg.text(_LEFT - 8, y + 12, _name(step), "label", "end"))
            parts += _bars(step, began, x, y, colours)
        else:
            name = _shorten_name(sanitize(request.name))
            parts.append(svg.text(_LEFT - 8, y + 11, name, "tick", "end"))
            parts.append(_thin_bar(step, request, began, x, y, colours))
    return svg.picture(WIDTH, bottom + 24, "Where the time went", *parts)


def _waterfall(steps: Sequence[Step]) -> list[tuple[Step, RequestTiming | None]]:
    """Return as many steps as fit, each followed by its requests."""
    rows: list[tuple[Step, RequestTiming | None]] = []
    for step in steps:
        requests = step.timings.requests[:MAX_REQUESTS]
        if len(rows) + 1 > MAX_ROWS:
            break
        rows.append((step, None))
        rows += [(step, request) for request in requests][: MAX_ROWS - len(rows)]
    return rows


def _thin_bar(
    step: Step,
    request: RequestTiming,
    began: float,
    x: svg.Scale,
    y: float,
    colours: dict[str, int],
) -> str:
    is_tool = request.kind == "tool"
    workers = {
        call.worker
        for call in step.calls
        if call.worker and request.name in (call.policy.name, call.policy.adapter)
    }
    where = "a tool worker" if is_tool else ", ".join(sorted(workers)) or "another process"
    failed = f", {request.error}" if request.error else ""
    took = milliseconds(max(0.0, request.ended - request.started))
    begin, end = x(request.started - began), x(request.ended - began)
    return svg.rect(
        begin,
        y + 3,
        max(1.0, end - begin),
        _BAR - 6,
        "bar other" if is_tool else f"bar arm-{colours.get(step.agent, 0) % 6}",
        svg.hint(sanitize(f"{_name(step)}: {request.name} in {where}, {took}{failed}")),
    )


def _bars(step: Step, began: float, x: svg.Scale, y: float, colours: dict[str, int]) -> list[str]:
    started, ended = step.timings.started - began, step.timings.ended - began
    waited = max(0.0, started - step.timings.waited)
    models = max(
        (sum(call.latency.total for call in candidate.calls) for candidate in step.candidates),
        default=0.0,
    )
    between = min(ended, started + models)
    where = f" on {step.worker}" if step.worker else ""
    parts = [
        (waited, started, "queue", "waited"),
        (started, between, f"arm-{colours.get(step.agent, 0) % 6}", "models"),
        (between, ended, "other", "tools, scoring, hand-over"),
    ]
    return [
        svg.rect(
            x(begin),
            y,
            max(1.0, x(end) - x(begin)),
            _BAR,
            f"bar {look}",
            svg.hint(sanitize(f"{_name(step)}{where}: {words} {milliseconds(end - begin)}")),
        )
        for begin, end, look, words in parts
        if end > begin
    ]


def _rows(steps: Sequence[Step]) -> list[list[Step]]:
    ordered = sorted(steps, key=lambda step: (step.turn, step.branch))
    return [list(same) for _, same in groupby(ordered, key=lambda step: step.turn)]


def _nodes(row: Sequence[Step]) -> list[tuple[Step, int | None]]:
    """Return the candidates with their numbers; a step without candidates is one node."""
    nodes: list[tuple[Step, int | None]] = []
    for step in row:
        nodes += [(step, k) for k in range(len(step.candidates))] or [(step, None)]
    return nodes


def _place_nodes(row: Sequence[Step], at: int) -> list[_Node]:
    nodes = _nodes(row)
    # Executed candidates are always drawn.
    aside = [number not in (None, step.selected) for step, number in nodes]
    places = sorted(sorted(range(len(nodes)), key=aside.__getitem__)[:MAX_NODES])
    room = WIDTH - _LEFT - 24
    apart = min(_WIDEST, room / max(1, len(places)))
    first = _LEFT + 16
    return [
        _Node(*nodes[place], x=first + apart * number, y=_TOP + _ROW * at)
        for number, place in enumerate(places)
    ]


def _edge(begin: _Node, end: _Node) -> str:
    middle = (begin.y + end.y) / 2
    curve = (
        f"M{begin.x:.1f},{begin.y:.1f} C{begin.x:.1f},{middle:.1f} {end.x:.1f},{middle:.1f} "
        f"{end.x:.1f},{end.y:.1f}"
    )
    return svg.tag("path", d=curve, class_="way" if end.chosen else "aside")


def _draw_node(node: _Node, rewards: Sequence[float], count: int, colours: dict[str, int]) -> str:
    reward = node.reward
    look = f"arm-{colours.get(node.step.agent, 0) % 6}"
    if reward is not None:
        low, high = min(0.0, *rewards), max(rewards)
        shade = svg.Scale(low, high, 0.0, SHADES - 1.0)(reward) if high > low else 0.0
        look = f"worth-{round(shade)}"
    words = _name(node.step)
    if node.number is not None and len(node.step.candidates) > 1:
        words += f", candidate {node.number}{', executed' if node.chosen else ''}"
    words += "" if reward is None else f": reward {number(reward)}"
    small = count > (WIDTH - _LEFT) / 22
    radius = (6.5 if node.chosen else 5.0) - (2.0 if small else 0.0)
    parts = [
        svg.hint(words),
        svg.tag(
            "circle",
            cx=node.x,
            cy=node.y,
            r=radius,
            class_=f"spot {look}{' chosen' if node.chosen else ''}",
        ),
    ]
    if reward is not None and count <= (WIDTH - _LEFT) / _WIDEST:
        parts.append(svg.text(node.x + 9, node.y + 4, number(round(reward, 2)), "tick"))
    several = node.number is not None and len(node.step.candidates) > 1
    if count == 1 and not several:
        decided = sanitize(decision_of(node.step))
        label = decided if len(decided) <= _WORDS else f"{decided[: _WORDS - 1]}…"
        parts.append(svg.text(node.x + 16, node.y + 4, label, "label"))
    return svg.link(f"#{anchor(node.step, node.number if several else None)}", *parts)


def _label(row: Sequence[_Node], colours: dict[str, int]) -> str:
    steps = list(dict.fromkeys(node.step.branch for node in row))
    first = row[0].step
    name = f"{first.turn} {first.agent}" + (f" × {len(steps)}" if len(steps) > 1 else "")
    return svg.tag(
        "g",
        svg.rect(0.0, row[0].y - 6, 4.0, 12.0, f"bar arm-{colours.get(first.agent, 0) % 6}"),
        svg.text(10.0, row[0].y + 4, _shorten_name(name), "label"),
    )


def _name(step: Step) -> str:
    place = f"{step.turn}.{step.branch}" if step.branch else f"{step.turn}"
    return _shorten_name(f"{place} {step.agent}")


def _shorten_name(name: str) -> str:
    return name if len(name) <= 15 else f"{name[:14]}…"


def shape_of(steps: Sequence[Step]) -> str:
    """Describe the size of the tree, and what the drawing leaves out."""
    candidates = sum(len(step.candidates) for step in steps)
    rows = _rows(steps)
    caption = f"{format_count(len(steps), 'step')}, {format_count(candidates, 'candidate')}"
    if len(rows) > MAX_ROWS:
        caption += f"; the first {MAX_ROWS} of {len(rows):,} turns are drawn"
    fullest = max((len(_nodes(row)) for row in rows[:MAX_ROWS]), default=0)
    if fullest > MAX_NODES:
        caption += f"; of a turn's candidates (up to {fullest:,}) {MAX_NODES} are drawn"
    return caption


def time_of(steps: Sequence[Step]) -> str:
    """Describe the timeline in words."""
    caption = "Seconds since admission. Grey: waiting; coloured: models; violet: everything else."
    rows = _waterfall(steps)
    if any(request is not None for _, request in rows):
        caption += " Thin bars are requests to gpu and tool workers."
    drawn = sum(request is None for _, request in rows)
    if len(steps) > drawn:
        caption += f" The first {drawn} of {len(steps):,} steps are drawn."
    return caption
