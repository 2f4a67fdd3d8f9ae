"""From a schema to a mask per token: the allowed tokens, and the refused schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from loopline.workers.engines.grammar.compiler import GrammarCompiler
from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.grammar.schema_limits import MAX_FOLLOWED_DEPTH, MAX_SCHEMA_DEPTH
from loopline.workers.engines.local.sampling import forbid
from loopline.workers.engines.protocol import EngineError
from tests.workers.engines.tiny_model import special_ids

PADDED = 384
"""Width of the logits: like many models', larger than the tokenizer's vocabulary."""


class Tokens:
    """The tiny model's tokenizer with its compiler."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder)
        self.end = special_ids(folder)["<|im_end|>"]
        self.also_end = special_ids(folder)["<|endoftext|>"]
        self.special = set(special_ids(folder).values())
        ends = [self.also_end, self.end]
        self.compiler = GrammarCompiler(
            lambda: from_tokenizer(self.tokenizer, n_vocab=PADDED, eos_token=ends), ends
        )

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def after(self, schema: dict[str, Any], text: str) -> Matcher:
        matcher = self.compiler.matcher(schema)
        for token in self.encode(text):
            matcher.consume(token)
        return matcher

    def allowed(self, matcher: Matcher) -> set[int]:
        assert matcher.allowed is not None
        return {t for t in range(PADDED) if matcher.allowed[t // 8] >> t % 8 & 1}


@pytest.fixture(scope="module")
def tokens(tiny_model: Path) -> Tokens:
    return Tokens(tiny_model)


def test_only_tokens_that_can_lead_to_an_instance_are_allowed(tokens: Tokens) -> None:
    matcher = tokens.after({"enum": ["left", "right"]}, '"le')
    texts = {tokens.tokenizer.decode([token]) for token in tokens.allowed(matcher)}
    assert "f" in texts
    assert all('ft"'.startswith(text) for text in texts)


@pytest.mark.parametrize(
    ("text", "whole"), [("", False), ("-", False), ("-4", True), ("89", True), ("4", True)]
)
def test_the_end_is_allowed_exactly_when_the_text_is_whole(
    tokens: Tokens, text: str, whole: bool
) -> None:
    allowed = tokens.allowed(tokens.after({"type": "integer"}, text))
    assert {tokens.end, tokens.also_end} & allowed == (
        {tokens.end, tokens.also_end} if whole else set()
    )


def test_a_grammar_is_complete_when_nothing_can_be_added(tokens: Tokens) -> None:
    schema = {"type": "integer", "minimum": 0, "maximum": 99}
    assert not tokens.after(schema, "8").complete
    assert tokens.after(schema, "89").complete
    assert not tokens.after({"type": "integer"}, "89").complete


def test_no_other_special_token_and_no_padding_is_ever_allowed(tokens: Tokens) -> None:
    allowed = tokens.allowed(tokens.after({"type": "string"}, '"a'))
    assert not allowed & tokens.special
    assert max(allowed) < len(tokens.tokenizer)


def test_a_token_that_does_not_fit_is_an_error(tokens: Tokens) -> None:
    matcher = tokens.after({"type": "integer"}, "8")
    (letter,) = tokens.encode("x")
    with pytest.raises(EngineError, match="satisfy the grammar") as caught:
        matcher.consume(letter)
    assert caught.value.kind == "bad_request"


def test_copies_advance_independently(tokens: Tokens) -> None:
    first = tokens.after({"enum": ["left", "right"]}, '"')
    second = first.copy()
    for matcher, word in ((first, 'left"'), (second, 'right"')):
        for token in tokens.encode(word):
            matcher.consume(token)
        assert matcher.complete


def test_separators_match_json_dumps(tokens: Tokens) -> None:
    instance = {"a": 1, "b": [1, 2, {"c": None}]}
    schema = {"const": instance}
    assert tokens.after(schema, json.dumps(instance)).complete
    with pytest.raises(EngineError):
        tokens.after(schema, json.dumps(instance, indent=1))
    with pytest.raises(EngineError):
        tokens.after(schema, json.dumps(instance, separators=(",", ":")))


def _chain(length: int, keyword: str = "properties") -> dict[str, Any]:
    """Return definitions that each need the next."""
    follow: dict[str, Any] = {"required": ["x"], "type": "object"}
    defs: dict[str, Any] = {
        f"d{i}": {**follow, keyword: {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "integer"}}}


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "integre"}, "integre"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"$ref": "#/$defs/nobody"}, "nobody"),
        ({"$ref": "https://example.org/schema.json"}, "does not fetch"),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        ({"type": "string", "pattern": "a(?=b)"}, "look-around"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
        ({"enum": []}, "Unsatisfiable"),
        ({"$ref": "#"}, "cannot constrain"),
        ({"description": "x" * 100_001}, "larger than 100000 bytes"),
        ({"enum": list(range(200_000))}, "larger than 100000 bytes"),
        ({"title": "\ud800"}, "cannot constrain"),
        (_nested(MAX_SCHEMA_DEPTH), "nested more than 100 levels"),
        (_nested(100_000), "nested more than 100 levels"),
        (_chain(1500), "1501 different references"),
        ({"properties": {"a": {"$ref": 3}}, "type": "object"}, "cannot constrain"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_the_reason(
    tokens: Tokens, schema: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EngineError) as caught:
        tokens.compiler.matcher(schema)
    assert caught.value.kind == "bad_request"
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "schema",
    [_nested(MAX_SCHEMA_DEPTH - 1), _chain(MAX_FOLLOWED_DEPTH // 5 - 2)],
    ids=["nested", "chain"],
)
def test_the_deepest_permitted_schemas_compile(tokens: Tokens, schema: dict[str, Any]) -> None:
    assert any(tokens.compiler.matcher(schema).allowed or b"")


def test_the_first_schema_imports_llguidance_and_nothing_earlier() -> None:
    """A caller without a schema does not need the package."""
    module = "loopline.workers.engines.torch.engine"
    code = f"import sys, {module}; sys.exit('llguidance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


words = st.sampled_from(
    [
        "type", "properties", "required", "items", "enum", "const", "anyOf", "allOf", "oneOf",
        "pattern", "minLength", "maxLength", "minimum", "maximum", "multipleOf", "minItems",
        "maxItems", "additionalProperties", "prefixItems", "format", "patternProperties", "not",
        "$ref",
    ]
)  # fmt: skip
atoms = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["object", "array", "string", "integer", "number", "#", "a{9999}", "date"])
)  # fmt: skip
hostile = st.dictionaries(
    words,
    st.recursive(
        atoms,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=300)
@given(schema=hostile, picks=st.lists(st.integers(0, PADDED), max_size=12))
def test_any_schema_is_refused_or_satisfiable(
    tokens: Tokens, schema: dict[str, Any], picks: Sequence[int]
) -> None:
    """Nonsense of known keywords raises only EngineError and never leads to a dead end."""
    try:
        matcher = tokens.compiler.matcher(schema)
        for pick in picks:
            if matcher.complete:
                break
            allowed = sorted(tokens.allowed(matcher) - {tokens.end, tokens.also_end})
            assert allowed
            matcher.consume(allowed[pick % len(allowed)])
    except EngineError:
        return


@given(
    st.lists(st.none() | st.binary(min_size=8, max_size=8), min_size=1, max_size=5),
    st.integers(1, 64),
)
def test_forbidden_tokens_become_minus_infinity_and_other_rows_stay_unchanged(
    allowed: list[bytes | None], vocabulary: int
) -> None:
    logits = torch.randn(len(allowed), vocabulary)
    before = logits.clone()
    masked = forbid(logits, allowed)
    assert bool((logits == before).all())
    for row, bits in enumerate(allowed):
        for token in range(vocabulary):
            free = bits is None or bits[token // 8] >> token % 8 & 1
            assert float(masked[row, token]) == (float(before[row, token]) if free else -torch.inf)
