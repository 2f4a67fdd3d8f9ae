"""Converts a tokenizer.json to the tokenizer of a GGUF file: byte-level BPE, or SentencePiece
style.

A tokenizer with which llama.cpp would split text differently is refused: it would give wrong
answers without an error.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf

from loopline.trainers.errors import TrainingError
from loopline.trainers.export.bpe_scores import scores_of_merges
from loopline.workers.engines.local.model_text import read_tokenizer
from loopline.workers.engines.text.sentencepiece import BLANK, BLANK_AT_BEGINNING_KEY
from loopline.workers.engines.text.tokenizer_codec import COMPOSED_KEY

_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_BYTES_ONLY = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")

_PREPEND = {"type": "Prepend", "prepend": BLANK}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
_DECODERS = {"Replace", "ByteFallback", "Fuse", "Strip"}
_BYTE = re.compile(r"^<0x[0-9A-F]{2}>$")


def add_tokenizer(writer: gguf.GGUFWriter, model: Path, width: int) -> None:
    """Write the tokenizer and the chat template in folder `model`, padded to `width` tokens.

    Raises TrainingError for a tokenizer that does not exist, or that has no equivalent in
    llama.cpp.
    """
    saved = _read_tokenizer(model)
    bpe: dict[str, Any] = saved["model"]
    last = max(
        [*bpe["vocab"].values(), *(token_entry["id"] for token_entry in saved["added_tokens"])]
    )
    if last >= width:
        raise TrainingError(
            f"{model}: its tokenizer has ids up to {last}, but its embedding has {width} rows "
            "(vocab_size in config.json); take the tokenizer.json that belongs to the weights"
        )
    named = {place: text for text, place in bpe["vocab"].items()}
    kinds = [gguf.TokenType.UNUSED] * width
    for place in named:
        kinds[place] = gguf.TokenType.NORMAL
    for added in saved["added_tokens"]:
        place = added["id"]
        named[place] = added["content"]
        kinds[place] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    try:
        tokens = _pad(named, width)
        if bpe.get("byte_fallback"):
            _add_sentencepiece(writer, saved, tokens, kinds)
        else:
            _add_byte_level(writer, saved)
    except ValueError as error:
        raise TrainingError(f"{model}: its tokenizer cannot be exported: {error}") from error
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    settings = read_json(model / "tokenizer_config.json")
    ids = {text: place for place, text in enumerate(tokens)}
    for name, add in (
        ("bos_token", writer.add_bos_token_id),
        ("pad_token", writer.add_pad_token_id),
    ):
        if (text := _text(settings, name)) in ids:
            add(ids[text])
    ends = _end_ids(model, ids.get(_text(settings, "eos_token")), width)
    places = (writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id)
    if not 0 < len(ends) <= len(places):
        raise TrainingError(
            f"{model}: it has {len(ends)} tokens that end a turn (eos_token in "
            "tokenizer_config.json, eos_token_id in generation_config.json); llama.cpp needs "
            f"1 to {len(places)}"
        )
    for token_id, add in zip(ends, places, strict=False):
        add(token_id)
    writer.add_add_bos_token(False)
    template = model / "chat_template.jinja"
    text = template.read_text() if template.is_file() else settings.get("chat_template")
    if text:
        writer.add_chat_template(text)


def _read_tokenizer(model: Path) -> dict[str, Any]:
    """The tokenizer.json in folder `model` as transformers reads it: with the tokens that only
    tokenizer_config.json names, and with the ids that added tokens really get. Raises
    TrainingError."""
    file = read_json(model / "tokenizer.json")
    ids: dict[str, int] = {}
    entries = [*file["model"]["vocab"].items()]
    entries += [(added["content"], added["id"]) for added in file["added_tokens"]]
    for text, place in sorted(entries, key=lambda entry: entry[1]):
        if (previous_place := ids.setdefault(text, place)) != place:
            raise TrainingError(
                f"{model}: its tokenizer cannot be exported: the text {text!r} has two ids, "
                f"{previous_place} and {place}"
            )
    try:
        return json.loads(read_tokenizer(model).backend_tokenizer.to_str())
    except Exception as error:
        raise TrainingError(f"{model}: its tokenizer cannot be read: {error}") from error


def _text(settings: dict[str, Any], name: str) -> str:
    token: Any = settings.get(name)
    return str(token.get("content") if isinstance(token, dict) else token)


def _end_ids(model: Path, first: int | None, width: int) -> list[int]:
    """The tokens that end a turn: the tokenizer's own one, `first`, and those of
    generation_config.json, or config.json without it."""
    files = [model / name for name in ("generation_config.json", "config.json")]
    settings = next((read_json(file) for file in files if file.is_file()), {})
    value: Any = settings.get("eos_token_id")
    ends = [first, *(value if isinstance(value, list) else [value])]
    return [end for end in dict.fromkeys(ends) if isinstance(end, int) and 0 <= end < width]


def _pad(named: dict[int, str], width: int) -> list[str]:
    """The texts of all ids, with placeholders for ids without a text. Two ids with the same text
    would crash llama.cpp."""
    texts = set(named.values())
    tokens: list[str] = []
    for place in range(width):
        text = named.get(place, f"[PAD{place}]")
        while place not in named and text in texts:
            text = f"[{text}]"
        tokens.append(text)
    return tokens


def _add_byte_level(writer: gguf.GGUFWriter, saved: dict[str, Any]) -> None:
    bpe: dict[str, Any] = saved["model"]
    splitter = _splitter(saved)
    normalized = saved.get("normalizer") is not None
    if bpe.get("type") != "BPE" or splitter is None:
        raise ValueError(
            "llama.cpp does not support the way in which it splits text; supported are byte-level "
            "BPE as in GPT-2, Qwen2, Llama 3 or SmolLM, and SentencePiece style with byte "
            "fallback as in Llama 2"
        )
    # llama.cpp uses a word that is a token as it is only for Llama 3's tokenizer.
    others = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    used = [name for name in others if bpe.get(name)]
    if bool(bpe.get("ignore_merges")) != (splitter == "llama-bpe"):
        used.append("ignore_merges")
    if used:
        raise ValueError(f"llama.cpp has no equivalent for its {' and '.join(used)}")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitter)
    writer.add_token_merges([" ".join(pair) for pair in _merges(bpe)])
    _require_plain(saved["added_tokens"], normalized=normalized)
    if normalized:
        writer.add_bool(COMPOSED_KEY, True)


def _splitter(saved: dict[str, Any]) -> str | None:
    """llama.cpp's name for the way in which the tokenizer splits text before BPE."""
    normalizer: dict[str, Any] = saved.get("normalizer") or {}
    if normalizer.get("type") not in (None, "NFC"):
        return None
    match _parts(saved, "pre_tokenizer", "pretokenizers"):
        case [bytes_] if _GPT2.items() <= bytes_.items():
            return "gpt-2"
        case [{"type": "Digits", "individual_digits": True}, bytes_] if (
            _GPT2.items() <= bytes_.items()
        ):
            return "smollm"
        case [{"type": "Split", "pattern": {"Regex": pattern}}, bytes_] if (
            _BYTES_ONLY.items() <= bytes_.items()
        ):
            return {_QWEN2: "qwen2", _LLAMA3: "llama-bpe"}.get(pattern)
        case _:
            return None


def _add_sentencepiece(
    writer: gguf.GGUFWriter,
    saved: dict[str, Any],
    tokens: list[str],
    kinds: list[gguf.TokenType],
) -> None:
    """Also sets the kinds of the tokens for bytes and for unknown text."""
    bpe: dict[str, Any] = saved["model"]
    everywhere, at_beginning = _blank_prefix_flags(saved)
    options = ("ignore_merges", "dropout", "continuing_subword_prefix", "end_of_word_suffix")
    used = [name for name in options if bpe.get(name)]
    if bpe.get("type") != "BPE" or used:
        raise ValueError(f"it is not plain BPE ({', '.join([str(bpe.get('type')), *used])})")
    if {part["type"] for part in _parts(saved, "decoder", "decoders")} - _DECODERS:
        raise ValueError("its decoder does more than replace '▁' and join bytes")
    # If such tokens are normalized, a normalizer adds its blank before they are searched.
    _require_plain(saved["added_tokens"], normalized=everywhere)
    for added in saved["added_tokens"]:
        if added["content"] == bpe.get("unk_token"):
            kinds[added["id"]] = gguf.TokenType.UNKNOWN
    bytes_ = [place for place, text in enumerate(tokens) if _BYTE.match(text)]
    if len(bytes_) != 256:
        raise ValueError(f"it has {len(bytes_)} of the 256 byte tokens")
    for place in bytes_:
        kinds[place] = gguf.TokenType.BYTE
    found_first = (gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN, gguf.TokenType.USER_DEFINED)
    pieces = [text for text, kind in zip(tokens, kinds, strict=True) if kind not in found_first]
    merges = _merges(bpe)
    scores = scores_of_merges(merges, pieces)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    # A text that no merge forms never occurs, regardless of its score.
    writer.add_token_scores([float(scores.get(text, -len(merges))) for text in tokens])
    writer.add_add_space_prefix(everywhere)
    if at_beginning:
        writer.add_bool(BLANK_AT_BEGINNING_KEY, True)
    if (unknown := bpe.get("unk_token")) in tokens:
        writer.add_unk_token_id(tokens.index(unknown))


def _require_plain(added_tokens: list[dict[str, Any]], *, normalized: bool) -> None:
    """Raise ValueError for an added token that llama.cpp would match differently: with the
    surrounding blanks, only as a whole word, or (if the text is `normalized`) after
    normalization."""
    options = ("lstrip", "rstrip", "single_word") + (("normalized",) if normalized else ())
    for added in added_tokens:
        if used := [name for name in options if added.get(name)]:
            raise ValueError(f"its token {added['content']!r} sets {' and '.join(used)}")


def _blank_prefix_flags(saved: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the tokenizer puts a blank before every text between added tokens, and whether only
    at the beginning."""
    match _parts(saved, "normalizer", "normalizers"), saved.get("pre_tokenizer"):
        case [prepend, replace], None if prepend == _PREPEND and replace == _REPLACE:
            return True, False
        case [replace], None if replace == _REPLACE:
            return False, False
        case (
            [],
            {"type": "Metaspace", "replacement": "▁", "split": False, "prepend_scheme": scheme},
        ) if scheme in ("first", "never"):
            return False, scheme == "first"
        case _:
            raise ValueError(
                "in SentencePiece style, it must put a blank before each text (Prepend and "
                "Replace) or before the first one (Metaspace, not split)"
            )


def _parts(saved: dict[str, Any], name: str, plural: str) -> list[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder."""
    step: dict[str, Any] | None = saved.get(name)
    return [] if step is None else step.get(plural, [step])


def _merges(bpe: dict[str, Any]) -> list[tuple[str, str]]:
    """The merges as pairs. Older files join the two parts of a merge by a blank."""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in bpe["merges"])
    return [(left, right) for left, right in pairs]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file. Raises TrainingError for a file that is missing or is not JSON."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise TrainingError(f"{path} is missing: name a model's folder") from error
    except ValueError as error:
        raise TrainingError(f"{path} cannot be read: {error}") from error
