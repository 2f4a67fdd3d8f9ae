"""Labelled answers of two made-up models, with as much signal as a test needs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

NAMES = ("Ada", "Ben", "Cleo", "Dan")


def labelled_rows(
    count: int,
    *,
    signal: bool,
    seed: int = 1,
    small: float = 0.6,
    big: float = 0.9,
    logprobs: bool = False,
) -> list[dict[str, Any]]:
    """With `signal` a wrong answer often miscalculates, leaves a number out or ends in a fraction;
    without it all texts are right answers, and the labels are drawn independently of them."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for at in range(count):
        first, second, price = (rng.randrange(3, 60) for _ in range(3))
        name = rng.choice(NAMES)
        question = (
            f"{name} has {first} apples and buys {second} more. Each sells for ${price}. How much "
            "does she earn?"
        )
        small_right, big_right = rng.random() < small, rng.random() < big
        total = first + second
        right = (
            f"{first} + {second} = <<{first}+{second}={total}>>{total} apples\n"
            f"{total} * {price} = <<{total}*{price}={total * price}>>{total * price}\n"
            f"#### {total * price}"
        )
        wrong = rng.choice(
            (
                f"{first} * {price} = <<{first}*{price}={first * price}>>{first * price}\n"
                f"#### {first * price}",
                f"{total} / {price} = {total / price:.2f}, maybe\n#### {total / price:.2f}",
                f"{first} + {second} = {total + 1}\n#### {total + 1}",
            )
        )
        text = wrong if signal and not small_right and rng.random() < 0.9 else right
        answer: dict[str, Any] = {"text": text, "right": small_right}
        if logprobs:
            doubt = 0.1 if small_right or not signal else 1.0
            answer["logprobs"] = [-doubt * rng.random() for _ in range(12)]
        rows.append(
            {
                "id": f"q{at}",
                "question": question,
                "small": answer,
                "big": {"text": right * 2, "right": big_right},
            }
        )
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The answers as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
