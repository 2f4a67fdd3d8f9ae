"""What a training would find in its folder, as `--dry-run` reports it without touching anything."""

from __future__ import annotations

from pathlib import Path


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
