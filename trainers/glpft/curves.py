"""Curves for TensorBoard. After a resume, what was drawn beyond the checkpoint is withdrawn."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainers.errors import TrainingError


class Curves:
    """Writes the scalars of one stage below `folder`."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise TrainingError(
                "the curves need the package tensorboard; install it with: "
                "pip install 'switchyard[train]'"
            ) from error
        if step == 0:
            shutil.rmtree(folder, ignore_errors=True)
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def add(self, step: int, values: dict[str, float]) -> None:
        """Values by the name of their curve."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
