"""What a training did, as its report.json keeps it."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from agents.records import Record
from trainers.errors import UnreadableModel
from trainers.glpft.facts import StageFacts
from trainers.glpft.settings import GlpftSettings

REPORT = "report.json"


class Report(Record):
    """What was trained, and with how much compute."""

    settings: GlpftSettings
    budget: int
    """Tokens, padding included, for all stages together."""
    tokens: int
    """That went through a model."""
    padding: int
    seconds: float
    stages: tuple[StageFacts, ...]


def read_report(output: Path) -> Report | None:
    """Of a folder; None before the training has ended. Raises `UnreadableModel`."""
    path = output / REPORT
    if not path.exists():
        return None
    try:
        return Report.model_validate_json(path.read_bytes())
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UnreadableModel(f"{path} is damaged ({why}): remove it to train anew") from error
