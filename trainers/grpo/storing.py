"""Policies on disk: a checkpoint to resume from, and folders that the engines can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from loopline.trainers.core.checkpoints import (
    CheckpointState,
    load_checkpoint,
    require_room_for_two,
    save_checkpoint,
)
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.trainers.errors import NotEnoughDisk
from loopline.trainers.grpo.policies import Policies
from loopline.workers.atomic_files import atomic_folder
from loopline.workers.engines.local.adapter_base import FACTS

if TYPE_CHECKING:
    import torch

_RANDOM_STATE = "random_state"

StateT = TypeVar("StateT", bound=CheckpointState)


def require_room(work: Path, policies: Policies, versions: int = 0) -> None:
    """Raise `NotEnoughDisk` unless `work` has room for two checkpoints and `versions` versions of
    all policies in the engines' format."""
    weights = 4 * sum(map(policies.trained_parameters, policies.names))
    # A checkpoint also contains two moments of the same size.
    require_room_for_two(work, 3 * weights, versions * weights)


def restore(work: Path, kind: type[StateT], policies: Policies) -> StateT | None:
    """Restore the latest checkpoint's weights, moments and random state; returns its state, or None
    if there is none. Raises `CorruptCheckpoint`."""
    import torch

    checkpoint = load_checkpoint(work, kind)
    if checkpoint is None:
        return None
    tensors = dict(checkpoint.tensors)
    torch.set_rng_state(tensors.pop(_RANDOM_STATE))
    of_cuda = tensors.pop(f"{_RANDOM_STATE}.cuda", None)
    # The training may resume on another device than the one it was started on.
    if of_cuda is not None and policies.network.device.type == "cuda":
        torch.cuda.set_rng_state(of_cuda)
    policies.restore(tensors)
    return checkpoint.state


def save(work: Path, state: CheckpointState, policies: Policies) -> None:
    """Write a checkpoint. The first process writes; if weights are sharded over several, all must
    call this. Raises `NotEnoughDisk`."""
    import torch

    tensors: dict[str, torch.Tensor] = policies.tensors()
    if not policies.network.processes.is_first:
        return
    tensors[_RANDOM_STATE] = torch.get_rng_state()
    if policies.network.device.type == "cuda":
        tensors[f"{_RANDOM_STATE}.cuda"] = torch.cuda.get_rng_state()
    try:
        save_checkpoint(work, state, tensors)
    except NotEnoughDisk as error:
        raise NotEnoughDisk(
            f"the checkpoint of step {state.step} was not written, the previous one is unchanged: "
            f"{error}"
        ) from error


def write_policies(policies: Policies, final: Path, facts_of: Callable[[str], BaseModel]) -> None:
    """Write all policies in the engines' format, each to `final/<name>` with its facts; the folder
    appears complete or not at all. The first process writes; if weights are sharded over several,
    all must call this. Raises `NotEnoughDisk`."""
    if not policies.network.processes.is_first:
        for name in policies.names:
            policies.activate(name)
            policies.network.write(final, policies.network.loaded.weights.folder)
        return
    with guard_disk_writes(final), atomic_folder(final, replace=True) as partial:
        for name in policies.names:
            policies.activate(name)
            folder = partial / folder_name(name)
            folder.mkdir(parents=True)
            policies.network.write(folder, policies.network.loaded.weights.folder)
            (folder / FACTS).write_text(facts_of(name).model_dump_json(indent=1) + "\n")


def folder_name(policy: str) -> str:
    """Name of a policy's folder."""
    return policy.replace("/", "_")
