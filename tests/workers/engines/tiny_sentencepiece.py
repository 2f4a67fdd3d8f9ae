"""The tiny model again, of TinyLlama's kind: a Llama with a SentencePiece-style tokenizer.

Its tokenizer has the layout of Llama 2's conversion: control tokens, 256 bytes, pieces in the order
of their merges, characters; a merge for every way to make a piece out of two others. Other
characters (an emoji, a line end) are written as bytes. The chat template is TinyLlama's: `<|user|>`
is plain text, and only `</s>` is a control token.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import LlamaConfig, PreTrainedTokenizerFast

from tests.workers.engines.tiny_model import (
    AFTER_TOOL,
    ANSWER,
    CONTEXT,
    QUESTION,
    TOOL_CALL,
    train,
)

Prefix = Literal["each", "first", "never"]
"""Where a text gets a leading space: Llama 2 adds it at the start and after each control token, the
newer kind only at the start."""

SPECIAL = ["<unk>", "<s>", "</s>"]
TEMPLATE = """\
{%- if tools %}<|tools|>
{%- for tool in tools %} {{ tool.function.name }}{%- endfor %}{{ eos_token }}
{% endif %}
{%- for message in messages %}
{%- if message.role not in ["system", "user", "assistant", "tool"] %}
{{- raise_exception("unknown role") }}
{%- endif %}
{{- "<|" + message.role + "|>\\n" + message.content + eos_token + "\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|assistant|>\\n" }}{% endif %}"""

CORPUS = [
    "The quick brown fox jumps over the lazy dog. What is the answer to 12 * 7 + 5? It is 89.",
    "Ça va très bien, merci; où êtes-vous? Dès l'été, voilà où naît la fête.",
    "for each in range(10):    print(each)        # -------- ==== aaaa abab ababab",
    "system user assistant tool tools <|user|> <|assistant|> <|system|> calculate expression",
]


def make_tiny_sentencepiece_model(folder: Path) -> Path:
    """Train and save; return the folder."""
    tokenizer = chat_tokenizer(sentencepiece_tokenizer("each"))
    plain_prompt = f"<|user|>\n{QUESTION}</s>\n<|assistant|>\n"
    offered = f"<|tools|> calculate</s>\n{plain_prompt}"
    after_tool = f"{offered}{TOOL_CALL}</s>\n<|tool|>\n89</s>\n<|assistant|>\n"
    samples: list[tuple[list[int], list[int]]] = []
    for prompt, answer in (plain_prompt, ANSWER), (offered, TOOL_CALL), (after_tool, AFTER_TOOL):
        whole = tokenizer.encode(f"{prompt}{answer}</s>", add_special_tokens=False)
        length = len(tokenizer.encode(prompt, add_special_tokens=False))
        samples.append((whole[:length], whole[length:]))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
    )
    train(config, samples).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def chat_tokenizer(backend: Tokenizer) -> PreTrainedTokenizerFast:
    """Build a model with TinyLlama's settings."""
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        add_bos_token=True,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def sentencepiece_tokenizer(
    prefix: Prefix, merges: list[tuple[str, str]] | None = None, texts: Iterable[str] = ()
) -> Tokenizer:
    """Train it on a few lines and on `texts`; `merges` replaces those that belong to its pieces."""
    pieces, characters = _pieces(list(texts))
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    tokens = [*SPECIAL, *bytes_, *pieces, *characters]
    vocabulary = {text: place for place, text in enumerate(tokens)}
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=all_merges(pieces, vocabulary) if merges is None else merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    if prefix == "each":
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    strip = [] if prefix == "never" else [decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    backend.add_special_tokens([AddedToken(token_text, normalized=False) for token_text in SPECIAL])
    return backend


def all_merges(pieces: Iterable[str], vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Return every pair that makes a piece, in the order of the pieces."""
    return [
        (piece[:cut], piece[cut:])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]


def _pieces(more: list[str]) -> tuple[list[str], list[str]]:
    """Return pieces in the order of their merges, and the characters that they consist of."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(Regex("[^ -~À-ÿ]"), "")
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = [*CORPUS, ANSWER, TOOL_CALL, *more] * 2
    size = 4000 if more else 400
    learner.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    vocabulary = sorted(learner.get_vocab().items(), key=lambda pair: pair[1])
    characters = [text for text, _ in vocabulary if len(text) == 1]
    # The learner splits a run of spaces; in Llama 2's vocabulary runs come first.
    runs = ["▁" * length for length in (2, 4, 8, 3, 5)]
    return [*runs, *(text for text, _ in vocabulary if len(text) > 1)], characters
