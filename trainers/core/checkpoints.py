"""Checkpoints that survive a kill at any moment: safetensors and JSON, never a pickle.

A checkpoint is one folder, written under a temporary name, flushed to disk and renamed into place;
only then is the previous one removed. The JSON contains the tensors' hash, so that a damaged file
is refused and not trained on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError

from loopline.agents.records import Record
from loopline.trainers.core.output_folder import LOCK, guard_disk_writes
from loopline.trainers.errors import (
    CorruptCheckpoint,
    NotEnoughDisk,
    TrainingError,
    UnreadableModel,
)
from loopline.trainers.sft.recipes import Recipe
from loopline.workers.atomic_files import flush, flush_all

if TYPE_CHECKING:
    import torch

TENSORS = "tensors.safetensors"
STATE = "state.json"
_PREFIX = "checkpoint-"
_ASIDE = ".old"


class CheckpointState(Record):
    """State in every checkpoint besides its tensors."""

    step: int
    """Finished steps."""
    sha256: str = ""
    """Hash of the tensor file."""


class TrainingState(CheckpointState):
    """State in a checkpoint of `train sft` besides its tensors."""

    recipe: Recipe
    seconds: float
    """Training time so far, over all resumed parts."""
    tokens: int
    """Tokens seen so far, padding included."""
    losses: list[float]
    """Mean loss of each reported stretch."""


StateT = TypeVar("StateT", bound=CheckpointState)
ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class Checkpoint(Generic[StateT]):
    """One checkpoint as read back."""

    state: StateT
    tensors: dict[str, torch.Tensor]


def save_checkpoint(
    folder: Path, state: CheckpointState, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Write `folder/checkpoint-<step>`, and remove the previous ones; at any moment at least one is
    complete. Raises `NotEnoughDisk`."""
    from safetensors.torch import save

    data = save(dict(tensors))
    require_disk(folder, len(data))
    partial = folder / f".partial-{state.step}"
    final = folder / f"{_PREFIX}{state.step:08d}"
    digest = hashlib.sha256(data).hexdigest()
    described = state.model_copy(update={"sha256": digest})
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with guard_disk_writes(final):
            partial.mkdir(parents=True)
            (partial / TENSORS).write_bytes(data)
            (partial / STATE).write_text(described.model_dump_json(indent=1), encoding="utf-8")
            flush_all(partial)
            if final.exists():
                # The same step once more: until the new checkpoint has its name, the old one has
                # another.
                aside = final.with_name(f"{final.name}{_ASIDE}")
                shutil.rmtree(aside, ignore_errors=True)
                final.rename(aside)
            partial.rename(final)
            flush(folder)
    except NotEnoughDisk:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for old in _folders(folder):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path, kind: type[StateT]) -> Checkpoint[StateT] | None:
    """The latest checkpoint in `folder`, with a state of that kind, or `None` if there is none.

    Raises `CorruptCheckpoint` if the latest one cannot be read.
    """
    folders = _folders(folder)
    if not folders:
        return None
    latest = folders[-1]
    try:
        state = kind.model_validate_json((latest / STATE).read_bytes())
        data = (latest / TENSORS).read_bytes()
    except (OSError, ValidationError) as error:
        raise _corruption_error(latest, f"cannot be read: {_first_line(error)}") from error
    if hashlib.sha256(data).hexdigest() != state.sha256:
        raise _corruption_error(latest, f"the hash of {TENSORS} differs from the one in {STATE}")
    from safetensors.torch import load

    return Checkpoint(state, load(data))


def require_disk(folder: Path, needed: int) -> None:
    """Raise `NotEnoughDisk` unless `needed` bytes and a small reserve are free at `folder`."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    reserve = 16 * 1024 * 1024
    if free < needed + reserve:
        raise NotEnoughDisk(
            f"{folder} has {free / 1e6:.0f} MB of free disk space, but "
            f"{(needed + reserve) / 1e6:.0f} MB are needed; free some space and resume with the "
            "same command, or choose another folder"
        )


def require_room_for_two(folder: Path, size: int, extra: int = 0) -> None:
    """Raise `NotEnoughDisk` unless `folder` has room for two checkpoints of `size` bytes and for
    `extra` bytes. Room that an existing checkpoint takes is not required again: a training that had
    room to start has room to continue."""
    files = (path for old in _folders(folder) for path in old.rglob("*"))
    there = sum(path.stat().st_size for path in files if path.is_file())
    require_disk(folder, 2 * size - min(size, there) + extra)


def claimed_settings(path: Path, kind: type[ModelT]) -> ModelT:
    """The settings that a folder was started with. Raises `UnreadableModel`, also for the file of
    another command, whose work must not be mistaken for this one's."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"]
        raise UnreadableModel(
            f"{path} belongs to another command or version, or is damaged ({why}): choose another "
            f"folder, or remove {path.parent} if you do not need its contents"
        ) from error


def require_same_recipe(existing_settings: BaseModel, wanted: BaseModel, folder: Path) -> None:
    """Raise `TrainingError` if the contents of `folder` belong to another training."""
    changed = changed_settings(existing_settings.model_dump(), wanted.model_dump())
    if changed:
        raise TrainingError(
            f"{folder} was started with other settings: {', '.join(changed)}; use the same ones, "
            "or another folder"
        )


def require_unused(output: Path, but: Collection[str] = ()) -> None:
    """Raise `TrainingError` if a folder contains anything except files with these names, its lock,
    and files that a kill left half-written."""
    if output.exists():
        for path in output.iterdir():
            half_written = path.name.startswith(".") and path.suffix in (".part", ".partial")
            if path.name not in (LOCK, *but) and not half_written:
                raise TrainingError(
                    f"{output} already contains other files ({path.name}); choose another folder"
                )


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`name (before → now)` of each setting that differs, `outer.name` for nested ones."""
    changed: list[str] = []
    for name in {**now, **before}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            inner = changed_settings(cast("dict[str, Any]", old), cast("dict[str, Any]", new))
            changed += [f"{name}.{key}" for key in inner]
        elif old != new:
            changed.append(f"{name} ({old} → {new})")
    return changed


def remove_checkpoints(folder: Path) -> None:
    """Remove every checkpoint in `folder`. Results made from them reach the disk first: if the
    power fails at any moment, one or the other exists."""
    folders = _folders(folder)
    if folders:
        os.sync()
    for old in folders:
        shutil.rmtree(old)


def forget_work(work: Path) -> None:
    """Remove the whole folder of a finished training's checkpoints, in the same order. A kill may
    prevent this: a command that finds the training finished repeats it."""
    if work.exists():
        os.sync()
        shutil.rmtree(work, ignore_errors=True)


def _folders(folder: Path) -> list[Path]:
    """Checkpoint folders, oldest first. One that was set aside is older than the one that took its
    name, and a kill may have left half of it."""
    folders = folder.glob(f"{_PREFIX}*")
    return sorted(folders, key=lambda path: (path.name.removesuffix(_ASIDE), path.suffix != _ASIDE))


def _corruption_error(where: Path, why: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(
        f"the checkpoint {where} is damaged: {why}; remove that folder or pass --restart to start "
        "again"
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
