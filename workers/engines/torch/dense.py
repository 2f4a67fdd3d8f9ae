"""A forward pass for transformers' dense decoders that is fast for many short steps on a CPU.

transformers' own pass over a micro model spends most of its time between the kernels: decorators,
masks, a dozen small operations around each layer's projections. This pass calls the same modules
with the same weights, so adapters and other whole models (hooks on those modules) still apply, and
it needs fewer operations between them. It writes to a `KVCache`, and reads a beginning that several
rows share only once (see `shared_beginnings`).

Its results equal those of transformers except for the order of a few sums, that is, the last bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers.modeling_outputs import CausalLMOutputWithPast

from loopline.workers.engines.torch.kv_cache import KVCache
from loopline.workers.engines.torch.shared_beginnings import Shared

_KINDS = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
_FIXED_ROTATIONS = frozenset({"default", "linear", "llama3", "yarn"})
"""Kinds of rotary positions whose angles depend only on the position."""
_BLOCK = 256
"""Number of positions whose angles are computed at once."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Modules of one layer, looked up once."""

    input_norm: Any
    query: Any
    key: Any
    value: Any
    query_norm: Any
    """None if heads are not normalized."""
    key_norm: Any
    out: Any
    mlp_norm: Any
    gate: Any
    up: Any
    down: Any


def _layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        layer.input_layernorm,
        attention.q_proj,
        attention.k_proj,
        attention.v_proj,
        getattr(attention, "q_norm", None),
        getattr(attention, "k_norm", None),
        attention.o_proj,
        layer.post_attention_layernorm,
        mlp.gate_proj,
        mlp.up_proj,
        mlp.down_proj,
    )


class DenseForward:
    """Replaces one model's `forward` for passes over a `KVCache`. transformers' own forward still
    runs all other passes, and every pass while hooks watch the model's inner modules. Owned by one
    thread."""

    def __init__(self, model: Any) -> None:
        self._original = model.forward
        body = model.model
        self._embed, self._norm, self._rotary_emb = body.embed_tokens, body.norm, body.rotary_emb
        self._head = model.lm_head
        self._layers = [_layer(layer) for layer in body.layers]
        self._head_size = int(body.layers[0].self_attn.head_dim)
        self._scale = float(body.layers[0].self_attn.scaling)
        self._watched: list[Any] = [body]
        """Modules that it bypasses."""
        for layer in body.layers:
            self._watched += [layer, layer.self_attn, layer.mlp]
        self._angles: tuple[torch.Tensor, torch.Tensor] | None = None
        """Cosines and sines [positions, head size]; the first half of the sines is negative."""

    @property
    def is_usable(self) -> bool:
        """Whether it can make the next pass over a `KVCache`."""
        return not any(m._forward_pre_hooks or m._forward_hooks for m in self._watched)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Forward pass with the signature of the model's own, which handles the unsupported
        cases."""
        cache = named.get("past_key_values")
        if arguments or not isinstance(cache, KVCache) or not self.is_usable:
            return self._original(*arguments, **named)
        logits = self._logits(
            named["input_ids"],
            named["position_ids"],
            named["attention_mask"],
            cache,
            named["logits_to_keep"],
        )
        return CausalLMOutputWithPast(logits=logits)  # pyright: ignore[reportArgumentType]

    def _logits(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        cache: KVCache,
        keep: int,
    ) -> torch.Tensor:
        """ids, positions: [rows, tokens]; returns logits [rows, keep, vocabulary]."""
        hidden = self._embed(ids)  # [rows, tokens, width]
        rotation = self._rotation(positions, cache.visible, hidden)
        for index, layer in enumerate(self._layers):
            normed = _normed(layer.input_norm, hidden)
            hidden = hidden + self._attention(layer, index, normed, rotation, mask, cache)
            normed = _normed(layer.mlp_norm, hidden)
            gate = functional.silu(layer.gate(normed), inplace=True)
            hidden = hidden + layer.down(gate.mul_(layer.up(normed)))
        if cache.packed is not None:
            hidden = hidden[cache.packed.wanted]  # [wanted, 1, width]
        return self._head(_normed(self._norm, hidden[:, -keep:]))

    def _attention(
        self,
        layer: _Layer,
        index: int,
        states: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        cache: KVCache,
    ) -> torch.Tensor:
        """states: [rows, tokens, width]; same shape returned."""
        rows, tokens, _ = states.shape
        shape = (rows, tokens, -1, self._head_size)
        query, key = layer.query(states).view(shape), layer.key(states).view(shape)
        value = layer.value(states).view(shape)
        if layer.query_norm is not None:
            query, key = _normed(layer.query_norm, query), _normed(layer.key_norm, key)
        query = _rotated(query, rotation).transpose(1, 2)  # [rows, heads, tokens, head size]
        keys, values = cache.update(
            _rotated(key, rotation).transpose(1, 2), value.transpose(1, 2), index
        )  # [rows, heads of keys, seen, head size]
        if cache.packed is not None:
            mixed = _attend_packed(query, keys, values, mask, cache, self._scale)
        else:
            mixed = _attend_rows(query, keys, values, mask, cache.shared, self._scale)
        return layer.out(mixed.transpose(1, 2).reshape(rows, tokens, -1))

    def _rotation(
        self, positions: torch.Tensor, most: int, like: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [rows, tokens, 1, head size] of positions below `most`."""
        if self._angles is None or len(self._angles[0]) < most:
            every = torch.arange(-(-most // _BLOCK) * _BLOCK, device=like.device)
            cosines, sines = self._rotary_emb(like, every[None])
            half = sines.shape[-1] // 2
            signed = torch.cat((-sines[0, :, :half], sines[0, :, half:]), dim=-1)
            self._angles = cosines[0].contiguous(), signed
        cosines, sines = self._angles
        return cosines[positions][:, :, None], sines[positions][:, :, None]


def install(model: Any, device: torch.device) -> DenseForward | None:
    """Let `model` make its passes over a `KVCache` with a `DenseForward`. Returns None if the
    architecture is not supported, on a GPU (where memory, not Python, is the bottleneck), or in a
    type other than float32."""
    config = model.config
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    fits = (
        device.type == "cpu"
        and model.dtype == torch.float32
        and type(model).__name__ in _KINDS
        and type(model).__module__.startswith("transformers.models.")
        and getattr(config, "hidden_act", "") in ("silu", "swish")
        and getattr(config, "_attn_implementation", "") == "sdpa"
        and rope.get("rope_type", "") in _FIXED_ROTATIONS
        and "sliding_attention" not in (getattr(config, "layer_types", None) or ())
    )
    if not fits:
        return None
    dense = DenseForward(model)
    model.forward = dense.forward
    return dense


def _normed(module: Any, states: torch.Tensor) -> torch.Tensor:
    if module._forward_hooks or module._forward_pre_hooks:
        return module(states)
    return functional.rms_norm(states, states.shape[-1:], module.weight, module.variance_epsilon)


def _rotated(states: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary positions (Su et al. 2021, arXiv:2104.09864) in transformers' layout: halves, not
    pairs. states: [rows, tokens, heads, head size]; same shape returned."""
    cosines, sines = rotation
    half = states.shape[-1] // 2
    swapped = torch.cat((states[..., half:], states[..., :half]), dim=-1)
    return torch.addcmul(states * cosines, swapped, sines)


def _attend_packed(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    cache: KVCache,
    scale: float,
) -> torch.Tensor:
    """query: [tokens, heads, 1, head size]; same shape returned. keys, values: of all rows; mask:
    of the running rows."""
    packed = cache.packed
    assert packed is not None
    mixed = torch.empty_like(query)
    running, width = packed.running, packed.longest
    mixed[:running] = _attend_rows(
        query[:running],
        keys[:running, :, :width],
        values[:running, :, :width],
        mask,
        cache.shared,
        scale,
    )
    for piece in packed.pieces:
        row, end = slice(piece.place, piece.place + 1), piece.start + piece.count
        tokens = query[piece.begin : piece.end, :, 0].transpose(0, 1)[None]
        part = _attend(tokens, keys[row, :, :end], values[row, :, :end], piece.mask, scale)
        mixed[piece.begin : piece.end, :, 0] = part[0].transpose(0, 1)
    return mixed


def _attend_rows(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    shared: Shared | None,
    scale: float,
) -> torch.Tensor:
    if shared is None:
        return _attend(query, keys, values, mask, scale)
    return _attend_shared(query, keys, values, mask, shared, scale)


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """query: [rows, heads, tokens, head size]; same shape returned. mask: None if only these tokens
    are visible, or if there is only one token."""
    rows, heads, tokens, size = query.shape
    groups = heads // keys.shape[1]
    if tokens == 1:
        # Treat heads that share keys as tokens of one head.
        packed = query.reshape(rows, keys.shape[1], groups, size)
        mixed = functional.scaled_dot_product_attention(
            packed, keys, values, attn_mask=mask, scale=scale
        )
        return mixed.reshape(rows, heads, 1, size)
    if groups > 1:
        keys = keys.repeat_interleave(groups, dim=1)
        values = values.repeat_interleave(groups, dim=1)
    return functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale
    )


def _attend_shared(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    shared: Shared,
    scale: float,
) -> torch.Tensor:
    """`_attend` for one token per row, in two parts: over the beginnings of groups, each read once
    for all rows of its group, and over the rest of each row. The parts of a softmax are combined by
    the logarithms of their sums (Juravsky et al. 2024, arXiv:2402.05099). mask: of the columns from
    `shared.length` on."""
    rows, heads, _, size = query.shape
    groups = heads // keys.shape[1]
    packed = query.reshape(rows, keys.shape[1], groups, size)
    length = shared.length
    rest, rest_sums = _with_sums(packed, keys[:, :, length:], values[:, :, length:], mask, scale)
    mixed, sums = torch.empty_like(rest), torch.empty_like(rest_sums)
    for group in shared.groups:
        members = packed if group.places is None else packed[group.places]
        count = len(members)
        source = slice(group.source, group.source + 1)
        part, part_sums = _with_sums(
            members.transpose(0, 1).reshape(1, keys.shape[1], count * groups, size),
            keys[source, :, :length],
            values[source, :, :length],
            None,
            scale,
        )
        part = part.reshape(-1, count, groups, size).transpose(0, 1)
        part_sums = part_sums.reshape(-1, count, groups).transpose(0, 1)
        if group.places is None:
            mixed, sums = part, part_sums
        else:
            mixed[group.places], sums[group.places] = part, part_sums
    share = torch.sigmoid(sums - rest_sums)[..., None]  # of the shared part
    return torch.lerp(rest, mixed, share).reshape(rows, heads, 1, size)


def _with_sums(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention [rows, heads, tokens, head size] with the logarithm of the sum of each softmax
    [rows, heads, tokens]. Written out because PyTorch's documented function does not return the
    sums, and its kernel is not faster here, where memory is the bottleneck."""
    scores = torch.matmul(query * scale, keys.transpose(2, 3))  # [rows, heads, tokens, seen]
    if mask is not None:
        scores += mask
    highest = scores.amax(dim=-1, keepdim=True)
    weights = scores.sub_(highest).exp_()
    totals = weights.sum(dim=-1, keepdim=True)
    mixed = torch.matmul(weights, values).div_(totals)
    return mixed, (highest + totals.log()).squeeze(-1)
