"""What looks like a secret is hidden in any text, however long the text and anyone who wrote it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.runtime.config import secrets
from loopline.runtime.config.secrets import Redactor

HIDDEN = {
    "train --token=hunter2abc x": "train --token=*** x",
    "--api-key hunter22 --next": "--api-key *** --next",
    "http://h/v1?api_key=abc123&x=1": "http://h/v1?api_key=***&x=1",
    "http://h/v1?x=1&key=abc123#top": "http://h/v1?x=1&key=***#top",
    "OPENAI_API_KEY=short": "OPENAI_API_KEY=***",
    "{'api_key': 'abcdef'}": "{'api_key': '***'}",
    r'"{\"token\": \"abc\"}"': r'"{\"token\": \"***\"}"',
    "Authorization: Basic dXNlcg==": "Authorization: Basic ***",
    "x-api-key: abc": "x-api-key: ***",
    "finish_reason 'sk-abcdef1234567890'": "finish_reason '***'",
    "redis://u:p@h/0": "redis://u:***@h/0",
    "eyJhbGciOiJI.eyJzdWIiOiIx.abcdefghij": "***",
    "AKIAABCDEFGHIJKLMNOP": "***",
}
SHOWN = [
    "max_tokens=256 tokens=3 prompt_tokens: 5",
    "api_key_env=OPENAI_API_KEY",
    "control token: <s>",
    "token 5 of 10",
    "http://h/v1?tokens=5",
]


@pytest.mark.parametrize(("text", "safe_text"), HIDDEN.items())
def test_a_secret_is_hidden_by_its_name_or_its_look(text: str, safe_text: str) -> None:
    assert Redactor().text(text) == safe_text


@pytest.mark.parametrize("text", SHOWN)
def test_what_only_resembles_a_secret_stays_readable(text: str) -> None:
    assert Redactor().text(text) == text


HOSTILE = ["a.", "a-", "a_", "a://b:", "sk-", "eyJ-", "eyJaaaaaaaaa.", "token=", "token-",
           "--token ", "authorization: ", 'token":', "a" * 31 + "_", "x-", " ",
           "bearer "]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_the_time_that_a_text_takes_grows_with_its_length_and_no_faster(unit: str) -> None:
    """Twelve times the text: twelve times the work, where it would be 144 times."""

    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        durations: list[float] = []
        for _ in range(3):
            began = time.process_time()
            Redactor().text(text)
            durations.append(time.process_time() - began)
        return min(durations)

    assert seconds(60_000) < 40 * max(seconds(5_000), 1e-4)


_PIECES = st.one_of(
    st.sampled_from([*HIDDEN, *SHOWN, "sk-", "_", "-", "AKIA", "AIza", "eyJ", ".", " ", ":", "="]),
    st.text("abcXYZ019-_.=:/@\"' \n", max_size=20),
    st.text(max_size=5),
)


@given(st.lists(_PIECES, max_size=6).map("".join))
def test_a_text_that_is_not_searched_has_nothing_to_hide(text: str) -> None:
    expected = text
    for pattern, hidden in secrets._IN_TEXT:  # pyright: ignore[reportPrivateUsage]
        expected = pattern.sub(hidden, expected)
    assert Redactor().text(text) == expected
