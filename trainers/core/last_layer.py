"""Computes the last layer only at the positions that are read: the log-probability of a token
depends only on the position before it, and a prompt's own tokens are not learned.

Attention still reads keys and values of all positions. A position's other results in the last layer
(its query, its attention, the output projection, the feed-forward part, the last norm) are read
only by the output layer at that position. They are left out at positions from which no token is
learned: log-probabilities and gradients stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures whose layers `_layer_at` can compute. Other architectures compute every
position."""
MOST_READ = 0.75
"""Share of positions read above which gathering them costs as much as it saves."""


def hidden_at(model: Any, read: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Inputs of the output layer [n, width] at the n positions where `read` [rows, length] is true,
    row after row. `inputs` are those of the model's `forward`."""
    inner = getattr(model, model.base_model_prefix)
    places = read.flatten().nonzero().squeeze(1)
    if not _can_leave_out(model, len(places) / read.numel()):
        hidden = inner(**inputs, use_cache=False).last_hidden_state
        return hidden.flatten(0, 1).index_select(0, places)
    last = inner.layers[-1]
    last.forward = partial(_layer_at, last, _queries_of(read, places))
    try:
        return inner(**inputs, use_cache=False).last_hidden_state[0]
    finally:
        del last.forward


def _can_leave_out(model: Any, share: float) -> bool:
    config = model.config
    return (
        config.model_type in MODEL_TYPES
        and config._attn_implementation == "sdpa"
        and 0 < share <= MOST_READ
        and not (model.training and config.attention_dropout)
        # A checkpointed layer is computed again in the backward pass, after `hidden_at`.
        and not _is_checkpointed(model)
    )


def _is_checkpointed(model: Any) -> bool:
    # The property's name differs between versions of Transformers.
    checkpointed: bool | None = getattr(model, "is_activation_checkpointing", None)
    return model.is_gradient_checkpointing if checkpointed is None else checkpointed


@dataclass(frozen=True)
class _Queries:
    """The n positions that are read, and a table with `most` slots per row, enough for the row with
    the most positions."""

    places: torch.Tensor
    """[n]: index in [rows · length]."""
    slots: torch.Tensor
    """[n]: index in [rows · most]."""
    positions: torch.Tensor
    """[rows, most]: position within the row; 0 for an unused slot."""


def _queries_of(read: torch.Tensor, places: torch.Tensor) -> _Queries:
    rows, length = read.shape
    number = read.cumsum(1) - 1
    most = int(number[:, -1].max()) + 1
    slots = places // length * most + number.flatten().index_select(0, places)
    positions = places.new_zeros(rows * most).index_copy(0, slots, places % length)
    return _Queries(places, slots, positions.view(rows, most))


def _layer_at(
    layer: Any,
    queries: _Queries,
    hidden_states: torch.Tensor,
    *,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    attention_mask: torch.Tensor | None = None,
    **_unread: Any,
) -> torch.Tensor:
    """The layer's output [1, n, width] at `queries`, for its input [rows, length, width].

    `position_embeddings` are cosine and sine [1 or rows, length, width of a head] of rotary
    position embeddings (Su et al., 2021); `attention_mask` [1 or rows, 1, length, length] is None
    if every position attends to all earlier ones.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    attention, places = layer.self_attn, queries.places
    rows, length, _ = hidden_states.shape
    normed = layer.input_layernorm(hidden_states)
    cosine, sine = (
        table.expand(rows, -1, -1).unsqueeze(2) for table in position_embeddings
    )  # [rows, length, 1, width of a head], as heads are split below

    def split(projected: torch.Tensor) -> torch.Tensor:
        return projected.unflatten(-1, (-1, attention.head_dim))

    def normed_heads(projected: torch.Tensor, norm: str) -> torch.Tensor:
        """Heads, normed where the architecture does so (Qwen3)."""
        heads = split(projected)
        return getattr(attention, norm)(heads) if hasattr(attention, norm) else heads

    keys = _rotated(normed_heads(attention.k_proj(normed), "k_norm"), cosine, sine)
    values = split(attention.v_proj(normed))
    rotated = _rotated(
        normed_heads(attention.q_proj(_at(normed, places)), "q_norm"),
        _at(cosine, places),
        _at(sine, places),
    )  # [n, heads, width of a head]
    table = rotated.new_zeros(queries.positions.numel(), *rotated.shape[1:])
    table = table.index_copy(0, queries.slots, rotated).unflatten(0, queries.positions.shape)
    answers, _ = sdpa_attention_forward(
        attention, table.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2),
        _mask(queries.positions, attention_mask, length), scaling=attention.scaling,
    )  # fmt: skip
    attended = attention.o_proj(_at(answers, queries.slots).flatten(1))
    hidden = (_at(hidden_states, places) + attended).unsqueeze(0)
    # A sum, not a view: FSDP puts its backward hook on the layer's output.
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))


def _mask(positions: torch.Tensor, mask: torch.Tensor | None, length: int) -> torch.Tensor:
    """The mask of the positions [rows, most]: [rows, 1, most, length]."""
    import torch

    if mask is None:
        keys = torch.arange(length, device=positions.device)
        return (keys <= positions.unsqueeze(-1)).unsqueeze(1)
    rows = torch.arange(len(positions), device=positions.device).unsqueeze(1)
    return mask.expand(len(positions), -1, -1, -1)[:, 0][rows, positions].unsqueeze(1)


def _at(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Values [n, …] at places in [rows · length], from [rows, length, …]."""
    return values.flatten(0, 1).index_select(0, places)


def _rotated(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    import torch

    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-second, first), dim=-1) * sine
