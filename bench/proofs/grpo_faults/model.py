"""A model that makes random legal moves, without having learned anything: random weights over an
alphabet of single characters and whole answers. Its rewards vary between candidates, which is all
that a loop needs to proceed."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

MOVES = ("U", "D", "L", "R")
ANSWERS = (
    *(f"#### [{move}]" for move in MOVES),
    *(f"#### [{move}, {move}]" for move in MOVES),
    *(f"#### [step({move})]" for move in MOVES),
    *(f"#### [bfs({reach})]" for reach in (2, 4, 8)),
)
"""Answers of Plan-Path's agents; each is a single token."""
SHARED = 0.5
"""Length of the component that all embeddings share; their individual parts have about a fifth of
it."""
ANSWER_STRETCH = 2.2
"""Factor by which this component is longer in answers."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model that answers in milliseconds."""

    hidden: int = 32
    feed_forward: int = 64
    layers: int = 1
    heads: int = 2
    context: int = 512


def write_base(
    folder: Path, seed: int = 7, answers: Sequence[str] = ANSWERS, sizes: Sizes | None = None
) -> Path:
    """Write a model folder with float32 weights from `seed`, and return it. Each of `answers` is a
    token."""
    import torch

    from loopline.trainers.core.models import export_model, new_model

    tokenizer = _tokenizer(answers)
    torch.manual_seed(seed)
    sizes = sizes or Sizes()
    model = new_model(sizes, tokenizer.get_vocab_size())
    _bias_towards_answers(model, tokenizer, answers)
    export_model(model, tokenizer, folder, context=sizes.context)
    weights = {k: v.detach() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    store_float32(weights, folder)
    return folder


def store_float32(weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Write the weights into a model folder, but not in half precision: adapters are stored in the
    precision of their base, and workers must serve exactly the weights that were trained."""
    import torch
    from safetensors.torch import save_file

    from loopline.trainers.core.models import WEIGHTS

    whole = {name: tensor.to(torch.float32).contiguous() for name, tensor in weights.items()}
    save_file(whole, folder / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))


def _bias_towards_answers(model: Any, tokenizer: Tokenizer, answers: Sequence[str]) -> None:
    """Make answers, and the end after them, more likely than characters: all embeddings, which are
    also the output layer, share a direction, and those of answers reach farther along it."""
    import torch

    from loopline.trainers.core.tokenizer import END, token_id

    embeddings = model.get_input_embeddings().weight
    hidden = embeddings.shape[1]
    along = torch.full((hidden,), SHARED / hidden**0.5)
    with torch.no_grad():
        embeddings += along
        for token in (*answers, END):
            embeddings[token_id(tokenizer, token)] += (ANSWER_STRETCH - 1) * along


def _tokenizer(answers: Sequence[str]) -> Tokenizer:
    """Return printable characters and whole answers: few enough that an answer is often sampled by
    chance."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from loopline.trainers.core.tokenizer import SPECIAL

    blank, newline = (
        pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)[0][0]
        for text in (" ", "\n")
    )
    printable = string.ascii_letters + string.digits + string.punctuation
    characters = [*printable, blank, newline]
    alphabet = {character: number for number, character in enumerate(characters)}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in answers])
    return tokenizer
