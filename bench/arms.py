"""The arms of a comparison: which workflow answers, with which models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.bench.errors import UsageError
from loopline.bench.teams import CODE, MATH, PUZZLES


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
    roles: tuple[str, ...] = ()
    """Of the workflow's roles those that play; none: all of them."""
    swapped: bool = False
    """Each of its two roles plays with the deployment's policy of the other one."""


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


def _team(first: str, second: str, *, name: str, about: str, alone: dict[str, str]) -> list[Arm]:
    """The arms of a team of two: both, both with each other's policies, and members alone. `alone`:
    member → what that is."""
    both = (first, second)
    return [
        Arm(name, "pair", about=about, setting={"team": [*both]}, roles=both),
        Arm(
            "swapped",
            "pair",
            about=f"the arm {name}, each role played by the other one's policy",
            setting={"team": [*both]},
            roles=both,
            swapped=True,
        ),
        *(
            Arm(f"{role}_alone", "pair", about=what, setting={"team": [role]}, roles=(role,))
            for role, what in alone.items()
        ),
    ]


TEAM_ARMS: dict[str, dict[str, Arm]] = {
    benchmark: {arm.name: arm for arm in arms}
    for benchmark, arms in (
        (
            PUZZLES,
            _team(
                "tool_agent",
                "plan_agent",
                name="pair",
                about="a tool agent proposes, a plan agent acts",
                alone={
                    "plan_agent": "without proposals",
                    "tool_agent": "its proposals are played",
                },
            ),
        ),
        (
            CODE,
            _team(
                "coder",
                "tester",
                name="team",
                about="a coder's program and a unit tester's test, run against each other",
                alone={"coder": "one program, without a test"},
            ),
        ),
        (
            MATH,
            _team(
                "reasoner",
                "tool_user",
                name="team",
                about="a solution in words and a program's answer, held against each other",
                alone={"reasoner": "one solution, without a program"},
            ),
        ),
    )
}
"""Benchmark → its arms. A swap says how much a policy has become its role's: it also puts each
policy before prompts that it was not trained on."""


def with_setting(instance: JsonObject, setting: JsonObject) -> JsonObject:
    """An instance that a team plays, played otherwise in these points."""
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
    if benchmark in TEAM_ARMS:
        return TEAM_ARMS[benchmark]
    return None if benchmark in ("bfcl", "apibench") else ARMS


def _policy(name: str) -> Arm:
    return Arm(name, "completion", {"completion": name}, "one completion for each question")


def exchanged(arm: Arm, policies: Mapping[str, str]) -> dict[str, str]:
    """Role → policy of an arm whose two roles play with each other's, from those that they would
    play with. Raises UsageError where both are the same."""
    first, second = arm.roles
    if policies[first] == policies[second]:
        raise UsageError(
            f"arm {arm.name}: {first} and {second} are both served by the policy "
            f"{policies[first]!r}, so there is nothing to swap; leave the arm out, or give each "
            "role a policy of its own under [policies]"
        )
    return {first: policies[second], second: policies[first]}
