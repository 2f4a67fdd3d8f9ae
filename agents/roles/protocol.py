"""What a role is: a stateless function from a journal to a decision.

To add one, write a class with the members of `Role` and declare an instance in your package's
`pyproject.toml` (the entry point carries the role's name):

    [project.entry-points."loopline.roles"]
    critic = "my_package.critic:critic"

A role must be deterministic: given the same context and the same answers from its host, it makes
the same requests in the same order. This allows a crashed step to be repeated without paying twice,
and a finished run to be replayed. So a role uses no clock, no randomness and no environment of its
own, and keeps nothing between two steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from loopline.agents.payloads import Payload
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Candidate, Decision, JsonObject, Run, Step


@dataclass(frozen=True, slots=True)
class StepContext:
    """Everything that a role may know."""

    run: Run
    journal: tuple[Step, ...]
    """The run's committed steps, in the order of their commits. Branches of one fan-out commit
    in any order: look a step up by agent, turn and branch, never by position."""
    payload: Payload
    turn: int
    branch: int = 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """A role's decision, and the steps that led to it."""

    candidates: tuple[Candidate, ...]
    decision: Decision
    selected: int = 0
    observation: JsonObject = field(default_factory=dict)
    """Results of tools. Together with the calls, they are enough to replay the step."""


@runtime_checkable
class Role(Protocol):
    """One agent of a workflow."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int:
        """Incremented when the same journal would lead to different requests."""
        ...

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompt files that the role uses."""
        ...

    async def step(self, context: StepContext, host: Host) -> StepResult:
        """Execute one step. Raises a retryable `RequestFailed` if the step should be repeated."""
        ...
