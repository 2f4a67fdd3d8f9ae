"""Qwen3-1.7B in its published configuration, but with random weights, a small tokenizer, and a
chosen number of layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopline.agents.template_options import TemplateValue

PUBLISHED: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151_643,
    "eos_token_id": 151_645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2_048,
    "initializer_range": 0.02,
    "intermediate_size": 6_144,
    "max_position_embeddings": 40_960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1_000_000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151_936,
}
"""Content of `config.json` of Qwen/Qwen3-1.7B."""
TEMPLATE_OPTIONS: dict[str, TemplateValue] = {"enable_thinking": False}
_SWITCH = """\
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false -%}
{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- endif -%}
"""
"""Part of Qwen3's chat template: an answer without thinking starts after an empty thought."""
TOKENIZER = "micro:slm"


@dataclass(frozen=True)
class Written:
    """A model folder that was written."""

    parameters: int
    megabytes: float
    """Megabytes of its weights."""


def write_model(folder: Path, layers: int, vocabulary: int, seed: int) -> Written:
    """Write the model to a new folder, in bfloat16; drawn on the GPU if there is one."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config
    from transformers.utils import logging

    from loopline.trainers.core.tokenizer import load_tokenizer, save_tokenizer
    from loopline.workers.engines.local.model_files import local_folder

    logging.disable_progress_bar()
    changed = {
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        **{name: min(PUBLISHED[name], vocabulary - 1) for name in ("bos_token_id", "eos_token_id")},
    }
    config = Qwen3Config.from_dict({**PUBLISHED, **changed})
    torch.manual_seed(seed)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    save_tokenizer(
        load_tokenizer(local_folder(TOKENIZER)), folder, PUBLISHED["max_position_embeddings"]
    )
    template = folder / "chat_template.jinja"
    template.write_text(f"{template.read_text().rstrip()}\n{_SWITCH}")
    parameters = int(model.num_parameters())
    return Written(parameters, round(2 * parameters / 1e6, 1))
