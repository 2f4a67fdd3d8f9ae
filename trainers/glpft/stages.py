"""The models that a method trains: their order, their data, and their shares of the compute.

| method | models | trained on |
|---|---|---|
| `glpft` | backbone, then three roles from it | the global set, then one local set each |
| `no-reuse` | the same | as above, but on other instructions in the second stage |
| `one-stage` | three roles from the start | one local set each |
| `multitask` | one | the three local sets, mixed |
| `single` | one | the global set |

For recorded rows of a team's own agents, each agent is a role: its local set is the text that it
read and wrote, and the global set is the rows of all agents.

Models with random weights first learn to copy: see `copying`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from loopline.trainers.data.examples import SetName

Method = Literal["glpft", "no-reuse", "one-stage", "multitask", "single"]
METHODS: tuple[Method, ...] = ("glpft", "no-reuse", "one-stage", "multitask", "single")
GlobalSet = Literal["global_steps", "global_trajectories"]
"""Data of a backbone or a single model: single steps, or each solution as a whole."""
Role = Literal["planner", "caller", "summarizer"]
ROLES: tuple[Role, ...] = ("planner", "caller", "summarizer")
Part = Literal["all", "first", "second"]
"""Part of the instructions: all, or one of two disjoint halves."""

BACKBONE = "backbone"
COPYING = "copying"
EVEN_SHARES: Mapping[str, float] = {
    BACKBONE: 1 / 2, "planner": 1 / 6, "caller": 1 / 6, "summarizer": 1 / 6,
}  # fmt: skip
"""Half of the compute is global, half of it local."""


@dataclass(frozen=True)
class Stage:
    """One training of one model."""

    name: str
    sets: tuple[SetName, ...]
    share: float
    """Share of the method's whole compute; the shares of all stages add up to 1."""
    begins_from: str | None = None
    """The stage whose weights it starts from; None: the base."""
    part: Part = "all"
    agent: str | None = None
    """Agent whose recorded rows are learned; None: those of all agents."""

    @property
    def is_first(self) -> bool:
        """Whether its model has not yet learned anything of its task."""
        return self.begins_from in (None, COPYING)


def even_shares(agents: Sequence[str]) -> Mapping[str, float]:
    """`EVEN_SHARES` with these agents in place of the roles."""
    if not agents:
        return EVEN_SHARES
    return {BACKBONE: 1 / 2, **dict.fromkeys(agents, 1 / (2 * len(agents)))}


def stages_of(
    method: Method,
    shares: Mapping[str, float],
    global_set: GlobalSet = "global_steps",
    *,
    copying: float = 0.0,
    agents: Sequence[str] = (),
) -> tuple[Stage, ...]:
    """The stages of a method, in order. `shares` are the relative weights of backbone and roles;
    those that the method does not train are left out, and the others get their compute, except for
    `copying`, a share of the whole. `agents`: those of recorded rows, in place of the roles."""
    stages = _stages_of(method, shares, global_set, agents)
    if copying == 0.0:
        return stages
    return (
        Stage(COPYING, ROLES, copying),
        *(
            replace(
                stage,
                share=stage.share * (1 - copying),
                begins_from=stage.begins_from or COPYING,
            )
            for stage in stages
        ),
    )


def _stages_of(
    method: Method, shares: Mapping[str, float], global_set: GlobalSet, agents: Sequence[str]
) -> tuple[Stage, ...]:
    def local(name: str, share: float, **other: Any) -> Stage:
        if agents:
            return Stage(name, (), share, agent=name, **other)
        return Stage(name, (cast(Role, name),), share, **other)

    roles: Sequence[str] = agents or ROLES
    if method == "single":
        return (Stage("single", (global_set,), 1.0),)
    if method == "multitask":
        return (Stage("multitask", ROLES, 1.0),)
    if method == "one-stage":
        whole = sum(shares[role] for role in roles)
        return tuple(local(role, shares[role] / whole) for role in roles)
    whole = shares[BACKBONE] + sum(shares[role] for role in roles)
    halved = method == "no-reuse"
    backbone = Stage(
        BACKBONE, (global_set,), shares[BACKBONE] / whole, part="first" if halved else "all"
    )
    return (
        backbone,
        *(
            local(
                role,
                shares[role] / whole,
                begins_from=BACKBONE,
                part="second" if halved else "all",
            )
            for role in roles
        ),
    )


def is_in_part(instruction_id: str, part: Part) -> bool:
    """Whether an instruction is in that half; the halves depend only on the ids."""
    return part == "all" or (_uniform("half", instruction_id) < 0.5) == (part == "first")


def is_validation(instruction_id: str, share: float) -> bool:
    """Whether an instruction is held out from every stage of every method, to measure the loss."""
    return _uniform("validation", instruction_id) < share


def _uniform(purpose: str, instruction_id: str) -> float:
    digest = hashlib.sha256(f"{purpose}:{instruction_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
