"""A recipe so small that a training run takes a second or two."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer

from loopline.trainers.sft.recipes import Recipe
from loopline.trainers.sft.training import learn_tokenizer

TINY = Recipe(
    name="tiny",
    title="Tiny",
    purpose="For tests.",
    vocabulary=1024,
    hidden=32,
    layers=1,
    heads=2,
    feed_forward=64,
    steps=24,
    batch=4,
    warmup=4,
    learning_rate=1e-2,
    mix={"sub_task": 0.5, "planner": 0.5},
)


@cache
def tiny_tokenizer() -> Tokenizer:
    """Its tokenizer, learned once."""
    return learn_tokenizer(TINY)
