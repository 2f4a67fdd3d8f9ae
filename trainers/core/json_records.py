"""A record in a separate file: written atomically, and read again by a training that resumes."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from loopline.trainers.errors import TrainingError, UnreadableModel
from loopline.workers.atomic_files import write_atomic

RESTART = "--restart trains again"
RecordT = TypeVar("RecordT", bound=BaseModel)


def write_record(path: Path, record: BaseModel) -> None:
    """Write the record atomically: half of one would look like a damaged finished record. Raises
    OSError."""
    write_atomic(path, record.model_dump_json(indent=1) + "\n")


def read_record(
    path: Path,
    kind: type[RecordT],
    advice: str = RESTART,
    failure: type[TrainingError] = UnreadableModel,
) -> RecordT:
    """Read a record. Raises `failure`, which ends with the advice, for a damaged file; OSError for
    a missing one."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise damage_error(path, error, advice, failure) from error


def damage_error(
    path: Path,
    error: ValidationError,
    advice: str = RESTART,
    failure: type[TrainingError] = UnreadableModel,
) -> TrainingError:
    """The error for a damaged file, with the first fault in it."""
    return failure(f"{path} is damaged ({error.errors(include_url=False)[0]['msg']}); {advice}")


def find_record(
    path: Path,
    kind: type[RecordT],
    advice: str = RESTART,
    failure: type[TrainingError] = UnreadableModel,
) -> RecordT | None:
    """Read a record; None if the file does not exist. Raises `failure` for a damaged one."""
    return read_record(path, kind, advice, failure) if path.exists() else None
