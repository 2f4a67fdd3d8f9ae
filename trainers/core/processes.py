"""Several processes that train one model together, one for each GPU, started by `accelerate launch`
or torchrun: every process puts its share of a step's rows through the model, and all make the same
step. Each process has all weights or, with accelerate's FSDP settings (version 2), the weights are
sharded over them.

A step equals that of a single process except for the order in which gradients are summed: the last
digits depend on the number of processes. Only the first process writes files.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopline.trainers.errors import TrainingError
from loopline.workers.installation import install_hint

if TYPE_CHECKING:
    import torch

SILENCE = timedelta(hours=1)
"""Time after which a process is given up although its connections are open, because its machine has
lost power. Reading a large store while the others wait takes less, and so does a checkpoint on a
slow disk."""


@dataclass(frozen=True)
class Processes:
    """This process and those that train with it."""

    accelerator: Any = None
    """Accelerator of the package accelerate; None for a process that trains alone."""
    sharded: bool = False
    """Whether the weights are sharded over the processes."""

    @property
    def count(self) -> int:
        return 1 if self.accelerator is None else int(self.accelerator.num_processes)

    @property
    def index(self) -> int:
        return 0 if self.accelerator is None else int(self.accelerator.process_index)

    @property
    def is_first(self) -> bool:
        return self.index == 0

    def wait(self) -> None:
        """Wait until every process has called this."""
        if self.accelerator is not None:
            self.accelerator.wait_for_everyone()

    @contextmanager
    def in_turn(self) -> Generator[None]:
        """Let the first process run the block before the others, which find its results."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def sum_of(self, value: float) -> float:
        """Sum over all processes; bit-identical in each."""
        if self.accelerator is None:
            return value
        import torch

        total = torch.tensor(value, dtype=torch.float64, device=self.accelerator.device)
        torch.distributed.all_reduce(total)
        return float(total)

    def largest_of(self, value: int) -> int:
        """Largest value over all processes."""
        if self.accelerator is None:
            return value
        import torch

        largest = torch.tensor(value, device=self.accelerator.device)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        return int(largest)

    def all_of(self, values: torch.Tensor) -> torch.Tensor:
        """The float32 values [n] of all processes, concatenated, in CPU memory; n may differ
        between processes."""
        if self.accelerator is None:
            return values
        import torch

        device = self.accelerator.device
        length = torch.tensor([len(values)], device=device)
        lengths = [torch.zeros_like(length) for _ in range(self.count)]
        torch.distributed.all_gather(lengths, length)
        longest = max(int(size) for size in lengths)
        padded = torch.zeros(longest, device=device)
        padded[: len(values)] = values
        buffers = [torch.zeros_like(padded) for _ in range(self.count)]
        torch.distributed.all_gather(buffers, padded)
        return torch.cat(
            [buffer[: int(count)].cpu() for buffer, count in zip(buffers, lengths, strict=True)]
        )

    def sum_gradients(self, trained: Iterable[torch.nn.Parameter]) -> None:
        """Sum gradients in place over all processes. Sharded gradients are summed during the
        backward pass."""
        if self.accelerator is None or self.sharded:
            return
        import torch

        waiting: list[Any] = [
            torch.distributed.all_reduce(item.grad, async_op=True)
            for item in trained
            if item.grad is not None
        ]
        for item in waiting:
            item.wait()

    def shard(self, model: Any) -> None:
        """Shard the weights of a transformers model over the processes, in place, as accelerate's
        settings specify. They are gathered while a layer is computed, in the model's own
        `forward`."""
        from accelerate.utils import fsdp2_prepare_model

        fsdp2_prepare_model(self.accelerator, model)


def unshared_folder_error(output: Path, processes: Processes) -> TrainingError:
    """The error for processes that see another folder than the first one."""
    number = f"process {processes.index + 1} of {processes.count}"
    who = "another process" if processes.is_first else number
    return TrainingError(
        f"{who} does not find the files of the first process in {output}: choose a folder that "
        "all machines share"
    )


@contextmanager
def join_processes() -> Generator[Processes]:
    """This process among those that a launcher has started with it. Raises `TrainingError` for
    settings that it can't train with, and in place of torch's error when another process is
    gone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes()
        return
    sharded = _is_sharded()
    try:
        from accelerate import Accelerator, InitProcessGroupKwargs
    except ImportError as error:
        raise TrainingError(
            f"training in several processes needs the package accelerate; {install_hint('train')}"
        ) from error
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=SILENCE)])
    if accelerator.num_processes != int(os.environ["WORLD_SIZE"]):
        raise TrainingError(
            f"a launcher started {os.environ['WORLD_SIZE']} processes, but accelerate found no "
            "GPUs for them; on CPUs set ACCELERATE_USE_CPU=true in the environment"
        )
    if sharded:
        _shard_on_any_device(accelerator)
    processes = Processes(accelerator, sharded)
    import torch

    try:
        yield processes
    except KeyboardInterrupt:
        accelerator.end_training()
        raise
    except RuntimeError as error:
        # Gloo's errors have no type of their own.
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise TrainingError(
            f"process {processes.index + 1} of {processes.count} lost another process, which has "
            f"exited ({str(error).splitlines()[0]}); the message of that process states why. "
            "Resume with the same command, without --restart"
        ) from error
    else:
        processes.wait()
        accelerator.end_training()


def _is_sharded() -> bool:
    """Whether accelerate's settings, which its launcher passes in the environment, enable
    sharding."""
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() != "true":
        return False
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise TrainingError(
            "accelerate is set to FSDP version 1, which splits weights into unnamed pieces: set "
            "fsdp_version: 2 in its configuration (or --fsdp_version 2)"
        )
    if os.environ.get("FSDP_ACTIVATION_CHECKPOINTING", "false").lower() == "true":
        raise TrainingError(
            "accelerate is set to fsdp_activation_checkpointing, which this training does not "
            "support: turn it off, and lower --micro-batch-tokens if memory is short"
        )
    return True


def _shard_on_any_device(accelerator: Any) -> None:
    """Set FSDP on a CPU as well: accelerate ignores its own setting there, though torch supports
    it."""
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    if accelerator.distributed_type != DistributedType.FSDP:
        accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A sharded tensor gathered in CPU memory; all processes must call this. Other tensors are
    returned unchanged."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def shard_tensors(
    tensors: Mapping[str, torch.Tensor], trained: Iterable[tuple[str, torch.nn.Parameter]]
) -> dict[str, torch.Tensor]:
    """Whole tensors by the names of a checkpoint, each sharded over the processes as its parameter
    is."""
    from torch.distributed.tensor import DTensor

    placed = dict(tensors)
    for name, parameter in trained:
        if isinstance(parameter, DTensor):
            for key in (
                f"model.{name}",
                *(k for k in tensors if k.startswith(f"optimizer.{name}.")),
            ):
                # The step count does not have the weights' shape.
                if tensors[key].shape == parameter.shape:
                    placed[key] = spread_like(tensors[key], parameter)
    return placed


def spread_like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Shard a whole tensor, which all processes have, like the parameter. If the parameter is
    whole, or the tensor is sharded already, return it unchanged."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor) or isinstance(tensor, DTensor):
        return tensor
    return distribute_tensor(
        tensor.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )
