"""Curves for TensorBoard. After a resume, what was drawn beyond the checkpoint is withdrawn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Self

from loopline.trainers.errors import TrainingError
from loopline.workers.installation import install_hint


class Curves:
    """Writes the scalars of one training below `folder`; nothing if that is None."""

    def __init__(self, folder: Path | None, step: int) -> None:
        self._writer: Any = None
        if folder is None:
            return
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise TrainingError(
                f"the curves need the package tensorboard; {install_hint('train')}"
            ) from error
        if step == 0:
            shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, step: int, values: dict[str, float]) -> None:
        """Values by the name of their curve."""
        if self._writer is None:
            return
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
