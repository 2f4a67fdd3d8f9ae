"""The weights that `bench engine` measures on, as safetensors and as GGUF."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopline.bench.errors import UsageError
from loopline.trainers.export.precision import Precision

RANDOM: dict[str, dict[str, Any]] = {
    "random-100m": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 10,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
    },
    "random-micro": {
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
    },
}
"""Shapes of Qwen2 models with random weights. The large one is so large that arithmetic dominates
the time between two steps; the small one is `micro:llm`'s."""

LIKE = "micro:llm"
"""Model whose tokenizer and chat template the model with random weights uses."""


@dataclass(frozen=True)
class Weights:
    """A model in both formats."""

    name: str
    folder: Path
    gguf: Path | None


def require(model: str, precision: str) -> None:
    """Check the choice. Raises `UsageError` for a model that `prepare` cannot use, before anything
    heavy is imported."""
    from loopline.workers.engines.local.model_files import local_folder
    from loopline.workers.engines.protocol import EngineError

    if precision not in set(Precision):
        raise UsageError(f"--precision is one of {', '.join(Precision)}; got {precision!r}")
    if model in RANDOM:
        return
    try:
        folder = local_folder(model)
    except EngineError as error:
        raise UsageError(f"--model {model}: {error}") from error
    if not (folder / "config.json").is_file():
        raise UsageError(f"--model {model}: there is no folder with a config.json")


def prepare(model: str, precision: str, scratch: Path, *, with_gguf: bool) -> Weights:
    """Create missing files in `scratch`."""
    from loopline.workers.engines.local.model_files import local_folder

    folder = _random(scratch / model, RANDOM[model]) if model in RANDOM else local_folder(model)
    gguf = scratch / f"{precision}.gguf"
    if with_gguf:
        from loopline.trainers.export.gguf import export_gguf

        export_gguf(folder, gguf, Precision(precision))
    return Weights(model, folder, gguf if with_gguf else None)


def _random(folder: Path, shape: dict[str, Any]) -> Path:
    """Write a Qwen2 of this shape, in float16, whose greedy texts always reach their token
    limit."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from loopline.workers.engines.local.model_files import local_folder

    torch.manual_seed(0)
    config = Qwen2Config(
        **shape,
        vocab_size=2048,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        eos_token_id=2,
        bos_token_id=None,
        pad_token_id=0,
    )
    model: Any = Qwen2ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[:3] = 0.0  # control tokens never win, so nothing ends early
    model.to(torch.float16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(local_folder(LIKE) / name, folder)
    return folder
