"""Checks the header of a GGUF file before llama.cpp reads it.

llama.cpp refuses most damaged files, but for some of them an assertion aborts the whole process: a
worker would die from the file, and again after every restart. The conditions of those assertions
are checked here, where a failure is an error.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

MAGIC = b"GGUF"
MAX_LAYERS = 512
"""Limit of llama.cpp (LLAMA_MAX_LAYERS)."""
MAX_KEYS = 65_536
"""Real files have a few dozen."""

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""The struct format character of each value type."""
_WHOLE_ROTATION = frozenset({"llama", "qwen2", "qwen3"})
"""Architectures that rotate heads as a whole."""

Value = int | float | bytes | list[bytes] | None
"""Value of a key; None for arrays of numbers, which are not used here."""


class DamagedHeader(ValueError):
    """What is wrong with the file, and where."""


def check_header(path: Path) -> None:
    """Raises DamagedHeader for a header that would crash llama.cpp, and OSError."""
    _check(read_header(path))


def read_header(path: Path) -> dict[bytes, Value]:
    """The keys and values of a file. Raises DamagedHeader and OSError."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise DamagedHeader("it is not a GGUF file (it does not begin with the letters GGUF)")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).keys()


class _Reader:
    """Reads the bytes once, and never past their end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(MAGIC)

    def keys(self) -> dict[bytes, Value]:
        """The keys and values of the file."""
        version = int(self._number("I"))
        if version not in (2, 3):
            raise DamagedHeader(f"its GGUF version is {version}, not 2 or 3")
        self._number("Q")  # number of tensors: llama.cpp checks those that it reads
        count = int(self._number("Q"))
        if count > MAX_KEYS:
            raise DamagedHeader(f"its header announces {count} keys")
        values: dict[bytes, Value] = {}
        for _ in range(count):
            key = self._string()
            values[key] = self._value(int(self._number("I")), key)
        return values

    def _value(self, kind: int, key: bytes) -> Value:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind != _ARRAY:
            raise DamagedHeader(f"the value of {_printable(key)} has the unknown type {kind}")
        inner, count = int(self._number("I")), int(self._number("Q"))
        if inner == _STRING:
            self._need(8 * count)  # before a list of that length is started
            return [self._string() for _ in range(count)]
        if inner not in _SCALARS:
            raise DamagedHeader(f"the values of {_printable(key)} have the unknown type {inner}")
        self._skip(struct.calcsize(f"<{_SCALARS[inner]}") * count)
        return None

    def _string(self) -> bytes:
        length = int(self._number("Q"))
        start = self._at
        self._skip(length)
        return self._data[start : self._at]

    def _number(self, letter: str) -> float:
        start = self._at
        self._skip(struct.calcsize(f"<{letter}"))
        return struct.unpack_from(f"<{letter}", self._data, start)[0]

    def _skip(self, size: int) -> None:
        self._need(size)
        self._at += size

    def _need(self, size: int) -> None:
        if size > len(self._data) - self._at:
            raise DamagedHeader(
                f"its header is damaged at byte {self._at}: {size} bytes should follow, but the "
                f"file has only {len(self._data) - self._at} more; copy or download it again"
            )


def _check(keys: dict[bytes, Value]) -> None:
    _check_tokens(keys.get(b"tokenizer.ggml.tokens"))
    architecture = keys.get(b"general.architecture")
    if not isinstance(architecture, bytes):
        raise DamagedHeader("its header has no general.architecture")

    def count(name: str) -> int | None:
        value = keys.get(architecture + b"." + name.encode())
        return value if isinstance(value, int) else None

    layers = count("block_count")
    if layers is not None and not 1 <= layers <= MAX_LAYERS:
        raise DamagedHeader(f"its header announces {layers} layers, not 1 to {MAX_LAYERS}")
    width, heads = count("embedding_length"), count("attention.head_count")
    rotated, head = count("rope.dimension_count"), count("attention.key_length")
    if head is None and width and heads:
        head = width // heads
    if architecture.decode(errors="replace") in _WHOLE_ROTATION and None not in (rotated, head):
        if rotated != head:
            raise DamagedHeader(
                f"its header contradicts itself: heads are {head} wide, but {rotated} are rotated"
            )
        if head != (value_length := count("attention.value_length") or head):
            raise DamagedHeader(
                f"its header contradicts itself: keys are {head} wide, but values {value_length}"
            )
    if architecture == b"qwen2" and head and heads and width != heads * head:
        raise DamagedHeader(
            f"its header contradicts itself: {heads} heads of {head} are not {width} wide"
        )


def _check_tokens(tokens: Value) -> None:
    if not isinstance(tokens, list):
        return  # an adapter has none; llama.cpp refuses a model without tokens
    unique_tokens: set[bytes] = set()
    for place, token in enumerate(tokens):
        if token and token in unique_tokens:
            raise DamagedHeader(
                f"its token {place} ({_printable(token)}) is in the vocabulary twice"
            )
        unique_tokens.add(token)


def _printable(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace"))
