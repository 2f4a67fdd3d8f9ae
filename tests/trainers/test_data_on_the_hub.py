"""Trainings accept data from `hf://…`, as benchmarks do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopline.trainers.data.data_files import local_file
from loopline.trainers.data.questions import from_file
from loopline.trainers.distill.options import DistillOptions
from loopline.trainers.errors import UnreadableData
from loopline.trainers.grpo.loop.asked import questions_of
from loopline.trainers.grpo.loop.options import LoopOptions
from loopline.trainers.prompts.options import PromptsOptions
from loopline.trainers.router.command import router
from loopline.trainers.router.options import RouterOptions
from tests.trainers.local_hub import Hub, local_hub

QUESTIONS = [
    {"question": f"What is {n} + {n}?", "answer": f"Twice. #### {2 * n}"} for n in range(40)
]


def lines(rows: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    pq.write_table(pa.Table.from_pylist(QUESTIONS), tmp_path / "rows.parquet")
    files = {
        "main/train.parquet": (tmp_path / "rows.parquet").read_bytes(),
        "train.jsonl": lines(QUESTIONS),
        "test.txt": b"What is 1 + 1?\nWhat is 2 + 2?\n",
        "broken.jsonl": lines([{"query": "What is 3 + 3?"}]),
    }
    with local_hub(files, tmp_path / "cache", monkeypatch) as server:
        yield server


def test_a_loop_reads_questions_of_any_format_from_a_data_set_on_the_hub(
    hub: Hub, tmp_path: Path
) -> None:
    def options(target: str) -> LoopOptions:
        return LoopOptions(
            output=tmp_path / "out", base="micro:slm", workflow="solo", questions=target,
            look_every=1,
        )  # fmt: skip

    in_lines = questions_of(options("hf://acme/sums/train.jsonl"), None)
    in_parquet = questions_of(options("hf://acme/sums/main/train.parquet"), None)
    assert in_lines is not None
    assert in_parquet is not None
    assert in_lines.sha256 == in_parquet.sha256
    assert len(in_lines.train) + len(in_lines.held_out) == 40
    assert in_lines.train[0].gold == str(2 * int(in_lines.train[0].task.prompt.split()[2]))


def test_a_parquet_row_that_is_not_a_question_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"question": ["1 + 1?", "2 + 2?"], "answer": ["2", None]}), path)
    with pytest.raises(UnreadableData, match=r"rows\.parquet\[1\]: expected an object"):
        from_file(path, 10)
    path.write_bytes(b"no such thing")
    with pytest.raises(UnreadableData, match="not a Parquet file, or a damaged one"):
        from_file(path, 10)


@pytest.mark.parametrize(
    ("name", "count"), [("test.txt", 2), ("train.jsonl", 40), ("main/train.parquet", 40)]
)
def test_a_distillation_holds_out_the_questions_of_a_benchmark_on_the_hub(
    hub: Hub, tmp_path: Path, name: str, count: int
) -> None:
    options = DistillOptions(
        model="micro:slm", output=tmp_path / "out", from_store=tmp_path,
        hold_out=f"hf://acme/sums/{name}",
    )  # fmt: skip
    held_out = options.held_out()
    assert "what is 1 + 1?" in held_out.questions
    assert len(held_out.questions) == count


def test_an_unreadable_held_out_set_is_reported(hub: Hub, tmp_path: Path) -> None:
    options = DistillOptions(
        model="micro:slm", output=tmp_path / "out", from_store=tmp_path,
        hold_out="hf://acme/sums/broken.jsonl",
    )  # fmt: skip
    with pytest.raises(UnreadableData, match=r"broken\.jsonl:1: expected .* would learn from"):
        options.held_out()


def test_a_router_reads_its_labels_from_the_hub_and_reports_missing_fields(
    hub: Hub, tmp_path: Path
) -> None:
    options = RouterOptions(output=tmp_path / "router.json", data="hf://acme/sums/train.jsonl")
    with pytest.raises(Exception, match=r"train\.jsonl:1: not the expected fields"):
        router(options)


@pytest.mark.slow
def test_offline_the_error_says_what_to_do(hub: Hub) -> None:
    hub.server.shutdown()
    hub.server.server_close()
    options = PromptsOptions(workflow="solo", output=Path("out"), data="hf://acme/sums/train.jsonl")
    assert options.data is not None
    with pytest.raises(
        UnreadableData,
        match=r"hf://acme/sums/train\.jsonl: not in the cache .*`hf download --repo-type dataset "
        r"acme/sums train\.jsonl`",
    ):
        local_file(options.data)


def test_a_local_path_stays_unchanged(tmp_path: Path) -> None:
    options = PromptsOptions(workflow="solo", output=Path("out"), data=tmp_path / "a.jsonl")  # pyright: ignore[reportArgumentType]
    assert options.data == str(tmp_path / "a.jsonl")
    assert local_file(str(options.data)) == tmp_path / "a.jsonl"
