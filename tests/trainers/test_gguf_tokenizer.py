"""A tokenizer is exported to llama.cpp only if it splits every text as before."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from loopline.trainers.errors import TrainingError
from loopline.trainers.export.bpe_scores import scores_of_merges
from loopline.trainers.export.gguf_tokenizer import add_tokenizer
from tests.workers.engines.tiny_sentencepiece import (
    all_merges,
    chat_tokenizer,
    sentencepiece_tokenizer,
)

WIDTH = 600
SHORT_TEXTS = [
    "".join(letters) for length in range(1, 9) for letters in product("ab", repeat=length)
]
PIECES = ["".join(letters) for length in range(2, 5) for letters in product("ab", repeat=length)]


def cut_by_scores(text: str, scores: dict[str, int]) -> list[str]:
    """As llama.cpp does: merge the neighbours that form the best piece, the leftmost first."""
    parts = list(text)
    while True:
        joined = [left + right for left, right in pairwise(parts)]
        places = [place for place, piece in enumerate(joined) if piece in scores]
        if not places:
            return parts
        at = max(places, key=lambda place: (scores[joined[place]], -place))
        parts[at : at + 2] = [joined[at]]


@given(
    st.permutations(PIECES).flatmap(
        lambda order: st.integers(1, 8).flatmap(
            lambda count: st.permutations(
                all_merges(order[:count], dict.fromkeys(["a", "b", *order[:count]], 0))
            ).map(lambda merges: (order[:count], merges))
        )
    )
)
def test_a_vocabulary_with_scores_splits_text_as_its_merges_do(
    pieces_and_merges: tuple[list[str], list[tuple[str, str]]],
) -> None:
    pieces, merges = pieces_and_merges
    vocabulary = {text: place for place, text in enumerate(["a", "b", *pieces])}
    try:
        scores = scores_of_merges(merges, list(vocabulary))
    except ValueError as refused:
        if "llama.cpp would split" not in str(refused):
            raise
        return
    by_merges = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    for text in SHORT_TEXTS:
        assert by_merges.encode(text).tokens == cut_by_scores(text, scores)


def test_runs_of_one_character_get_scores_in_any_order_of_merges() -> None:
    runs = ["▁" * length for length in range(2, 17)]
    merges = all_merges(runs, dict.fromkeys(["▁", *runs], 0))
    for order in (merges, sorted(merges, key=lambda pair: -len(pair[1]))):
        assert set(scores_of_merges(order, ["▁", *runs])) == set(runs)


@pytest.mark.parametrize(
    ("merges", "pieces", "words"),
    [
        ([("a", "b"), ("ab", "c")], ["a", "b", "c", "bc", "ab", "abc"], "join 'b' and 'c' to 'bc'"),
        ([("a", "b")], ["a", "b", "ab", "aé"], "join 'a' and 'é' to 'aé'"),
        (
            [("b", "a"), ("a", "b"), ("a", "ba"), ("ab", "a")],
            ["a", "b", "ba", "ab", "aba", "bb"],
            "to 'bb'",
        ),
    ],
)
def test_a_piece_that_only_llama_cpp_would_make_is_reported(
    merges: list[tuple[str, str]], pieces: list[str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        scores_of_merges(merges, pieces)


@pytest.mark.parametrize(
    "merges",
    [
        [("b", "c"), ("a", "b"), ("ab", "c"), ("x", "a"), ("a", "bc")],
        [("a", "b"), ("b", "c"), ("a", "bc"), ("c", "x"), ("ab", "c")],
    ],
)
def test_a_piece_with_an_early_and_a_late_merge_is_refused_if_a_rival_lies_between(
    merges: list[tuple[str, str]],
) -> None:
    """llama.cpp would form `abc` early: `xabc` and `abcx` have a rival for it in between."""
    pieces = {"a", "b", "c", "x", *(left + right for left, right in merges)}
    with pytest.raises(ValueError, match="would split some text with 'abc' differently"):
        scores_of_merges(merges, sorted(pieces))


def test_a_rival_formed_through_the_larger_piece_is_refused_too() -> None:
    """`bbb` is formed late, after `bb`: until then `aa` is formed, and llama.cpp would form
    `abbb`."""
    merges = [("b", "b"), ("b", "bb"), ("a", "bbb"), ("a", "a"), ("bb", "b")]
    with pytest.raises(ValueError, match="would split some text with 'bbb' differently"):
        scores_of_merges(merges, ["a", "b", "bb", "bbb", "abbb", "aa"])


def exported(folder: Path, changes: dict[str, Any], **of_model: Any) -> dict[str, Any]:
    """The fields of a GGUF file with the tokenizer, after these changes to its tokenizer.json."""
    chat_tokenizer(sentencepiece_tokenizer("each")).save_pretrained(folder)
    path = folder / "tokenizer.json"
    saved = {**json.loads(path.read_text()), **changes}
    saved["model"] |= of_model
    path.write_text(json.dumps(saved))
    writer = gguf.GGUFWriter(folder / "tokenizer.gguf", "llama")
    add_tokenizer(writer, folder, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    reader = gguf.GGUFReader(folder / "tokenizer.gguf")
    return {name: field.contents() for name, field in reader.fields.items()}


def test_bytes_control_tokens_and_padding_have_distinct_types(tmp_path: Path) -> None:
    fields = exported(tmp_path, {})
    kinds = fields["tokenizer.ggml.token_type"]
    assert fields["tokenizer.ggml.model"] == "llama"
    assert fields["tokenizer.ggml.tokens"][:4] == ["<unk>", "<s>", "</s>", "<0x00>"]
    assert kinds[:3] == [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    assert set(kinds[3:259]) == {gguf.TokenType.BYTE}
    assert kinds[259] == gguf.TokenType.NORMAL
    assert kinds[-1] == gguf.TokenType.UNUSED
    assert fields["tokenizer.ggml.add_space_prefix"] is True
    assert fields["tokenizer.ggml.add_bos_token"] is False


WORDPIECE = {"type": "WordPiece", "prefix": "##", "cleanup": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
SPLIT = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
STRIPPED = {
    "id": 2, "content": "</s>", "special": True, "single_word": False, "lstrip": False,
    "rstrip": True, "normalized": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "of_model", "words"),
    [
        ({"normalizer": None, "pre_tokenizer": METASPACE}, {}, "before each text"),
        ({"normalizer": None, "pre_tokenizer": SPLIT}, {}, "Metaspace, not split"),
        ({"normalizer": {"type": "NFKC"}}, {}, "before each text"),
        ({"decoder": WORDPIECE}, {}, "its decoder does more"),
        ({"added_tokens": [STRIPPED]}, {}, "'</s>' sets rstrip"),
        ({"added_tokens": [{**STRIPPED, "rstrip": False, "normalized": True}]}, {}, "normalized"),
        ({}, {"ignore_merges": True}, "not plain BPE .*ignore_merges"),
        ({}, {"merges": [["t", "e"]]}, "llama.cpp would join"),
        ({}, {"byte_fallback": False}, "does not support the way"),
    ],
)
def test_a_tokenizer_feature_without_a_llama_cpp_equivalent_is_refused(
    tmp_path: Path, changes: dict[str, Any], of_model: dict[str, Any], words: str
) -> None:
    with pytest.raises(TrainingError, match=words):
        exported(tmp_path, changes, **of_model)
