"""What an arm of the demonstration begins with: a tokenizer for Plan-Path, and random weights."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trainers.grpo.demo.settings import NetworkSize
from trainers.models import export_model, new_model
from trainers.tokenizer import SPECIAL, build_tokenizer

PIECES = (
    "<|im_start|>system\ntools: none<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    "\nA: row ", ", column ", ". G: row ", ".\nG is ", " up", " down", " left", " right", " and ",
    ".\nTurn ", " of ", "\nLast turn: ", " carried out", "0 carried out", ", 1 refused", " (wall)",
    " (outside)", "#### ", "[U", "[D", "[L", "[R", ", U", ", D", ", L", ", R", "]",
    "[step(", "[bfs(", "[look(", ")]", "), ", "\nThe tool agent's calls:\n", "\nIt proposes ",
    "nothing", "step(", "bfs(", "look(", "): ", " to ", "row ", "wall", "outside", " free",
    "the goal", "found nothing nearer", "already at the goal",
)  # fmt: skip
"""Frequent pieces of observations and answers, one token each. A cell of the grid is one as well,
and a move, so that one can be looked up from the other."""
_BYTES = 256


def write_beginning(size: NetworkSize, seed: int, folder: Path) -> None:
    """A model folder with random weights of that seed, whole or not at all."""
    import torch

    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        tokenizer = build_tokenizer((), len(SPECIAL) + _BYTES + len(PIECES), PIECES)
        torch.manual_seed(seed)
        network = new_model(size, tokenizer.get_vocab_size())
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.dim() == 2:
                    parameter.normal_(0.0, size.spread)
        export_model(network, tokenizer, part, context=size.context)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
