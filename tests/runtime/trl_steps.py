"""One step of a TRL trainer on exported rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest


def train_a_step(kind: str, rows: Path, scratch: Path, **settings: object) -> None:
    """Use TRL's `{kind}Trainer` on the micro-SLM. Skips the test if TRL is not installed."""
    trl: Any = pytest.importorskip("trl", reason="needs make test, which installs it")
    datasets: Any = pytest.importorskip("datasets", reason="needs make test, which installs it")
    from loopline.trainers.core.network import load_base
    from loopline.workers.engines.local.model_files import MICRO_MODELS

    loaded = load_base(str(MICRO_MODELS / "slm"))
    with warnings.catch_warnings(action="ignore"):
        trainer = getattr(trl, f"{kind}Trainer")(
            model=loaded.model,
            processing_class=loaded.tokenizer,
            train_dataset=datasets.load_dataset(
                "json", data_files=str(rows), cache_dir=str(scratch / "cache")
            )["train"],
            args=getattr(trl, f"{kind}Config")(
                output_dir=str(scratch / "output"),
                max_steps=1,
                bf16=False,
                use_cpu=True,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                **settings,
            ),
        )
        result = trainer.train()
    assert result.global_step == 1
    assert result.training_loss > 0
