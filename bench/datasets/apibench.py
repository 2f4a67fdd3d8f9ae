"""APIBench (ShishirPatil/gorilla, Apache-2.0): which API of a model hub serves this instruction?

JSON lines: questions for three hubs, and each hub's database of APIs. A question's text contains
the instruction, after `###Instruction:` or as a key in a dictionary-like text, and a worked output.
The reference call and its API are separate fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from loopline.bench.datasets.location import data_root, find
from loopline.bench.errors import UsageError
from loopline.trainers.data.json_files import Reading, Unreadable, fit, read_lines

Hub = Literal["huggingface", "tensorflow", "torchhub"]
HUBS: tuple[Hub, ...] = ("huggingface", "tensorflow", "torchhub")
SPLITS = ("eval", "train")
DATABASES: dict[Hub, str] = {
    "huggingface": "huggingface_api.jsonl",
    "tensorflow": "tensorflowhub_api.jsonl",
    "torchhub": "torchhub_api.jsonl",
}
SOURCE = "https://github.com/ShishirPatil/gorilla (folders data/apibench and data/api)"
_QUESTIONS = ("tool/gorilla/apibench", "gorilla/apibench", "data/apibench", "apibench", "")
_APIS = ("tool/gorilla/api", "gorilla/api", "data/api", "api", "")
MAX_TEXT = 100_000

_MARKED = re.compile(r"###\s?Instruction:(.*?)(?:###\s?Output:|\Z)", re.DOTALL)
_KEYED = re.compile(r"""['"]Instruction['"]:(.*?),\s*['"]Output['"]:""", re.DOTALL)


class Api(BaseModel):
    """An entry of a hub's database."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    domain: str = Field(min_length=1, max_length=500)
    api_name: str = Field(max_length=2_000)
    api_call: str = Field(min_length=1, max_length=MAX_TEXT)
    description: str | None = Field(default=None, max_length=MAX_TEXT)


@dataclass(frozen=True)
class Question:
    """An instruction with its reference."""

    id: str
    """Hub, split and place in the file from 0: `huggingface/eval/17`."""
    hub: Hub
    instruction: str
    reference: str
    """Published call."""
    domain: str
    """Domain that the chosen API must have."""
    text: str
    """Whole published text: instruction and worked output."""


class _Row(BaseModel):
    code: str = Field(min_length=1, max_length=MAX_TEXT)
    api_call: str = Field(min_length=1, max_length=MAX_TEXT)
    api_data: Api


def load(hub: str, data: Path | None = None, split: str = "eval") -> Reading[Question]:
    """Find and read a hub's questions. Raises DataError for a missing file, UsageError for an
    unknown hub or split.
    """
    api_hub = hub_of(hub)
    if split not in SPLITS:
        raise UsageError(f"APIBench has no split {split!r}; it has {' and '.join(SPLITS)}")
    root = data_root("APIBench", data, SOURCE)
    return read(find(root, _QUESTIONS, file_of(api_hub, split), SOURCE), api_hub, split)


def file_of(hub: Hub, split: str) -> str:
    """Return the name of a hub's published file of questions."""
    return f"{hub}_{split}.json"


def read(path: Path, hub: Hub, split: str) -> Reading[Question]:
    """Read a file's questions in order, and note unreadable ones."""

    def question(number: int, value: Any) -> Question:
        row = fit(_Row, value)
        return Question(
            id=f"{hub}/{split}/{number - 1}",
            hub=hub,
            instruction=_instruction(row.code),
            reference=row.api_call,
            domain=row.api_data.domain,
            text=row.code,
        )

    return read_lines(path, question)


def load_apis(hub: str, data: Path | None = None) -> Reading[Api]:
    """Find and read a hub's database. Raises DataError, UsageError."""
    root = data_root("APIBench", data, SOURCE)
    return read_apis(find(root, _APIS, DATABASES[hub_of(hub)], SOURCE))


def read_apis(path: Path) -> Reading[Api]:
    """Read a file's APIs in order, and note unreadable ones."""
    return read_lines(path, lambda _, value: fit(Api, value))


def hub_of(name: str) -> Hub:
    """Return the hub with this name. Raises UsageError."""
    if name not in HUBS:
        raise UsageError(f"APIBench has no hub {name!r}; it has {', '.join(HUBS)}")
    return name


def _instruction(text: str) -> str:
    match = _MARKED.search(text) or _KEYED.search(text)
    instruction = match[1].strip() if match is not None else ""
    if not instruction:
        raise Unreadable("no instruction", text[:60])
    quoted = len(instruction) > 1 and instruction[0] == instruction[-1] and instruction[0] in "'\""
    return instruction[1:-1] if quoted else instruction
