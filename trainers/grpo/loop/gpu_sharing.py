"""Sharing one GPU between the servers of a deployment and the training that learns from it: in
turns, or each with a share of its memory, as the table of the pool's servers specifies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.bus import pool_of
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop.clock import Clock
from loopline.workers.engines.settings import SERVED, ModelSettings
from loopline.workers.gpu_turns import training_turn

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class GpuSharing:
    """How a training shares GPUs with the servers of the policies that it trains."""

    turns: tuple[str, ...] = ()
    """Names of GPUs whose servers sleep during a step."""
    rest: float | None = None
    """Share of the memory that servers leave to the training."""

    @classmethod
    def of(cls, policies: Iterable[str], models: Mapping[str, ModelSettings]) -> GpuSharing:
        """Read the sharing from the pools that answer for these policies."""
        pools = [models[pool] for pool in dict.fromkeys(map(pool_of, policies)) if pool in models]
        tables = [model.serving for model in pools if model.engine in SERVED]
        shares = [table.gpu_share for table in tables if table.gpu_share is not None]
        # Trainings that take several GPUs take them in the same order, which prevents deadlocks.
        turns = sorted({table.gpu_turns for table in tables if table.gpu_turns is not None})
        return cls(tuple(turns), 1.0 - sum(shares) if shares else None)

    def bound_memory(self, device: torch.device) -> None:
        """Limit this process to its share of a GPU. Raises `TrainingError` if the servers leave
        nothing."""
        if self.rest is None or device.type != "cuda":
            return
        if self.rest <= 0:
            raise TrainingError(
                "loop: the servers take the whole GPU: lower gpu_share of the pools, so that they "
                "add up to less than 1"
            )
        import torch

        torch.cuda.set_per_process_memory_fraction(self.rest, device)

    @contextmanager
    def turn(
        self, device: torch.device, clock: Clock, raise_if_stopped: Callable[[], None]
    ) -> Generator[None]:
        """Let the block use the GPUs exclusively; time spent waiting for them counts as waiting.
        Raises `TrainingError`."""
        if not self.turns:
            yield
            return
        with ExitStack() as stack:
            clock.turn("wait")
            try:
                for name in self.turns:
                    stack.enter_context(training_turn(name, raise_if_stopped))
            except OSError as error:
                raise TrainingError(f"loop: cannot get a turn on the GPU: {error}") from error
            clock.turn("train")
            try:
                yield
            finally:
                if device.type == "cuda":
                    import torch

                    # Memory that the step used is free for the servers again before they wake.
                    torch.cuda.empty_cache()
