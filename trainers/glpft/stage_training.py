"""The training loop of one stage. Every step is a pure function of the settings, the step's number
and the previous tensors, so that a run that was killed and resumed has the same weights and the
same curve, bit for bit, as one that was not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from loopline.trainers.core.checkpoints import (
    Checkpoint,
    CheckpointState,
    load_checkpoint,
    require_room_for_two,
    save_checkpoint,
)
from loopline.trainers.core.curves import DEFAULT_TRACKERS, Curves
from loopline.trainers.core.interruption import deferred_interrupt
from loopline.trainers.core.network import Network
from loopline.trainers.core.optimizers import muon_and_adamw, restore, tensors_of
from loopline.trainers.core.processes import Processes, shard_tensors
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.batches import Batch, batch_of, batches, share_of
from loopline.trainers.glpft.rows import StageRows
from loopline.trainers.glpft.settings import GlpftSettings, Schedule

if TYPE_CHECKING:
    import torch

REPORT_EVERY = 20
"""Steps per reported mean loss."""
VALIDATION_ROWS = 256
"""Most held-out rows on which the loss is measured."""
AUTOCAST_FROM = 500_000
"""Number of parameters from which bf16 is faster than fp32 on a CPU: at 0.1 M it is slower, at 0.9
M 1.3 times as fast, at 2.8 M twice."""
_RANDOM_STATE = "random_state"


class StageState(CheckpointState):
    """State in a checkpoint besides its tensors."""

    settings: GlpftSettings
    stage: str
    tokens: int = 0
    padding: int = 0
    learned: int = 0
    seconds: float = 0.0
    losses: tuple[float, ...] = ()
    """Mean loss of each reported interval."""
    stretch: tuple[float, ...] = ()
    """Losses of the steps since the last interval."""
    validation_before: float | None = None
    ended: bool = False
    """Whether another step would overshoot the budget by more than the present one falls short of
    it."""


@dataclass(frozen=True)
class StageProgress:
    """The progress that is shown while a stage is training."""

    stage: str
    step: int
    tokens: int
    budget: int
    loss: float
    """Mean over the last interval, in nats per learned token."""
    learning_rate: float
    tokens_per_second: float


@dataclass
class StageTraining:
    """One stage, started or resumed in `work`, its own folder for checkpoints."""

    by_one_process: ClassVar[str] = ""
    """The work that only one process can do, and how; empty: several processes may train
    together."""

    settings: GlpftSettings
    stage: str
    schedule: Schedule
    network: Network
    rows: StageRows
    budget: int
    """Tokens, padding included, near which it ends."""
    work: Path
    curves: Path
    trackers: tuple[str, ...] = DEFAULT_TRACKERS
    state: StageState = field(init=False)

    @property
    def processes(self) -> Processes:
        return self.network.processes

    def run(
        self,
        *,
        checkpoint_every: int,
        on_progress: Callable[[StageProgress], None],
        on_checkpoint: Callable[[str, int], None],
    ) -> float | None:
        """Train to the budget; returns the loss on the validation rows.

        After Ctrl-C in any process, all processes finish the step, save a checkpoint and raise
        KeyboardInterrupt. Raises `TrainingError`s; a step whose loss or gradient is not finite
        raises one before it changes weights.
        """
        if self.by_one_process and self.processes.count > 1:
            raise TrainingError(
                f"{self.by_one_process} in one process: start it without the launcher"
            )
        with self._prepared():
            return self._train(checkpoint_every, on_progress, on_checkpoint)

    @contextmanager
    def _prepared(self) -> Generator[None]:
        """Prepare the resources that a kind of stage needs while it runs. Entered before a
        checkpoint is loaded, while the model is still the stage's initial one. Raises
        `TrainingError`s."""
        yield

    def _train(
        self,
        checkpoint_every: int,
        on_progress: Callable[[StageProgress], None],
        on_checkpoint: Callable[[str, int], None],
    ) -> float | None:
        # Parameters and two moments.
        trained = sum(parameter.numel() for _, parameter in self.network.trained())
        require_room_for_two(self.work, 12 * trained)
        self.work.mkdir(parents=True, exist_ok=True)
        optimizers = self._optimizers()
        checkpoint = load_checkpoint(self.work, StageState)
        if checkpoint is None:
            self.state = StageState(
                step=0,
                settings=self.settings,
                stage=self.stage,
                validation_before=self.validation_loss(),
            )
        else:
            self._restore(checkpoint, optimizers)
        drawn = self.curves if self.processes.is_first else None
        with (
            Curves(drawn, self.state.step, self.trackers) as curves,
            deferred_interrupt() as interruption,
        ):
            if self.state.step == 0 and self.state.validation_before is not None:
                curves.add(0, {"validation loss": self.state.validation_before})
            seed = self.settings.seed
            for batch in batches(
                self.rows.training, self.schedule.batch or self.settings.batch,
                self.settings.micro_batch_tokens, seed, start=self.state.step,
            ):  # fmt: skip
                if self.state.ended:
                    break
                self._step(batch, optimizers, curves, on_progress)
                is_interrupted = self.processes.sum_of(interruption.requested) > 0
                if self.state.ended or is_interrupted or self.state.step % checkpoint_every == 0:
                    self._save(optimizers)
                    on_checkpoint(self.stage, self.state.step)
                if is_interrupted:
                    # The first process is still writing its checkpoint.
                    self.processes.wait()
                    raise KeyboardInterrupt
            after = self.validation_loss()
            if after is not None:
                curves.add(self.state.step, {"validation loss": after})
        return after

    def validation_loss(self) -> float | None:
        """Mean over the learned tokens of the validation rows; None if there are none."""
        import torch

        rows = sorted(self.rows.validation[:VALIDATION_ROWS], key=lambda row: len(row.ids))
        if not rows:
            return None
        self.network.whole.eval()
        batch = batch_of(rows, self.settings.micro_batch_tokens)
        with torch.no_grad():
            loss = math.fsum(float(targets) for targets, _ in self._losses(batch))
            return self.processes.sum_of(loss) / batch.learned

    def _step(
        self,
        batch: Batch,
        optimizers: Sequence[torch.optim.Optimizer],
        curves: Curves,
        on_progress: Callable[[StageProgress], None],
    ) -> None:
        import torch

        began = time.monotonic()
        # The middle of the step, so that both the first and the last step have an effect.
        remaining = self.budget - self.state.tokens
        progress = (self.state.tokens + min(batch.tokens, remaining) / 2) / self.budget
        factor = rate_factor(progress, self.schedule.warmup, self.schedule.lowest)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
        rate = self.schedule.learning_rate * factor
        self.network.whole.train()
        loss = 0.0
        # Sharded gradients are averaged over the processes.
        learned = batch.learned / self.processes.count if self.processes.sharded else batch.learned
        for targets, prompts in self._losses(batch, self.schedule.prompts):
            ((targets + prompts) / learned).backward()
            loss += float(targets.detach()) / batch.learned
        loss = self.processes.sum_of(loss)
        self._require_number("loss", loss, rate)
        parameters = [parameter for _, parameter in self.network.trained()]
        self.processes.sum_gradients(parameters)
        norm = float(
            self.network.gather_parameter(
                torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip)
            )
        )
        self._require_number("gradient's norm", norm, rate)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        before = self.state
        stretch, losses = (*before.stretch, loss), before.losses
        step, tokens = before.step + 1, before.tokens + batch.tokens
        seconds = before.seconds + time.monotonic() - began
        ended = tokens + batch.tokens / 2 >= self.budget
        if step % REPORT_EVERY == 0 or ended:
            mean = round(math.fsum(stretch) / len(stretch), 5)
            stretch, losses = (), (*losses, mean)
            speed = tokens / max(seconds, 1e-9)
            curves.add(
                step,
                {
                    "loss": mean,
                    "learning rate": rate,
                    "gradient norm": norm,
                    "tokens per second": speed,
                },
            )
            on_progress(StageProgress(self.stage, step, tokens, self.budget, mean, rate, speed))
        self.state = before.model_copy(
            update={
                "step": step,
                "tokens": tokens,
                "padding": before.padding + batch.padding,
                "learned": before.learned + batch.learned,
                "seconds": seconds,
                "stretch": stretch,
                "losses": losses,
                "ended": ended,
            }
        )

    def _require_number(self, what: str, value: float, rate: float) -> None:
        """Raise `TrainingError` for a value that is not finite, before weights are changed; the
        same in all processes."""
        if not math.isfinite(value):
            raise TrainingError(
                f"{self.stage}: the {what} is {value} at step {self.state.step + 1}, which was "
                f"not applied; the learning rate {rate:.1e} is too high: train again with a lower "
                "one"
            )

    def _losses(
        self, batch: Batch, prompts: float = 0.0
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Sums of negative log-likelihoods (nats) in this process's share of each micro-batch: of
        the learned tokens, and of the other tokens times `prompts`."""
        import torch
        from torch.nn import functional

        device = self.network.device
        for micro_batch in share_of(batch, self.processes.index, self.processes.count):
            ids = torch.tensor(micro_batch.ids, device=device)  # [rows, length]
            learned = torch.tensor(micro_batch.learned, device=device)[:, 1:]
            mask = learned
            if prompts:
                lengths = torch.tensor(micro_batch.lengths, device=device)
                mask = torch.arange(1, ids.shape[1], device=device) < lengths[:, None]
            # Padding is on the right, so that causal attention alone masks it.
            with torch.autocast(device.type, torch.bfloat16, enabled=self._autocast()):
                logits = self.network.learned_logits(ids, mask)
            lost = functional.cross_entropy(logits.float(), ids[:, 1:][mask], reduction="none")
            target = learned[mask]
            yield lost[target].sum(), prompts * lost[~target].sum()

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers. Each group of parameters has its full rate as `initial_lr`. Raises
        `TrainingError` if the optimizer can't be offloaded."""
        import torch

        from loopline.trainers.core.offloaded_adamw import OffloadedAdamW

        if self.settings.offload_optimizer:
            muon = self.schedule.matrix_learning_rate is not None
            if muon or self.processes.sharded:
                raise TrainingError(
                    "--offload-optimizer needs AdamW on whole weights: leave it out with "
                    + ("micro schedules, whose matrices learn by Muon" if muon else "FSDP")
                )
        schedule, trained = self.schedule, self.network.trained()
        if schedule.matrix_learning_rate is None:
            groups, rate = _weight_decay_groups(trained, schedule), schedule.learning_rate
            betas = (0.9, 0.98)
            optimizers: list[torch.optim.Optimizer] = [
                OffloadedAdamW(groups, lr=rate, betas=betas)
                if self.settings.offload_optimizer
                else torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)
            ]
        else:
            optimizers = muon_and_adamw(
                self.network.layer_matrices(),
                [parameter for _, parameter in trained],
                matrix_learning_rate=schedule.matrix_learning_rate,
                learning_rate=schedule.learning_rate,
                weight_decay=schedule.weight_decay,
            )
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["initial_lr"] = group["lr"]
        return optimizers

    def _autocast(self) -> bool:
        if self.network.device.type != "cpu":
            return True
        return self.network.whole.num_parameters() >= AUTOCAST_FROM

    def _save(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        import torch

        tensors = {
            name: self.network.gather_parameter(tensor)
            for name, tensor in tensors_of(self.network.trained(), optimizers).items()
        }
        if not self.processes.is_first:
            return
        tensors[_RANDOM_STATE] = torch.get_rng_state()
        if self.network.device.type == "cuda":
            tensors[f"{_RANDOM_STATE}.cuda"] = torch.cuda.get_rng_state()
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_checkpoint(self.work, self.state, contiguous)

    def _restore(
        self, checkpoint: Checkpoint[StageState], optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        import torch

        trained, tensors = self.network.trained(), checkpoint.tensors
        restore(
            trained,
            optimizers,
            shard_tensors(tensors, trained) if self.processes.sharded else tensors,
        )
        torch.set_rng_state(checkpoint.tensors[_RANDOM_STATE])
        of_cuda = checkpoint.tensors.get(f"{_RANDOM_STATE}.cuda")
        # The stage may resume on another device than the one it was started on.
        if of_cuda is not None and self.network.device.type == "cuda":
            torch.cuda.set_rng_state(of_cuda)
        self.state = checkpoint.state


def rate_factor(progress: float, warmup: float, lowest: float = 0.0) -> float:
    """Factor of the learning rate after a share `progress` of the stage: a linear rise, then half a
    cosine down to the lowest (Loshchilov & Hutter 2017, arXiv:1608.03983)."""
    if progress < warmup:
        return progress / warmup
    falling = 1 + math.cos(math.pi * min((progress - warmup) / max(1 - warmup, 1e-9), 1.0))
    return lowest + (1 - lowest) * 0.5 * falling


def _weight_decay_groups(
    trained: Sequence[tuple[str, torch.nn.Parameter]], schedule: Schedule
) -> list[dict[str, object]]:
    """Groups with weight decay for matrices, and without for biases and norms."""
    matrices = [parameter for _, parameter in trained if parameter.dim() >= 2]
    others = [parameter for _, parameter in trained if parameter.dim() < 2]
    groups: list[dict[str, object]] = [{"params": matrices, "weight_decay": schedule.weight_decay}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    return groups
