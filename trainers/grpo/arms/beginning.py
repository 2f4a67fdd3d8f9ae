"""What an arm begins with: a tokenizer for its game, and random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopline.trainers.core.models import export_model, new_model
from loopline.trainers.core.tokenizer import SPECIAL, build_tokenizer
from loopline.trainers.grpo.arms.training import NetworkSize
from loopline.workers.atomic_files import atomic_folder

_BYTES = 256


def write_initial_model(size: NetworkSize, pieces: Sequence[str], seed: int, folder: Path) -> None:
    """A model folder with random weights of that seed, whole or not at all; that which another
    process wrote meanwhile is the same, and stays. `pieces` are one token each."""
    import torch

    tokenizer = build_tokenizer((), len(SPECIAL) + _BYTES + len(pieces), pieces)
    torch.manual_seed(seed)
    network = new_model(size, tokenizer.get_vocab_size())
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, size.spread)
    try:
        with atomic_folder(folder) as partial:
            export_model(network, tokenizer, partial, context=size.context)
    except OSError:
        if not folder.exists():
            raise
