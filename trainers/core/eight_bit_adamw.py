"""AdamW with 8-bit moments: 2 bytes per trained weight instead of 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopline.trainers.errors import TrainingError
from loopline.workers.installation import install_hint

if TYPE_CHECKING:
    import torch

_MAPS = {"state1": ("qmap1", "dynamic"), "state2": ("qmap2", "udynamic")}
"""The moments, each with the table of its 256 values: the table's name in the state of a parameter,
and in the optimizer, whose parameters share it."""


def eight_bit_adamw(
    groups: Sequence[Mapping[str, Any]], lr: float, betas: tuple[float, float]
) -> torch.optim.Optimizer:
    """`AdamW8bit` of bitsandbytes (Dettmers et al. 2022, arXiv:2110.02861): AdamW whose moments are
    quantized in blocks of 256, each by its own largest value; for tensors with fewer than 4,096
    weights they stay in float32. Raises `TrainingError` if the package is missing.

    `pack_state` and `unpack_state` are for checkpoints: they convert the state of a parameter to
    tensors that share no memory, and back (`loopline.trainers.core.optimizers`).
    """
    try:
        kind: Any = import_module("bitsandbytes.optim").AdamW8bit
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "bitsandbytes":
            raise
        raise TrainingError(
            f"--optimizer adamw-8bit needs the package bitsandbytes; {install_hint('quantized')}"
        ) from error
    optimizer = kind([dict(group) for group in groups], lr=lr, betas=betas)
    optimizer.pack_state = _pack
    optimizer.unpack_state = partial(_unpack, optimizer)
    return optimizer


def _pack(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    import torch

    tables = {table for table, _ in _MAPS.values()}
    return {
        key: value if isinstance(value, torch.Tensor) else torch.tensor(value)
        for key, value in state.items()
        if key not in tables
    }


def _unpack(optimizer: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Restore a parameter's state. Without tensors it stays empty, so that the optimizer creates
    one."""
    import torch

    state: dict[str, Any] = dict(tensors)
    if "step" in state:
        state["step"] = int(state["step"])
    for moment, (table, name) in _MAPS.items():
        if moment in state and state[moment].dtype == torch.uint8:
            state[table] = optimizer.name2qmap[name].to(state[moment].device)
    return state
