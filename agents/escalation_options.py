"""Options that send a single doubtful step of an agent to another model. Any agent of the workflows
`agent` and `team` may have them, and `cascade` has them with `escalate="step"`."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import Record

_BIG = ".big"


class EscalationOptions(Record):
    """Checks that a completion has to pass; if one fails, the other model writes the completion
    again. Valid calls and an answer in the requested format are always required."""

    model: str = Field(default="llm", min_length=1, max_length=128)
    """Policy for a doubtful step, if the run assigns none to the agent `NAME.big`."""
    arithmetic: bool = False
    """Recompute the equations in the text."""
    min_logprob: float | None = Field(default=None, le=0)
    """Minimum mean log-probability of a completion's tokens; None: not checked."""
    samples: int = Field(default=0, ge=0, le=16)
    """Further completions, drawn in one batch with the one that counts; 0: none."""
    min_agreement: float = Field(default=0.6, ge=0, le=1)
    """Minimum share of the further completions with the same calls or the same text."""
    temperature: float = Field(default=0.8, gt=0, le=2)
    """Temperature of the further completions."""
    router: str | None = Field(default=None, max_length=4096, pattern=r"\.router\.json$")
    """File of `train router` that judges a final text, on the tool workers' machine."""


def big_agent(agent: str) -> str:
    """The name under which a run assigns a policy to the model for an agent's doubtful steps."""
    return f"{agent}{_BIG}"


def agent_of(name: str) -> str:
    """The agent whose steps these are."""
    return name.removesuffix(_BIG)
