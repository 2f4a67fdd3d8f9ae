"""Data sets of the Hub by name, which huggingface_hub itself fetches from a server on this
machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopline.bench.datasets import Request
from loopline.bench.errors import DataError
from loopline.bench.registry import find
from loopline.trainers.data import hub
from loopline.trainers.data.hub import HubFile, fetch
from loopline.trainers.errors import UnreadableData
from tests.trainers.local_hub import Hub, local_hub

constants: Any = pytest.importorskip("huggingface_hub.constants", reason="needs the extra torch")

LINES = "".join(
    json.dumps({"id": f"q{n}", "question": f"{n} + {n}?", "answer": 2 * n}) + "\n" for n in range(3)
).encode()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    table = pa.table({"question": ["1 + 1?", "2 + 2?"], "answer": ["2", "4"], "level": [1, 2]})
    pq.write_table(table, tmp_path / "rows.parquet")
    files = {
        "README.md": b"# Sums",
        "data/test.jsonl": LINES,
        "data/test.parquet": (tmp_path / "rows.parquet").read_bytes(),
    }
    with local_hub(files, tmp_path / "cache", monkeypatch) as server:
        yield server


def test_a_file_of_questions_on_the_hub_is_a_benchmark(server: Hub) -> None:
    benchmark = find("hf://acme/sums/data/test.jsonl")
    dataset = benchmark.load(Request())
    assert [(item.id, item.gold) for item in dataset.items] == [
        ("q0", "0"),
        ("q1", "2"),
        ("q2", "4"),
    ]
    assert benchmark.origin is not None


def test_parquet_rows_without_ids_are_numbered(server: Hub) -> None:
    dataset = find("hf://acme/sums/data/test.parquet").load(Request())
    assert [(item.id, item.question, item.gold, item.about) for item in dataset.items] == [
        ("0", "1 + 1?", "2", {"level": 1}),
        ("1", "2 + 2?", "4", {"level": 2}),
    ]


def test_a_fetched_file_is_read_without_a_network(server: Hub) -> None:
    path = fetch("hf://acme/sums/data/test.jsonl", [".jsonl"])
    server.server.shutdown()
    server.server.server_close()
    assert fetch("hf://acme/sums/data/test.jsonl", [".jsonl"]) == path
    assert path.read_bytes() == LINES


@pytest.mark.slow
def test_without_a_network_the_error_says_what_to_do(server: Hub) -> None:
    server.server.shutdown()
    server.server.server_close()
    with pytest.raises(DataError, match=r"not in the cache .* can't be reached .*`hf download"):
        find("hf://acme/sums/data/test.jsonl")


def test_offline_mode_makes_no_requests(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UnreadableData, match="HF_HUB_OFFLINE set"):
        fetch("hf://acme/sums/data/test.jsonl", [".jsonl"])
    assert server.asked == []


def test_a_data_set_with_one_readable_file_needs_no_path(server: Hub) -> None:
    assert fetch("hf://acme/sums", [".jsonl"]).read_bytes() == LINES


def test_a_data_set_with_several_files_requires_a_path(server: Hub) -> None:
    with pytest.raises(DataError, match=r"has 2 files; .*hf://acme/sums/data/test\.jsonl, hf://"):
        find("hf://acme/sums")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("hf://acme/other/data/test.jsonl", "the Hub has no such data set, or it is private"),
        ("hf://acme/sums/data/none.jsonl", "the data set has no such file"),
        ("hf://acme/sums/README.md", "unsupported file type"),
        ("hf://acme", "not the name of a data set; write hf://OWNER/NAME/FILE"),
        ("hf://acme/sums/../../etc/passwd.jsonl", "not the name of a data set"),
        ("hf://acme/sums@/a.jsonl", "not the name of a data set"),
    ],
)
def test_a_missing_file_is_reported(target: str, message: str, server: Hub) -> None:
    with pytest.raises(UnreadableData, match=message):
        fetch(target, [".jsonl"])


def test_a_gated_data_set_is_reported_as_restricted_by_its_owner(server: Hub) -> None:
    server.refusal = 403, "GatedRepo"
    with pytest.raises(UnreadableData, match="its owner restricts access"):
        fetch("hf://acme/sums/data/test.jsonl", [".jsonl"])


def test_a_huge_file_is_not_fetched(server: Hub) -> None:
    server.size = hub.MAX_FILE_BYTES + 1
    with pytest.raises(UnreadableData, match="exceed the limit of 8,589,934,592"):
        fetch("hf://acme/sums/data/test.jsonl", [".jsonl"])
    assert not any(line.startswith("GET /datasets") for line in server.asked)


def test_a_revision_is_part_of_the_name() -> None:
    file = HubFile.parse("hf://acme/sums@v1.0/data/test.jsonl")
    assert (file.repository, file.revision, file.path) == ("acme/sums", "v1.0", "data/test.jsonl")
    assert str(file) == "hf://acme/sums@v1.0/data/test.jsonl"
