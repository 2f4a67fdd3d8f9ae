"""A process's memory of earlier work is bounded, and forgetting does no harm."""

from __future__ import annotations

import hashlib
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bus import Bus, ContentWriter, contents, read_content
from loopline.bus.bounded import Remembered
from loopline.workers.engines.openai.habits import MAX_NOTICES, Notices


@given(
    st.integers(min_value=1, max_value=5),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=60),
)
def test_only_the_newest_entries_are_remembered(most: int, entries: list[tuple[int, int]]) -> None:
    remembered = Remembered[int, int](most)
    for key, value in entries:
        remembered.set(key, value)

    newest: dict[int, int] = {}
    for key, value in reversed(entries):
        if len(newest) < most:
            newest.setdefault(key, value)
    assert {key: remembered.get(key) for key in range(10) if key in remembered} == newest
    assert len(remembered) == len(newest)


def test_a_forgotten_key_is_absent() -> None:
    remembered = Remembered[str, int](2)
    remembered.set("a", 1)
    remembered.forget("a")
    remembered.forget("never there")
    assert "a" not in remembered
    assert remembered.get("a") is None


def test_a_memory_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Remembered[str, int](0)


async def test_a_forgotten_text_can_be_written_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MAX_REMEMBERED", 3)
    writer = ContentWriter()
    texts = {hashlib.sha256(text.encode()).hexdigest(): text for text in "abcdef"}
    await writer.write(bus, texts)

    missing = [texts[digest] for digest in texts if writer.missing({"prompt": digest})]
    assert missing == ["a", "b", "c"]
    await writer.write(bus, texts)
    assert [await read_content(bus, digest) for digest in texts] == list("abcdef")


def test_notices_about_an_endpoint_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notices = Notices("m at example.org", logging.getLogger("notices"))
    for number in (*range(MAX_NOTICES + 10), MAX_NOTICES + 9):
        notices.log_once(f"ends by {number}")
    assert len(caplog.messages) == MAX_NOTICES + 10
