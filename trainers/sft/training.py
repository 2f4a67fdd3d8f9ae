"""Supervised training of a micro model from scratch: one plain loop on one thread.

Every step is a pure function of the recipe, the step's number and the previous tensors, so that a
run that was killed and resumed ends with the same weights, bit for bit, as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopline.trainers.core.batches import Batch, batches
from loopline.trainers.core.checkpoints import (
    Checkpoint,
    TrainingState,
    load_checkpoint,
    remove_checkpoints,
    require_room_for_two,
    require_same_recipe,
    save_checkpoint,
)
from loopline.trainers.core.curves import Curves, require_trackers
from loopline.trainers.core.interruption import Interruption, deferred_interrupt
from loopline.trainers.core.memory import keep_freed_memory
from loopline.trainers.core.models import export_model, new_model
from loopline.trainers.core.optimizers import muon_and_adamw, restore, tensors_of
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.trainers.core.tokenizer import build_tokenizer
from loopline.trainers.errors import TrainingError
from loopline.trainers.sft.card import TrainingFacts, read_facts, remove_facts, write_facts
from loopline.trainers.sft.dialogues import dialogues, render
from loopline.trainers.sft.recipes import RECIPES, Recipe

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

TOKENIZER_SEED = 7
TOKENIZER_DIALOGUES = 8_000
"""Enough dialogues for every word of the generator to occur."""
CURVES = "curves"
REPORT_EVERY = 20
"""Steps per reported mean loss."""


@dataclass(frozen=True)
class Progress:
    """The progress that is shown during training."""

    step: int
    loss: float
    """Mean over the last interval, in nats per learned token."""
    tokens_per_second: float


@dataclass
class _Training:
    recipe: Recipe
    model: Any
    optimizers: list[torch.optim.Optimizer]
    step: int = 0
    seconds: float = 0.0
    tokens: int = 0


def train(
    recipe: Recipe,
    output: Path,
    *,
    restart: bool = False,
    checkpoint_every: int = 200,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_checkpoint: Callable[[int], None] = lambda step: None,
    say: Callable[[str], None] = lambda text: None,
    trackers: tuple[str, ...] = (),
) -> TrainingFacts:
    """Train to the recipe's last step, resuming from the checkpoint in `output` if there is one,
    and write the model there (fp16 safetensors, configuration, tokenizer, template).

    `trackers` receive the curves of loss, learning rates and tokens
    (`loopline.trainers.core.curves`). A folder whose training is finished stays unchanged. After
    Ctrl-C the training finishes the step, saves a checkpoint and raises KeyboardInterrupt. Raises
    `TrainingError`s; a step whose loss or gradient is not finite raises one before it changes
    weights.
    """
    finished = None if restart else read_facts(output)
    if finished is not None:
        require_same_recipe(finished.recipe, recipe, output)
        remove_checkpoints(output)
        say(f"the model in {output} is finished; --restart trains it again")
        return finished
    require_trackers(trackers)
    say(f"learning the tokenizer from {TOKENIZER_DIALOGUES:,} dialogues…")
    keep_freed_memory()
    import torch

    torch.set_num_threads(1)
    # Parameters and two moments; the exported weights take less than the second checkpoint.
    require_room_for_two(output, 12 * _parameters_of(recipe))
    output.mkdir(parents=True, exist_ok=True)
    if restart:
        remove_checkpoints(output)
        remove_facts(output)
    tokenizer = learn_tokenizer(recipe)
    torch.manual_seed(recipe.seed)
    model = new_model(recipe, tokenizer.get_vocab_size())
    training = _Training(recipe, model, _optimizers(model, recipe))
    losses: list[float] = []
    checkpoint = load_checkpoint(output, TrainingState)
    if checkpoint is not None:
        require_same_recipe(checkpoint.state.recipe, recipe, output)
        losses = _restore(training, checkpoint)
    begins = f"resumes from step {training.step}" if training.step else "starts"
    say(f"training {begins}, {recipe.steps:,} steps in all")

    def save() -> None:
        _save(training, output, losses)
        on_checkpoint(training.step)

    drawn = output / CURVES / "sft" if trackers else None
    with (
        deferred_interrupt() as interruption,
        Curves(drawn, training.step, trackers) as curves,
    ):

        def show(progress: Progress) -> None:
            curves.add(
                progress.step,
                {
                    "loss": progress.loss,
                    "learning rate": recipe.learning_rate * schedule(recipe, progress.step - 1),
                    "tokens/s": progress.tokens_per_second,
                },
            )
            on_progress(progress)

        _loop(training, tokenizer, losses, checkpoint_every, show, save, interruption)
    facts = _facts(training, losses, output)
    # The last step's checkpoint still exists: on a full disk, nothing is lost.
    with guard_disk_writes(output):
        export_model(model, tokenizer, output, context=recipe.context)
        write_facts(output, facts)
    remove_checkpoints(output)
    return facts


def learn_tokenizer(recipe: Recipe) -> Tokenizer:
    """The tokenizer of a recipe: a function of only its mix and vocabulary."""
    selected_dialogues = islice(dialogues(recipe.mix, TOKENIZER_SEED), TOKENIZER_DIALOGUES)
    return build_tokenizer((render(dialogue) for dialogue in selected_dialogues), recipe.vocabulary)


def schedule(recipe: Recipe, step: int) -> float:
    """Factor of the learning rates: linear warm-up, then linear decay to zero at the end."""
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    return max(recipe.steps - step, 0) / max(recipe.steps - recipe.warmup, 1)


def dialogue_loss(model: Any, batch: Batch) -> torch.Tensor:
    """Mean negative log-likelihood (nats) of the learned tokens of a batch, each given all tokens
    before it."""
    import torch
    from torch.nn import functional

    ids = torch.tensor(batch.ids)  # [rows, length]
    learned = torch.tensor(batch.learned)[:, 1:]
    # Padding is on the right, so that causal attention alone masks it.
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        # Only learned positions get logits: [learned tokens, vocabulary]
        logits = model.lm_head(hidden[:, :-1][learned])
    return functional.cross_entropy(logits.float(), ids[:, 1:][learned])


def _loop(
    training: _Training,
    tokenizer: Tokenizer,
    losses: list[float],
    checkpoint_every: int,
    on_progress: Callable[[Progress], None],
    save: Callable[[], None],
    interruption: Interruption,
) -> None:
    recipe = training.recipe
    training.model.train()
    stretch: list[float] = []
    for step, batch in batches(recipe, tokenizer, start=training.step):
        if step >= recipe.steps:
            return
        began = time.monotonic()
        loss = _step(training, batch, schedule(recipe, step))
        training.seconds += time.monotonic() - began
        training.step, training.tokens = step + 1, training.tokens + batch.tokens
        stretch.append(loss)
        if training.step % REPORT_EVERY == 0 or training.step == recipe.steps:
            losses.append(round(math.fsum(stretch) / len(stretch), 5))
            stretch = []
            on_progress(
                Progress(training.step, losses[-1], training.tokens / max(training.seconds, 1e-9))
            )
        due = training.step % checkpoint_every == 0 or training.step == recipe.steps
        if due or interruption.requested:
            save()
        if interruption.requested:
            raise KeyboardInterrupt


def _step(training: _Training, batch: Batch, factor: float) -> float:
    import torch

    recipe = training.recipe
    rates = (recipe.matrix_learning_rate, recipe.learning_rate)
    for optimizer, rate in zip(training.optimizers, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
    loss = dialogue_loss(training.model, batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(training.model.parameters(), recipe.clip)
    loss_value = float(loss.detach())
    for what, value in (("loss", loss_value), ("gradient's norm", float(norm))):
        if not math.isfinite(value):
            raise TrainingError(
                f"the {what} is {value} at step {training.step + 1}, which was not applied. Lower "
                f"the learning rates of the recipe {recipe.name} (learning_rate {rates[1]:.1e}, "
                f"matrix_learning_rate {rates[0]:.1e}), or give another --seed or a larger "
                "--batch, and --restart"
            )
    for optimizer in training.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss_value


def _facts(training: _Training, losses: list[float], output: Path) -> TrainingFacts:
    import torch
    import transformers

    recipe = training.recipe
    original = RECIPES.get(recipe.name, recipe)
    command = f"train sft {recipe.name}"
    for option in ("steps", "seed", "batch"):
        if getattr(recipe, option) != getattr(original, option):
            command += f" --{option} {getattr(recipe, option)}"
    return TrainingFacts(
        recipe=recipe,
        command=f"{command} --output {output if not output.is_absolute() else output.name}",
        parameters=sum(p.numel() for p in training.model.parameters()),
        steps=training.step,
        tokens=training.tokens,
        seconds=round(training.seconds, 1),
        last_loss=losses[-1],
        torch=torch.__version__,
        transformers=transformers.__version__,
    )


def _optimizers(model: Any, recipe: Recipe) -> list[torch.optim.Optimizer]:
    return muon_and_adamw(
        [parameter for parameter in model.model.layers.parameters() if parameter.dim() == 2],
        model.parameters(),
        matrix_learning_rate=recipe.matrix_learning_rate,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
    )


def _state(training: _Training, losses: list[float]) -> TrainingState:
    return TrainingState(
        recipe=training.recipe,
        step=training.step,
        seconds=round(training.seconds, 3),
        tokens=training.tokens,
        losses=list(losses),
    )


def _save(training: _Training, output: Path, losses: list[float]) -> None:
    tensors = tensors_of(training.model.named_parameters(), training.optimizers)
    save_checkpoint(output, _state(training, losses), tensors)


def _restore(training: _Training, checkpoint: Checkpoint[TrainingState]) -> list[float]:
    restore(training.model.named_parameters(), training.optimizers, checkpoint.tensors)
    training.step = checkpoint.state.step
    training.seconds = checkpoint.state.seconds
    training.tokens = checkpoint.state.tokens
    return list(checkpoint.state.losses)


def _parameters_of(recipe: Recipe) -> int:
    """Approximate number of parameters of a model of the recipe."""
    layer = 4 * recipe.hidden**2 + 3 * recipe.hidden * recipe.feed_forward
    return recipe.vocabulary * recipe.hidden + recipe.layers * layer
