"""trl's GRPOTrainer on the same groups: its own training loop, which receives the samples instead
of generating them."""

from __future__ import annotations

import tempfile
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopline.bench.proofs.grpo_speed.workload import (
    CLIP,
    LEARNING_RATE,
    PIECE_TOKENS,
    WARM,
    StepClock,
    StepWork,
)

if TYPE_CHECKING:
    import torch


AT_ONCE = (PIECE_TOKENS // 4, PIECE_TOKENS // 2, PIECE_TOKENS, 2 * PIECE_TOKENS)
"""Tokens at once, including padding, among which trl's best is searched."""


def measure(work: StepWork, at_most: int = PIECE_TOKENS) -> float:
    """Return the seconds of a step, with whole groups of at most this many tokens at once."""
    import torch
    from transformers import PrinterCallback

    from loopline.trainers.core.memory import keep_freed_memory
    from loopline.trainers.core.network import load_base

    # Ours sets this option of the allocator; without it, the peer would run with another allocator.
    keep_freed_memory()
    # An installation may lack these extras, so type checkers don't know them.
    datasets: Any = import_module("datasets")
    trl: Any = import_module("trl")
    datasets.utils.disable_progress_bars()
    torch.set_num_threads(1)
    loaded = load_base(work.model)
    rows = work.groups * work.candidates
    longest = work.longest_prompt + work.longest_completion
    # Whole groups that fit, in a number that divides the step.
    fitting = max(1, at_most // (longest * work.candidates))
    at_once = max(size for size in range(1, fitting + 1) if work.groups % size == 0)
    samples = padded_samples(work)

    class HandedSamples(trl.GRPOTrainer):
        """The trainer without generation: it receives its samples."""

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, torch.Tensor]:
            return dict(samples)

    with tempfile.TemporaryDirectory(prefix="bench-grpo-speed-") as scratch:
        trainer = HandedSamples(
            model=loaded.model,
            processing_class=loaded.tokenizer,
            reward_funcs=_no_reward,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["a"] * work.groups}),
            args=trl.GRPOConfig(
                output_dir=scratch,
                max_steps=WARM + work.steps,
                num_generations=work.candidates,
                per_device_train_batch_size=at_once * work.candidates,
                gradient_accumulation_steps=rows // (at_once * work.candidates),
                max_completion_length=work.completion,
                beta=0.0,
                loss_type="dapo",
                epsilon=0.2,
                epsilon_high=0.28,
                temperature=1.0,
                learning_rate=LEARNING_RATE,
                lr_scheduler_type="constant",
                weight_decay=0.01,
                max_grad_norm=CLIP,
                optim="adamw_torch_fused",
                bf16=False,
                activation_checkpointing=False,
                gradient_checkpointing=None,
                use_cpu=True,
                dataloader_pin_memory=False,
                seed=work.seed,
                logging_strategy="no",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
        )
        trainer.remove_callback(PrinterCallback)
        clock = StepClock()
        trainer.train()
    return clock.seconds()


def padded_samples(work: StepWork) -> dict[str, torch.Tensor]:
    """Return the samples padded as in the trainer, to the longest of the step: prompts on the left,
    completions on the right. Shapes: (groups · candidates, longest)."""
    import torch

    from loopline.trainers.grpo.advantages import ADVANTAGES

    rows = work.groups * work.candidates
    width = work.longest_prompt
    prompts = torch.zeros(rows, width, dtype=torch.long)
    completions = torch.zeros(rows, work.longest_completion, dtype=torch.long)
    prompt_mask, completion_mask = torch.zeros_like(prompts), torch.zeros_like(completions)
    advantages: list[float] = []
    row = 0
    for group in work.batch:
        advantages += ADVANTAGES["standardised"](group.rewards)
        for completion in group.completions:
            prompts[row, width - len(group.prompt) :] = torch.tensor(group.prompt)
            prompt_mask[row, width - len(group.prompt) :] = 1
            completions[row, : len(completion)] = torch.tensor(completion)
            completion_mask[row, : len(completion)] = 1
            row += 1
    return {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": completions,
        "completion_mask": completion_mask,
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": completion_mask.sum(),
    }


def _no_reward(completions: list[str], **columns: object) -> list[float]:
    del columns
    return [0.0] * len(completions)
