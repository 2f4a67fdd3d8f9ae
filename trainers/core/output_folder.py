"""The output folder of a training: only one command at a time works in it, a full disk causes an
error that tells the user what to do, and `--dry-run` reports what a training would find there."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loopline.trainers.errors import NotEnoughDisk, TrainingError

LOCK = ".lock"


def make_folder(output: Path) -> None:
    """Make a folder. Raises `TrainingError` if that is not possible."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"the folder {output} can't be created ({error.strerror}): choose another one"
        ) from error


@contextmanager
def lock_output(output: Path) -> Generator[None]:
    """Make the folder, and lock it against other commands while the block runs; the kernel releases
    the lock if this process is killed. Raises `TrainingError`."""
    from loopline.workers.file_lock import FileLock

    make_folder(output)
    lock = FileLock(output / LOCK)
    try:
        lock.acquire()
    except BlockingIOError:
        raise TrainingError(
            f"another command is using the folder {output}; wait for it to finish, or stop it"
        ) from None
    try:
        yield
    finally:
        # A folder that was refused stays unchanged.
        lock.release(remove=True)


def state_of_folder(
    output: Path, start_pattern: str, checkpoints: str | None, finish_file: str, *, restart: bool
) -> str:
    """Describe what a training would do in `output`. The other arguments describe traces of earlier
    trainings: a pattern of files that started trainings leave, the folder of checkpoints, and the
    file that a finished training leaves."""
    if output.exists() and not output.is_dir():
        return f"{output} is not a folder: the command would refuse it"
    if not any(output.glob(start_pattern)):
        others = output.exists() and any(output.iterdir())
        return f"writes to {output}, " + (
            "which contains other files" if others else "a new folder"
        )
    if restart:
        return f"discards the progress in {output} and starts over"
    if (output / finish_file).exists():
        return f"{output} is finished: nothing would be repeated"
    checkpoint_folders = sorted((output / checkpoints).glob("checkpoint-*")) if checkpoints else []
    at = f" from {checkpoint_folders[-1].name}" if checkpoint_folders else ""
    return f"resumes in {output}{at}"


@contextmanager
def guard_disk_writes(path: Path) -> Generator[None]:
    """The block writes `path`. Raises `NotEnoughDisk` if the disk is full or read-only."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NotEnoughDisk(
            f"{path} can't be written ({why}): free some space, then resume with the same command"
        ) from error
