"""JSON Lines from outside: limits, truncation, and the reports about them."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from loopline.trainers.data.json_files import (
    Limits,
    Reading,
    Unreadable,
    parse,
    read_document,
    read_lines,
)


def values(path: Path, limits: Limits) -> Reading[Any]:
    """The lines unchanged."""
    return read_lines(path, lambda _, value: value, limits)


def test_only_the_line_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    """However long it is, and at the end of the file, too."""
    path = tmp_path / "a.jsonl"
    long = json.dumps("x" * 300_000)
    path.write_text(f'"12345678"\n{long}\n\n2\n{long}')
    read = values(path, Limits(line_bytes=10))
    assert read.records == ("12345678", 2)
    assert [(skip.where, skip.reason, skip.detail) for skip in read.skipped] == [
        ("a.jsonl:2", "a line is too long", "more than 10 bytes"),
        ("a.jsonl:5", "a line is too long", "more than 10 bytes"),
    ]


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
def test_a_file_is_read_up_to_its_size_limit(tmp_path: Path, suffix: str) -> None:
    """The limit applies to the decompressed size; an endless line ends there, too."""
    content = b"1\n2\n" + b" " * 1_000_000
    packed = {"": content, ".xz": lzma.compress(content), ".gz": gzip.compress(content)}
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(packed[suffix])
    read = values(path, Limits(file_bytes=100_000, line_bytes=10))
    assert read.records == (1, 2)
    assert [(skip.where, skip.reason) for skip in read.skipped] == [
        (f"{path.name}:3", "the file is too large")
    ]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "-1e999", "[1.5, 2e400]"])
def test_a_non_finite_number_is_refused(number: str) -> None:
    """Some JSON writers turn infinity into null."""
    with pytest.raises(Unreadable, match="not JSON"):
        parse(number)


def test_a_truncated_archive_yields_its_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.xz"
    path.write_bytes(lzma.compress(b"1\n2\n3")[:-12])
    read = values(path, Limits())
    assert read.records == (1, 2)
    assert [(skip.where, skip.reason) for skip in read.skipped] == [
        ("a.jsonl.xz:3", "the file cannot be decompressed")
    ]


def test_a_damaged_archive_is_reported_when_read_as_lines_or_as_a_document(tmp_path: Path) -> None:
    """Damaged in the middle, where the decompressor itself fails."""
    packed = bytearray(gzip.compress(bytes(range(256)) * 100))
    packed[14:30] = b"\xff" * 16
    path = tmp_path / "a.json.gz"
    path.write_bytes(packed)
    assert values(path, Limits()).skipped[-1].reason == "the file cannot be decompressed"
    with pytest.raises(ValueError, match="the file cannot be decompressed"):
        read_document(path)
