"""`train glpft`'s own loop, run like the command."""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path

from loopline.bench.proofs.training.workload import (
    CLIP,
    PIECE_TOKENS,
    WARM,
    Clock,
    Measured,
    Workload,
)

ABOUT = "train glpft: rows of similar lengths together, padded"
_NEVER = 1_000_000_000


def measure(workload: Workload) -> Measured:
    """Train from the workload's model. Curves and progress are written as by the command; the only
    checkpoint is the last one, after the measured steps."""
    import torch

    from loopline.trainers.core.memory import keep_freed_memory, peak_memory_mb
    from loopline.trainers.core.network import load_base, network_of
    from loopline.trainers.glpft.batches import batches
    from loopline.trainers.glpft.rows import StageRows
    from loopline.trainers.glpft.settings import GlpftSettings
    from loopline.trainers.glpft.stage_training import StageTraining

    keep_freed_memory()

    torch.set_num_threads(workload.threads)
    rows = workload.rows()
    # With a base, so that the optimizer is AdamW, like trl's.
    settings = GlpftSettings(
        data_sha256="", base=str(workload.model), batch=workload.batch,
        micro_batch_tokens=PIECE_TOKENS, clip=CLIP, validation=0.0, threads=workload.threads,
        seed=workload.seed,
    )  # fmt: skip
    steps = WARM + workload.steps
    trained = list(
        islice(batches(rows, workload.batch, PIECE_TOKENS, settings.seed, start=0), steps)
    )
    network = network_of(
        load_base(str(workload.model)),
        adapter=False,
        rank=1,
        begins_from=None,
        base=workload.model.name,
    )
    clock = Clock()
    clock.watch(network.whole.base_model)
    with tempfile.TemporaryDirectory(dir=workload.folder) as scratch:
        StageTraining(
            settings=settings,
            stage="planner",
            schedule=settings.schedule("planner"),
            network=network,
            rows=StageRows(tuple(rows), (), 0),
            budget=sum(batch.tokens for batch in trained),
            work=Path(scratch) / "work",
            curves=Path(scratch) / "curves",
        ).run(
            checkpoint_every=_NEVER,
            on_progress=lambda progress: None,
            on_checkpoint=lambda stage, step: None,
        )
    return clock.measured(
        peak_memory_mb(network.device), sum(batch.padding for batch in trained[WARM:])
    )
