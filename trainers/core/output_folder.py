"""The output folder of a training: one command at a time works in it, a full disk is said so that
the user knows what to do, and `--dry-run` reports what a training would find there."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loopline.trainers.errors import NotEnoughDisk, TrainingError

LOCK = ".lock"


def make_folder(output: Path) -> None:
    """Make a folder. Raises `TrainingError` where there can't be one."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"{output} can't be made a folder ({error.strerror}): name another one"
        ) from error


@contextmanager
def lock_output(output: Path) -> Generator[None]:
    """Make the folder, and keep other commands off it for the time of the block; the kernel gives
    it back if this process is killed. Raises `TrainingError`."""
    from loopline.workers.file_lock import FileLock

    make_folder(output)
    lock = FileLock(output / LOCK)
    try:
        lock.acquire()
    except BlockingIOError:
        raise TrainingError(
            f"{output}: another command is at work on this folder; wait for it, or stop it"
        ) from None
    try:
        yield
    finally:
        # A folder that was refused is left as it was.
        lock.release(remove=True)


def state_of_folder(
    output: Path, begun: str, checkpoints: str | None, finished: str, *, restart: bool
) -> str:
    """Describe what a training would do in `output`. The other arguments name what it looks for
    there: a pattern of files that begun trainings leave, the folder of checkpoints and the file
    that a finished training leaves."""
    if output.exists() and not output.is_dir():
        return f"{output} is not a folder: this would be refused"
    if not any(output.glob(begun)):
        others = output.exists() and any(output.iterdir())
        return f"writes to {output}, " + (
            "which holds something else" if others else "a new folder"
        )
    if restart:
        return f"discards the progress in {output} and starts over"
    if (output / finished).exists():
        return f"{output} is finished: nothing would be done again"
    checkpoint_folders = sorted((output / checkpoints).glob("checkpoint-*")) if checkpoints else []
    at = f" from {checkpoint_folders[-1].name}" if checkpoint_folders else ""
    return f"goes on in {output}{at}"


@contextmanager
def guard_disk_writes(path: Path) -> Generator[None]:
    """The block writes `path`. Raises `NotEnoughDisk` where that is refused, by a disk that is
    full or is not to be written on."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NotEnoughDisk(
            f"{path} can't be written ({why}): free some space, then go on with the same command"
        ) from error
