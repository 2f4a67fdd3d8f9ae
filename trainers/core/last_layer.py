"""The last layer, computed only where it is read: the log-probability of a token hangs on the
position before it alone, and a prompt's own tokens are not learned.

Attention still reads keys and values of all positions. What a position makes of them in the last
layer (its query, the output projection, the feed-forward part) is read by nobody but the output
layer at that position, so it is left out where no token is learned: log-probabilities and
gradients stay the same.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures whose last layer has these parts, each of one tensor, and nothing across positions
but its attention. Of others everything is computed."""
MOST_READ = 0.75
"""Share of positions read above which gathering them costs what it saves."""


@contextmanager
def last_layer_at(model: Any, read: torch.Tensor) -> Generator[None]:
    """Leave out the last layer where `read` [rows, length] is false, within the block. Its output
    there is of no use."""
    # Checkpointed layers are computed again in the backward pass, after the block.
    whole = model.config.model_type not in MODEL_TYPES or _is_checkpointed(model)
    if whole or read.float().mean() > MOST_READ:
        yield
        return
    places = read.flatten().nonzero().squeeze(1)
    shape = read.shape

    def gather(module: object, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        del module
        (hidden,) = arguments
        return (hidden.flatten(0, 1).index_select(0, places),)

    def scatter(module: object, arguments: object, output: torch.Tensor) -> torch.Tensor:
        del module, arguments
        everywhere = output.new_zeros(shape.numel(), output.shape[-1])
        return everywhere.index_copy(0, places, output).unflatten(0, shape)

    last = getattr(model, model.base_model_prefix).layers[-1]
    with ExitStack() as hooks:
        for module in (last.self_attn.q_proj, last.self_attn.o_proj, last.mlp):
            hooks.callback(module.register_forward_pre_hook(gather).remove)
            hooks.callback(module.register_forward_hook(scatter).remove)
        yield


def _is_checkpointed(model: Any) -> bool:
    # Versions of Transformers differ in the property's name.
    checkpointed: bool | None = getattr(model, "is_activation_checkpointing", None)
    return model.is_gradient_checkpointing if checkpointed is None else checkpointed
