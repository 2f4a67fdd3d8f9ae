"""What a search follows from: one that goes on must have the same settings."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import JsonObject, Record

DEFAULT_RUNS = 400
DEFAULT_HELD_OUT = 200
DEFAULT_ALPHA = 0.05


class CandidateFile(Record):
    """One candidate, by its content."""

    label: str
    hash: str


class SearchSettings(Record):
    """One run of `train prompts`, but for where it is written."""

    workflow: str
    options: JsonObject
    policies: dict[str, str]
    """Role → policy."""
    models: dict[str, str]
    """Pool → model, of those policies and of the proposer."""
    prompts: dict[str, tuple[CandidateFile, ...]]
    """Prompt → its candidates, in the order in which prompts are searched; the one in force first.
    """
    others: dict[str, str] = Field(default_factory=dict)
    """Prompt file → hash, of the deployment's own prompts that are not searched."""
    source: str
    questions_sha256: str
    runs: int = Field(default=DEFAULT_RUNS, ge=1, le=1_000_000)
    """Of the search for one prompt; the held-out comparison has its own."""
    tokens: int | None = Field(default=None, ge=1)
    """Of everything together."""
    held_out: int = Field(default=DEFAULT_HELD_OUT, ge=1, le=100_000)
    """Questions that the winner and the prompt in force are compared on."""
    alpha: float = Field(default=DEFAULT_ALPHA, gt=0, lt=1)
    """Probability of adopting any prompt that is no better, over all prompts that are searched."""
    propose: int = Field(default=0, ge=0, le=64)
    """Candidates that a model writes, for each prompt."""
    proposer: str | None = None
    """The policy that writes them."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    run_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """Deadline of one run."""
