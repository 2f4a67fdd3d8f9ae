"""The micro models' tokenizer: byte-level BPE, digits one by one, markup as whole tokens.

Numbers are read and written digit by digit, so that no number is unknown. The literals of a tool
call are one token each, so that the cost of a call depends on its content and not on the size of
its JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_TEXT = "<|endoftext|>"
START = "<|im_start|>"
END = "<|im_end|>"
SPECIAL = (END_OF_TEXT, START, END)
MARKUP = (
    "<tool_call>",
    "</tool_call>",
    '<tool_call>\n{"name": "calculate", "arguments": {"expression": "',
    '<tool_call>\n{"name": "delegate", "arguments": {"problem": "',
    '<tool_call>\n{"name": "delegate_many", "arguments": {"problems": [{"problem": "',
    '", "expected_type": "integer"}}\n</tool_call>',
    '", "expected_type": "integer"}, {"problem": "',
    '", "expected_type": "integer"}]}}\n</tool_call>',
    '"}}\n</tool_call>',
    "<|im_start|>system\ntools: ",
    "\n<|im_start|>user\n",
    "\n<|im_start|>tool\n",
    "\n<|im_start|>assistant\n",
    "\\boxed{",
    "\nAnswer type: ",
)
"""Frequent pieces of markup; the longest that matches is taken."""
BLANK = "Ġ"
"""A blank as byte-level BPE writes it."""
STANDS_ALONE = 0.25
"""A word gets no blank if it occurs without one more often than this fraction of its occurrences
with one."""


def build_tokenizer(
    texts: Iterable[str],
    vocabulary: int,
    markup: Sequence[str] = MARKUP,
    *,
    words_with_blank: int | None = None,
) -> Tokenizer:
    """Learn merges from `texts`; `vocabulary` counts special and markup tokens too.

    By default, merges decide whether a blank joins the word after it. With `words_with_blank`, a
    blank is a token of its own, except before that many of the most frequent words that seldom
    occur without one.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    words = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    apart = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "isolated"), words])
    pieces = [piece for text in texts for piece in _split_at_markup(text, markup)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = words if words_with_blank is None else apart  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(markup) - (words_with_blank or 0),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces, trainer)
    if words_with_blank is not None:
        word_counts = Counter(word for piece in pieces for word, _ in words.pre_tokenize_str(piece))
        tokenizer = _add_blank_merges(tokenizer, word_counts, words_with_blank)
        tokenizer.pre_tokenizer = words  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in markup])
    return tokenizer


def _add_blank_merges(tokenizer: Tokenizer, word_counts: Mapping[str, int], most: int) -> Tokenizer:
    """Add one merge to the tokenizer for each of the most frequent words that take a blank."""
    from tokenizers import Tokenizer

    saved = json.loads(tokenizer.to_str())
    ids, merges = saved["model"]["vocab"], saved["model"]["merges"]
    spaced = {
        word[1:]: count for word, count in word_counts.items() if word[0] == BLANK and word[1:]
    }
    selected_words = [
        word
        for word in sorted(spaced, key=lambda word: (-spaced[word], word))
        if word in ids and word_counts.get(word, 0) < STANDS_ALONE * spaced[word]
    ]
    for word in selected_words[:most]:
        ids[BLANK + word] = len(ids)
        merges.append([BLANK, word])
    return Tokenizer.from_str(json.dumps(saved))


def _split_at_markup(text: str, markup: Sequence[str]) -> list[str]:
    # Merges are learned from plain text only: markup has tokens of its own.
    pieces = [text]
    for mark in sorted((*SPECIAL, *markup), key=len, reverse=True):
        pieces = [part for piece in pieces for part in piece.split(mark)]
    return pieces


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write the files that `PreTrainedTokenizerFast.from_pretrained(folder)` reads, offline."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        "additional_special_tokens": [START],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(chat_template())


def chat_template() -> str:
    """The Jinja source that every micro model contains."""
    return Path(__file__).with_name("chat_template.jinja").read_text()


def load_tokenizer(folder: Path) -> Tokenizer:
    """The plain tokenizer of a model folder."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Id of a token that every micro tokenizer has. Raises KeyError for any other tokenizer."""
    vocab_id = tokenizer.token_to_id(token)
    if vocab_id is None:
        raise KeyError(token)
    return vocab_id
