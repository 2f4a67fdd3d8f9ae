"""Facts of a finished stage, in its folder, and the results of a training in its report.json."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.glpft.settings import GlpftSettings
from loopline.workers.engines.local.adapter_base import FACTS


class StageFacts(Record):
    """How a stage's model was trained."""

    settings: GlpftSettings
    stage: str
    adapter: bool
    base_sha256: str
    """SHA-256 of the weights that it started from. An adapter fits only these; workers that serve
    other weights refuse it."""
    parameters: int
    trained_parameters: int
    rows: int
    too_long: int
    steps: int
    tokens: int
    """Tokens that passed through the model, padding included."""
    budget: int
    """Target number of tokens; the stage ends with the step that comes closest."""
    padding: int
    learned: int
    """Tokens on which the loss is computed."""
    seconds: float
    losses: tuple[float, ...]
    """Mean loss of each reported interval, in nats per learned token."""
    validation_before: float | None
    validation_after: float | None
    """Nats per learned token on the held-out instructions; None if there are none."""
    peak_memory_mb: float
    """Peak memory of the process up to the end of the stage, including earlier stages."""
    torch: str
    transformers: str


def read_facts(folder: Path) -> StageFacts | None:
    """Facts of a finished stage; None for an unfinished one. Raises `UnreadableModel`."""
    return find_record(folder / FACTS, StageFacts, "remove it to train again")


REPORT = "report.json"


class Report(Record):
    """The result of a training, and its compute."""

    settings: GlpftSettings
    budget: int
    """Tokens, padding included, for all stages together."""
    tokens: int
    """Tokens that went through a model."""
    padding: int
    seconds: float
    stages: tuple[StageFacts, ...]


def read_report(output: Path) -> Report | None:
    """Report of a folder; None before the training has finished. Raises `UnreadableModel`."""
    return find_record(output / REPORT, Report, "remove it to train again")
