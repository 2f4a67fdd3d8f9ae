"""Latency by part: the mean of an arm as a stacked bar, and one median run as a waterfall."""

from __future__ import annotations

from typing import Any

from loopline.bench.report.facts import ArmRuns, Facts
from loopline.bench.report.figures import seconds
from loopline.bench.results import Result
from loopline.runtime.terminal.pages import svg

WIDTH = 460.0


def pool_class(name: str) -> str:
    """Colour of each model: that of the arm in which it works alone."""
    return {"llm": "arm-0", "slm": "arm-2"}.get(name, "arm-3")


def stacked_latency(facts: Facts) -> str:
    """Plot mean seconds per question by part, one bar per arm."""
    arms = {
        arm.name: facts.timings["arms"][arm.name]["mean_seconds"]
        for arm in facts.arms
        if arm.results
    }
    if not arms:
        return ""
    totals = {name: sum(parts.values()) for name, parts in arms.items()}
    walls = {name: facts.timings["arms"][name]["wall"]["mean"] for name in arms}
    longest = max(*totals.values(), *walls.values(), 1e-6)
    row, top = 44.0, 30.0
    left = svg.margin_for(arms, 62.0, WIDTH / 2)
    height = top + row * len(arms) + 30
    x = svg.Scale(0.0, longest * 1.04, left, WIDTH - 20)
    parts: list[str] = [_legend(arms)]
    for tick in x.ticks(4):
        parts.append(svg.line(x(tick), top, x(tick), height - 26, "grid"))
        parts.append(svg.text(x(tick), height - 10, seconds(tick), "tick", "middle"))
    for at, (name, means) in enumerate(arms.items()):
        y = top + row * at + 8
        parts.append(svg.name(left, y + 18, name, "name"))
        begin = 0.0
        for part, value in means.items():
            words = f"{name}: {_part_label(part)} {seconds(value)}"
            parts.append(
                svg.rect(x(begin), y, x(begin + value) - x(begin), 26, _part_class(part),
                         svg.hint(words))
            )  # fmt: skip
            begin += value
        wall = x(walls[name])
        parts.append(svg.line(wall, y - 4, wall, y + 30, "wall"))
    return svg.picture(WIDTH, height, "Mean latency by part", *parts)


def run_at_quantile(arm: ArmRuns, share: float) -> Result | None:
    """Return the run whose wall time is this quantile of the arm's wall times (0.5 is the
    median)."""
    ordered = sorted(arm.results, key=lambda result: (result.seconds.wall, result.item))
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def waterfall(transcript: dict[str, Any]) -> str:
    """Plot one run over time: a row per step, grey while it waits, coloured while a model works."""
    steps: list[dict[str, Any]] = transcript.get("steps", [])[:24]
    if not steps:
        return ""
    wall = max([float(transcript.get("wall") or 0), *(float(s["end"]) for s in steps), 1e-6])
    row, top = 24.0, 6.0
    left = svg.margin_for(map(_place, steps), 96.0, WIDTH / 2)
    height = top + row * len(steps) + 30
    x = svg.Scale(0.0, wall, left, WIDTH - 20)
    parts: list[str] = []
    for tick in x.ticks(4):
        parts.append(svg.line(x(tick), top, x(tick), height - 26, "grid"))
        parts.append(svg.text(x(tick), height - 10, seconds(tick), "tick", "middle"))
    for at, step in enumerate(steps):
        y = top + row * at + 4
        name = _place(step)
        parts.append(svg.name(left, y + 12, name, "label"))
        start, end = float(step["start"]), float(step["end"])
        waited = float(step["waited"])
        parts.append(_bar(x, y, start - waited, start, "part-queue", "waiting for a worker"))
        parts.append(_bar(x, y, start, end, "part-other", f"{name}: {seconds(end - start)}"))
        now = start
        for call in _slowest_calls(step["calls"]):
            queue, first, decode = (float(value) for value in call["seconds"])
            parts.append(_bar(x, y, now, min(end, now + queue), "part-queue", "engine's queue"))
            now += queue
            segment_end = min(end, now + first + decode)
            words = f"{call['pool']}: {seconds(first)} to the first token, {seconds(decode)} more"
            parts.append(_bar(x, y, now, segment_end, pool_class(str(call["pool"])), words))
            now = segment_end
    return svg.picture(WIDTH, height, "One run over time", *parts)


def _place(step: dict[str, Any]) -> str:
    branch = f".{step['branch']}" if step["branch"] else ""
    return f"{step['agent']} {step['turn']}{branch}"


def _slowest_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of the candidate that took longest. Older transcripts don't tell candidates
    apart: all their calls are treated as sequential."""
    candidates: dict[int, list[dict[str, Any]]] = {}
    for call in calls:
        candidates.setdefault(call.get("candidate", 0), []).append(call)
    return max(
        candidates.values(),
        key=lambda agent_calls: sum(sum(map(float, call["seconds"])) for call in agent_calls),
        default=[],
    )


def _bar(x: svg.Scale, y: float, start: float, end: float, class_: str, words: str) -> str:
    width = x(max(start, end)) - x(max(0.0, start))
    return svg.rect(x(max(0.0, start)), y, max(0.7, width), 15, f"bar {class_}", svg.hint(words))


def _legend(arms: dict[str, dict[str, float]]) -> str:
    part_names = dict.fromkeys(part for parts in arms.values() for part in parts)
    names = ["queue", *sorted(part for part in part_names if part.startswith("pool:")), "other"]
    drawn: list[str] = []
    at = 14.0
    for name in names:
        words = _part_label(name)
        drawn.append(svg.rect(at, 6, 11, 11, _part_class(name)))
        drawn.append(svg.text(at + 16, 16, words, "tick"))
        at += 30 + 6.2 * len(words)
    drawn.append(svg.line(at + 4, 4, at + 4, 19, "wall"))
    drawn.append(svg.text(at + 11, 16, "wall", "tick"))
    return "".join(drawn)


def _part_label(part: str) -> str:
    names = {"queue": "waiting", "other": "tools, hand-over"}
    return names.get(part, part.removeprefix("pool:"))


def _part_class(part: str) -> str:
    if part in {"queue", "other"}:
        return f"bar part-{part}"
    return f"bar {pool_class(part.removeprefix('pool:'))}"
