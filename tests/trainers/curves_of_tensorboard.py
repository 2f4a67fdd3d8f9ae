"""A training's curves as TensorBoard shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def of_tensorboard(folder: Path, name: str = "loss") -> list[tuple[int, float]]:
    module: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]
