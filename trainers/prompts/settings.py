"""The settings that determine a search: a search that resumes must have the same ones."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loopline.agents.records import JsonObject, Record
from loopline.runtime.config.options import Option, Options


class CandidateFile(Record):
    """One candidate, by its content."""

    label: str
    hash: str


class SearchOptions(Options):
    """Length of the search, and the criterion for adopting a prompt."""

    panel: ClassVar[str] = "Search"

    runs: int = Field(default=400, ge=1, le=1_000_000)
    """Most runs of the search for one prompt; the comparison on held-out questions is extra."""
    tokens: Annotated[int | None, Option(default="no limit")] = Field(default=None, ge=1)
    """Most tokens in total; checked between batches of runs."""
    held_out: int = Field(default=200, ge=1, le=100_000)
    """Questions on which the winner and the current prompt are compared."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Probability of adopting a prompt that is not better, over all prompts that are searched."""
    propose: int = Field(default=0, ge=0, le=64)
    """Candidates that a model writes, for each prompt."""
    proposer: Annotated[str | None, Option(metavar="POLICY")] = None
    """Policy that writes the candidates, such as llm."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    """Seed of the questions and of the runs."""
    run_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """Deadline of one run in seconds."""


class SearchSettings(SearchOptions):
    """Everything that determines a search, except its output folder. The folder records it."""

    workflow: str
    options: JsonObject
    policies: dict[str, str]
    """Role → policy."""
    models: dict[str, str]
    """Pool → model, of those policies and of the proposer."""
    prompts: dict[str, tuple[CandidateFile, ...]]
    """Prompt → its candidates, in the order in which prompts are searched; the current one
    first."""
    others: dict[str, str] = Field(default_factory=dict)
    """Prompt file → hash, of the deployment's own prompts that are not searched."""
    source: str
    questions_sha256: str
