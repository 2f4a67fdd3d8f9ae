"""LoRA adapters for the tiny model: random ones, each strong enough to change every answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Qwen2Config

RANK = 4
ALPHA = 8.0


def make_tiny_lora(model: Path, folder: Path, seed: int) -> Path:
    """Write an adapter in PEFT's format; return the folder."""
    folder.mkdir(parents=True)
    config: Any = Qwen2Config.from_pretrained(model)
    heads = config.hidden_size // config.num_attention_heads
    shapes = {
        "self_attn.q_proj": (config.hidden_size, config.hidden_size),
        "self_attn.v_proj": (config.hidden_size, heads * config.num_key_value_heads),
        "mlp.down_proj": (config.intermediate_size, config.hidden_size),
    }
    rng = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(config.num_hidden_layers):
        for name, (width, height) in shapes.items():
            path = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{path}.lora_A.weight"] = torch.randn(RANK, width, generator=rng) * 0.2
            tensors[f"{path}.lora_B.weight"] = torch.randn(height, RANK, generator=rng) * 0.2
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "r": RANK,
                "lora_alpha": ALPHA,
                "bias": "none",
                "target_modules": sorted(name.rpartition(".")[2] for name in shapes),
            }
        )
    )
    return folder
