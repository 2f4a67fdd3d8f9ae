"""trl's SFTTrainer on the same rows, in all forms that work on a CPU.

Without flash attention, which needs a GPU, `sdpa` is the only trainable attention: trl's
block-diagonal packing then computes a mask over the whole sequence.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from loopline.bench.proofs.training.workload import (
    CLIP,
    PIECE_TOKENS,
    WARM,
    Clock,
    Measured,
    Workload,
)


@dataclass(frozen=True)
class Form:
    """One way to form batches of rows."""

    about: str
    packing: str | None = None
    """Packing strategy; None pads."""


FORMS = {
    "trl": Form("SFTTrainer without packing, rows of similar lengths together"),
    "trl packed bfd": Form(
        "SFTTrainer, packing bfd: rows of one sequence do not see each other", packing="bfd"
    ),
    "trl packed wrapped": Form(
        "SFTTrainer, packing wrapped: rows are cut and see those before them", packing="wrapped"
    ),
}


def measure(workload: Workload, form: Form) -> Measured:
    """Train from the workload's model, for the same number of steps with about as many real tokens
    as ours."""
    import torch
    from transformers import PrinterCallback

    from loopline.trainers.core.memory import keep_freed_memory, peak_memory_mb
    from loopline.trainers.core.network import load_base
    from loopline.trainers.glpft.settings import PUBLISHED
    from loopline.trainers.glpft.stage_training import AUTOCAST_FROM

    # Ours sets this option of the allocator; without it, the peer would run with another allocator.
    keep_freed_memory()

    # An installation may lack these extras, so type checkers don't know them.
    datasets: Any = import_module("datasets")
    trl: Any = import_module("trl")
    datasets.utils.disable_progress_bars()
    torch.set_num_threads(workload.threads)
    rows, schedule = workload.rows(), PUBLISHED["planner"]
    loaded = load_base(str(workload.model))
    tokens_per_step = workload.batch * sum(len(row.ids) for row in rows) / len(rows)
    # The shortest sequence length that truncates no row.
    longest = max(len(row.ids) for row in rows)
    sequences = float(workload.batch) if form.packing is None else tokens_per_step / longest
    # `bfd` treats the sequences of a forward pass as one, with a mask of its squared length.
    at_once = 1 if form.packing == "bfd" else round(PIECE_TOKENS / tokens_per_step * sequences)
    at_once = max(1, min(at_once, round(sequences)))
    with tempfile.TemporaryDirectory(dir=workload.folder) as scratch:
        trainer = trl.SFTTrainer(
            model=loaded.model,
            processing_class=loaded.tokenizer,
            train_dataset=datasets.Dataset.from_list(
                [
                    {
                        "input_ids": list(row.ids),
                        "completion_mask": [int(is_learned) for is_learned in row.learned],
                    }
                    for row in rows
                ]
            ),
            args=trl.SFTConfig(
                output_dir=scratch,
                max_steps=WARM + workload.steps,
                per_device_train_batch_size=at_once,
                gradient_accumulation_steps=max(1, round(sequences / at_once)),
                max_length=longest,
                packing=form.packing is not None,
                packing_strategy=form.packing or "bfd",
                train_sampling_strategy="random" if form.packing else "group_by_length",
                completion_only_loss=True,
                bf16=loaded.model.num_parameters() >= AUTOCAST_FROM,
                learning_rate=schedule.learning_rate,
                lr_scheduler_type="cosine",
                adam_beta2=0.98,
                weight_decay=schedule.weight_decay,
                max_grad_norm=CLIP,
                optim="adamw_torch_fused",
                activation_checkpointing=False,
                gradient_checkpointing=None,
                use_cpu=True,
                dataloader_pin_memory=False,
                seed=workload.seed,
                logging_strategy="no",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
        )
        trainer.remove_callback(PrinterCallback)
        clock = Clock()
        clock.watch(trainer.model.base_model)
        trainer.train()
    return clock.measured(peak_memory_mb(loaded.device))
