"""A micro model with random weights, and a tokenizer learned from the data set's own texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from loopline.trainers.core.models import export_model, new_model
from loopline.trainers.core.tokenizer import build_tokenizer
from loopline.trainers.data.datasets import DataSet
from loopline.trainers.data.examples import SETS
from loopline.trainers.glpft.copying import set_lookback_biases
from loopline.trainers.glpft.settings import Size
from loopline.workers.atomic_files import atomic_folder

TOKENIZER_ROWS = 8_000
WORDS_WITH_BLANK = 160
"""Tokens for frequent words together with the preceding blank. Only words that seldom occur without
a blank get one: a name is the same token in a sentence and in the JSON of a call, so that it can be
copied from one into the other."""
UMI_MARKUP = (
    "<|im_start|>system\ntools: none<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    "Tools:\n",
    "\nHistory:\nuser: ",
    "History:\nuser: ",
    "\nThought:\n",
    "\nassistant:",
    "\ncaller:",
    "\nconclusion:",
    "</s>",
    "</s>assistant: ",
    "</s>caller: Action: ",
    "</s>observation: ",
    "\nAction: ",
    "\nAction Input: ",
    "\n Next: caller.",
    "\n Next: conclusion.",
    "\n Next: give up.",
    '{"Action": "',
    '", "Action Input": ',
)
"""Frequent pieces of the roles' texts, one token each."""
JSON_GLUE = re.compile(r'"?[\]}]*(?:, ?)?[\[{]*"[a-z_]+": ?[\[{]*"?')
"""Text between two values of a JSON object: the end of one value, a name, the start of the next."""
GLUES = 128
"""Number of tokens for the most frequent of these texts. With them, the value before is two tokens
back, where heads of the first layer attend (`copying.set_lookback_biases`). No more than these:
rarer ones are data, such as the dishes of a menu, whose names must be the same tokens as in a
sentence."""


def write_new_model(data: DataSet, size: Size, seed: int, folder: Path) -> None:
    """Write a model folder with weights from that seed, complete or not at all."""
    import torch

    with atomic_folder(folder) as partial:
        texts = list(_texts(data))
        markup = (*UMI_MARKUP, *frequent_json_separators(texts))
        tokenizer = build_tokenizer(
            texts, size.vocabulary, markup, words_with_blank=WORDS_WITH_BLANK
        )
        torch.manual_seed(seed)
        network = new_model(size, tokenizer.get_vocab_size())
        set_lookback_biases(network)
        export_model(network, tokenizer, partial, context=size.context)


def frequent_json_separators(texts: Sequence[str]) -> list[str]:
    """The most frequent separators, the most frequent first."""
    counts = Counter(glue for text in texts for glue in JSON_GLUE.findall(text))
    glues = sorted(counts, key=lambda glue: (-counts[glue], glue))
    return [glue for glue in glues if glue not in UMI_MARKUP][:GLUES]


def _texts(data: DataSet) -> Iterator[str]:
    """Rows of all sets, evenly sampled."""
    rows = [row for name in SETS for row in data.sets[name]]
    for row in rows[:: max(1, len(rows) // TOKENIZER_ROWS)]:
        yield row.input
        yield row.target_text
