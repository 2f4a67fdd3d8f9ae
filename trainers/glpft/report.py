"""Results of a training, as its report.json keeps them."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.glpft.facts import StageFacts
from loopline.trainers.glpft.settings import GlpftSettings

REPORT = "report.json"


class Report(Record):
    """What was trained, and with how much compute."""

    settings: GlpftSettings
    budget: int
    """Tokens, padding included, for all stages together."""
    tokens: int
    """Tokens that went through a model."""
    padding: int
    seconds: float
    stages: tuple[StageFacts, ...]


def read_report(output: Path) -> Report | None:
    """Report of a folder; None before the training has ended. Raises `UnreadableModel`."""
    return find_record(output / REPORT, Report, "remove it to train again")
