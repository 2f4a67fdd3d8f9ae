"""Reference of a trainer: a plain forward pass over the whole sequence, without a cache."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

RANK = 4
ALPHA = 8.0
ADAPTED = ("q_proj", "v_proj", "down_proj")


class Reference:
    """A transformers model in float32, in float64 to measure the rounding of float32, or in
    bfloat16 as served on a GPU."""

    def __init__(
        self,
        folder: Path,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        """Load a model; `device`: None is the CPU."""
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype
        ).eval()
        if device is not None:
            self.model = self.model.to(device)

    @torch.inference_mode()
    def logits(self, ids: Sequence[int], adapter: Path | None = None) -> torch.Tensor:
        """Return logits [tokens, vocabulary] after each token of the sequence."""
        with self._with_adapter(adapter):
            input_tensor = torch.tensor([ids], device=self.model.device)
            return self.model(input_ids=input_tensor, use_cache=False).logits[0]

    def logprobs(
        self, prompt: Sequence[int], output: Sequence[int], adapter: Path | None = None
    ) -> torch.Tensor:
        """Return natural log-probabilities [output] of the output tokens, at least in float32."""
        logits = self.logits([*prompt, *output], adapter)[len(prompt) - 1 : -1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        output_ids = torch.tensor(output, device=logits.device)
        return logits.log_softmax(-1).gather(-1, output_ids[:, None])[:, 0]

    @contextmanager
    def _with_adapter(self, folder: Path | None) -> Generator[None]:
        """Linear layer with an adapter: W x + (alpha / rank) B A x (Hu et al. 2021,
        arXiv:2106.09685)."""
        if folder is None:
            yield
            return
        tensors = load_file(folder / "adapter_model.safetensors")
        config = json.loads((folder / "adapter_config.json").read_text())
        scale = config["lora_alpha"] / config["r"]
        hooks: list[Any] = []
        for name, module in self.model.named_modules():
            a = tensors.get(f"base_model.model.{name}.lora_A.weight")
            b = tensors.get(f"base_model.model.{name}.lora_B.weight")
            if a is not None and b is not None:
                hooks.append(module.register_forward_hook(_lora_hook(a, b, scale)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _lora_hook(a: torch.Tensor, b: torch.Tensor, scale: float) -> Callable[..., torch.Tensor]:
    def add(_: object, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        return output + scale * (inputs[0] @ a.T.to(output) @ b.T.to(output))

    return add


def random_adapter(reference: Reference, folder: Path, seed: int) -> Path:
    """Write a LoRA with random weights in PEFT's format, strong enough to change most answers."""
    rng = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, module in reference.model.named_modules():
        if name.endswith(ADAPTED):
            height, width = module.weight.shape
            a = torch.randn(RANK, width, generator=rng) / math.sqrt(width)
            b = torch.randn(height, RANK, generator=rng) * 0.1
            tensors[f"base_model.model.{name}.lora_A.weight"] = a
            tensors[f"base_model.model.{name}.lora_B.weight"] = b
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "r": RANK,
                "lora_alpha": ALPHA,
                "bias": "none",
                "target_modules": list(ADAPTED),
            }
        )
    )
    return folder
