"""The first skill that a model with random weights learns: copying from its prompt.

A call's arguments and an answer's facts are copied from the question and the observations. The
attention heads for that (Olsson et al. 2022, arXiv:2209.11895) form late, and even later on a
task's own rows, in which only a few tokens are names and digits. So a model starts with heads that
attend to the tokens just before, and with short rows that are only copies.
"""

from __future__ import annotations

import random
from typing import Any

from loopline.trainers.data.datasets import DataSet
from loopline.trainers.data.token_rows import TokenRow
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.rows import StageRows, token_row
from loopline.trainers.glpft.settings import GlpftSettings
from loopline.trainers.glpft.stages import Stage, is_validation
from loopline.workers.engines.torch.loading import LoadedModel

LOOKS_BACK = 3
"""Heads of the first layer that initially attend 1, 2 and 3 tokens back; one stays free."""
SHARPNESS = 5.0
"""Scale of these scores: nine tenths of the attention fall on the one token."""

TEXT = (24, 64)
"""Tokens of the text that is copied."""
COPIES = 4
COPY = (6, 16)
"""Tokens of one copy. The first two show where it starts, and are not learned."""
ROW_TOKENS = 85
"""Mean tokens of a row, roughly."""
VALIDATION_ROWS = 256


def set_lookback_biases(network: Any) -> None:
    """Set the first layer's attention biases of a Qwen2 with random weights.

    Rotary positions rotate query and key by angles m f and n f for each frequency f. For a constant
    query and key that differ by the angle d f, the score is the sum of cos((m - n - d) f), with its
    maximum where the key is d tokens before the query.
    """
    import torch

    attention = network.model.layers[0].self_attn
    size, heads = int(attention.head_dim), int(network.config.num_attention_heads)
    half = size // 2
    frequencies = network.model.rotary_emb.inv_freq
    with torch.no_grad():
        for head in range(min(LOOKS_BACK, heads - 1)):
            angles = (head + 1) * frequencies
            query = attention.q_proj.bias[head * size : (head + 1) * size]
            key = attention.k_proj.bias[head * size : (head + 1) * size]
            query[:half], query[half:] = SHARPNESS, 0.0
            key[:half], key[half:] = SHARPNESS * angles.cos(), SHARPNESS * angles.sin()


def copying_rows(
    data: DataSet, stage: Stage, model: LoadedModel, settings: GlpftSettings, budget: int
) -> StageRows:
    """Rows for `budget` tokens: a part of one of the data set's own rows, then pieces of that part
    again, of which all but the start is learned. Raises `TrainingError` if there are no rows."""
    examples = [example for name in stage.sets for example in data.sets[name]]
    rng = random.Random(f"{settings.seed}:copying")
    rng.shuffle(examples)
    kept_out = [e for e in examples if is_validation(e.instruction_id, settings.validation)]
    others = [e for e in examples if not is_validation(e.instruction_id, settings.validation)]
    if not others:
        raise TrainingError(
            f"stage {stage.name}: no rows are left to learn from; the sets "
            f"{', '.join(stage.sets)} are empty"
        )
    wanted = max(1, budget // ROW_TOKENS)
    return StageRows(
        training=tuple(
            _copying_row(token_row(other_example, model), rng) for other_example in others[:wanted]
        ),
        validation=tuple(
            _copying_row(token_row(other_example, model), rng)
            for other_example in kept_out[:VALIDATION_ROWS]
        ),
        too_long=0,
    )


def _copying_row(row: TokenRow, rng: random.Random) -> TokenRow:
    length = min(rng.randint(*TEXT), len(row.ids))
    start = rng.randint(0, len(row.ids) - length)
    text = row.ids[start : start + length]
    ids, learned = list(text), [False] * length
    for _ in range(COPIES):
        size = min(rng.randint(*COPY), length)
        at = rng.randint(0, length - size)
        ids += text[at : at + size]
        learned += [False, False, *[True] * (size - 2)][:size]
    return TokenRow(tuple(ids), tuple(learned))
