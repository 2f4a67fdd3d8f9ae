"""Qwen2-architecture models: new ones from a recipe, and model folders written and read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from loopline.trainers.core.tokenizer import (
    END,
    END_OF_TEXT,
    load_tokenizer,
    save_tokenizer,
    token_id,
)
from loopline.trainers.errors import UnreadableModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Model:
    """A loaded model with its tokenizer, ready to be evaluated in fp32."""

    network: Any
    tokenizer: Tokenizer
    end: int
    """Id of the token that ends a turn."""
    padding: int
    context: int


class Shape(Protocol):
    """The sizes of a new model."""

    @property
    def hidden(self) -> int: ...
    @property
    def feed_forward(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def context(self) -> int: ...


def new_model(recipe: Shape, vocabulary: int) -> Any:
    """A Qwen2ForCausalLM with fresh weights from torch's current random state."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        initializer_range=0.02,
    )
    return Qwen2ForCausalLM(config)


def export_model(model: Any, tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
    """Write a folder that transformers loads offline. Weights are rounded to fp16."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    end, padding = token_id(tokenizer, END), token_id(tokenizer, END_OF_TEXT)
    # The embedding is also the output layer: it is stored once.
    weights = {
        name: tensor.detach().to(torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(0o644)
    config = model.config.to_dict()
    config.update(
        architectures=["Qwen2ForCausalLM"], dtype="float16", eos_token_id=end,
        pad_token_id=padding, bos_token_id=None,
    )  # fmt: skip
    config.pop("_name_or_path", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    generation = {"do_sample": False, "eos_token_id": end, "pad_token_id": padding}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    save_tokenizer(tokenizer, folder, context)


def load_model(folder: Path) -> Model:
    """Read a model folder. Raises `UnreadableModel`, which reports what is missing."""
    for name in (WEIGHTS, "config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise UnreadableModel(
                f"{folder} is not a model folder: {name} is missing; train one with `train sft`"
            )
    import torch
    from safetensors import SafetensorError
    from transformers import Qwen2ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        network = Qwen2ForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UnreadableModel(f"{folder} cannot be loaded: {error}") from error
    network.eval()
    tokenizer = load_tokenizer(folder)
    return Model(
        network=network,
        tokenizer=tokenizer,
        end=token_id(tokenizer, END),
        padding=token_id(tokenizer, END_OF_TEXT),
        context=int(network.config.max_position_embeddings),
    )
