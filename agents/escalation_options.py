"""Options that send a single doubtful step of an agent to another model. Any agent of the workflows
`agent` and `team` may have them, and `cascade` by `escalate="step"`."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import Record

_BIG = ".big"


class EscalationOptions(Record):
    """Checks that a completion has to pass; one that fails is written again by the other model.
    That its calls are valid and its answer has the requested form is always checked."""

    model: str = Field(default="llm", min_length=1, max_length=128)
    """Policy that takes a doubtful step, where the run assigns none to the agent `NAME.big`."""
    arithmetic: bool = False
    """Recompute the equations in what it says."""
    min_logprob: float | None = Field(default=None, le=0)
    """Least mean log-probability of a completion's tokens; None: not checked."""
    samples: int = Field(default=0, ge=0, le=16)
    """Further completions, drawn in one batch with the one that counts; 0: none."""
    min_agreement: float = Field(default=0.6, ge=0, le=1)
    """Least share of them that make the same calls, or say the same."""
    temperature: float = Field(default=0.8, gt=0, le=2)
    """Temperature at which they are drawn."""
    router: str | None = Field(default=None, max_length=4096, pattern=r"\.router\.json$")
    """File of `train router` that judges a final text, on the machine of the tool workers."""


def big_agent(agent: str) -> str:
    """The name under which a run assigns a policy to the model that takes an agent's doubtful
    steps."""
    return f"{agent}{_BIG}"


def agent_of(name: str) -> str:
    """The agent whose steps these are."""
    return name.removesuffix(_BIG)
