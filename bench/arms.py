"""The arms of a comparison: which workflow answers, with which models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from agents.records import JsonObject
from bench.errors import UsageError


@dataclass(frozen=True)
class Arm:
    """One way to answer the questions."""

    name: str
    workflow: str
    policies: dict[str, str] = field(default_factory=dict[str, str])
    """Role → pool, over the deployment's own."""
    about: str = ""
    setting: JsonObject = field(default_factory=dict[str, JsonValue])
    """Over the setting of each instance: how this arm plays it."""


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("llm", "solo", {"solo": "llm"}, "the big model alone"),
        Arm("router", "delegate", {}, "the big model delegates to the small one"),
        Arm("slm", "solo", {"solo": "slm"}, "the small model alone"),
    )
}
TOOL_ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("umi", "umi", {}, "planner, caller and summarizer"),
        Arm("single", "umi_single", {}, "one model that does the work of all three"),
    )
}
PUZZLE_ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(
            "pair",
            "pair",
            about="a tool agent proposes, a plan agent acts",
            setting={"team": ["tool_agent", "plan_agent"]},
        ),
        Arm(
            "plan_agent_alone",
            "pair",
            about="without proposals",
            setting={"team": ["plan_agent"]},
        ),
        Arm(
            "tool_agent_alone",
            "pair",
            about="its proposals are played",
            setting={"team": ["tool_agent"]},
        ),
    )
}


def with_setting(instance: JsonObject, setting: JsonObject) -> JsonObject:
    """An instance of a puzzle, played otherwise in these points."""
    own = instance.get("setting")
    return {**instance, "setting": {**(own if isinstance(own, dict) else {}), **setting}}


def parse_arms(text: str, benchmark: str = "") -> tuple[Arm, ...]:
    """Arms from `llm,router,slm`, or those that the benchmark has. Raises UsageError for an
    unknown or repeated one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    arms = _arms_of(benchmark)
    known = "any policy of the deployment" if arms is None else ", ".join(arms)
    if not names:
        raise UsageError(f"--arms names no arm; there are: {known}")
    for name in names:
        if arms is not None and name not in arms:
            raise UsageError(f"--arms: there is no arm {name!r}; there are: {known}")
        if names.count(name) > 1:
            raise UsageError(f"--arms names {name!r} twice")
    return tuple(_policy(name) if arms is None else arms[name] for name in names)


def named(names: Sequence[str], benchmark: str = "") -> tuple[Arm, ...]:
    """Arms by name, as a manifest lists them."""
    return parse_arms(",".join(names), benchmark)


def _arms_of(benchmark: str) -> dict[str, Arm] | None:
    """The arms of a benchmark; None where each policy is one."""
    if benchmark in ("worlds", "tool_steps"):
        return TOOL_ARMS
    if benchmark == "puzzles":
        return PUZZLE_ARMS
    return None if benchmark in ("bfcl", "apibench") else ARMS


def _policy(name: str) -> Arm:
    return Arm(name, "completion", {"completion": name}, "one completion for each question")
