"""Answers are checked against their schema as JSON means it, not as Python's numbers do."""

from __future__ import annotations

import pytest

pytest.importorskip("jsonschema", reason="needs make install")

from loopline.agents.answer_schema import AnswerSchema
from loopline.agents.errors import InvalidOptions
from loopline.agents.records import JsonObject


def _accepts(schema: JsonObject, text: str) -> bool:
    return AnswerSchema(schema).read(text)[1] is None


@pytest.mark.parametrize(
    ("factor", "text"),
    [(0.01, "0.07"), (0.01, "19.99"), (0.1, "0.3"), (0.1, "1e308"), (0.1, "1" + "0" * 400)],
)
def test_a_multiple_of_a_decimal_fraction_is_accepted(factor: float, text: str) -> None:
    assert _accepts({"multipleOf": factor}, text)


@pytest.mark.parametrize(
    ("factor", "text"), [(0.01, "0.075"), (2, "12345678901234567890123"), (1, "1e400"), (3, "1e22")]
)
def test_a_number_that_is_no_multiple_is_refused(factor: float, text: str) -> None:
    assert not _accepts({"multipleOf": factor}, text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\p{L}+$", r"[\p{Script=Greek}]", r"^(?<year>\d{4})-\k<year>$", r"[^]", r"(?<!a)b",
        r"[\u{1F600}-\u{1F64F}\u{e9}]", r"\cJ",
        r"^[\w-.]+@([\w-]+\.)+[\w-]{2,4}$", r"[.-\d]", r"[\-\d]", r"(?<=a+)b", "[[a]",
    ],
)  # fmt: skip
def test_a_pattern_in_the_syntax_of_javascript_is_a_schema(pattern: str) -> None:
    assert _accepts({"type": "string", "pattern": pattern}, '"x"')


@pytest.mark.parametrize("pattern", ["(", "[a-", "a{2,1}", "*a", r"(?<year>a)(?<year>b)"])
def test_a_text_that_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOptions, match="is not a JSON schema"):
        AnswerSchema({"type": "string", "pattern": pattern})


def test_half_of_a_surrogate_pair_is_an_error_of_the_answer() -> None:
    assert not _accepts({"type": "string"}, '"\ud800"')
