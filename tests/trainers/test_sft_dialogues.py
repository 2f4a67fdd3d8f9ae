"""`train sft MODEL --data`: a model learns from a file of dialogues, here or on the Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from loopline.trainers.cli import app
from loopline.trainers.core.network import load_base
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.glpft.report import read_report
from loopline.trainers.sft.dialogue_files import NO_TURN, dialogue_of, read_rows
from tests.trainers.grpo.tiny_grpo import write_base
from tests.trainers.local_hub import local_hub

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("sft") / "base")


def command(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["sft", *map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 1, str(ended.exception)
    return ended.exit_code, ended.output


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_row_format_is_read_as_a_conversation() -> None:
    user, answer = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}
    for row in (
        {"messages": [user, answer]},
        {"prompt": "Hi", "completion": "Ho"},
        {"prompt": [user], "completion": [answer]},
        {"question": "Hi", "answer": "Ho", "level": 3},
    ):
        dialogue = dialogue_of(row)
        assert [(m.role, m.content) for m in dialogue.opening] == [("user", "Hi")]
        assert [(m.role, m.content) for m in dialogue.turns] == [("assistant", "Ho")]


def test_tools_and_calls_may_be_json_strings_as_in_parquet_columns() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": json.dumps([CALL]), "name": None}
    answer = {"role": "tool", "content": "3", "tool_call_id": "c", "tool_calls": None}
    messages = [{"role": "user", "content": "1 + 2?"}, call, answer]
    messages.append({"role": "assistant", "content": "3"})
    dialogue = dialogue_of({"messages": messages, "tools": json.dumps([TOOL])})
    assert [tool.name for tool in dialogue.tools] == ["add"]
    assert dialogue.turns[0].tool_calls[0].arguments == {"a": 1, "b": 2}
    assert [message.role for message in dialogue.turns] == ["assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "Hi"}, "a row has `messages`, or"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, NO_TURN),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "role"),
        ({"messages": ["Hi"]}, "a message is an object"),
        ({"prompt": 3, "completion": "Ho"}, "prompt: a list of messages"),
        ({"prompt": "Hi", "completion": "Ho", "tools": "add"}, "not JSON"),
        ([], "a row has `messages`, or"),
    ],
)
def test_a_row_that_is_not_a_dialogue_is_skipped_with_the_reason(row: object, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        dialogue_of(row)


def test_only_assistant_turns_are_learned_as_the_template_renders_them(
    base: Path, tmp_path: Path
) -> None:
    model = load_base(str(base))
    rows = [
        {"messages": [
            {"role": "system", "content": "Be short."}, {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "2"}, {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "content": "4"},
        ]},
        {"messages": "none"},
        {"question": "1 + 1?", "answer": "x " * 100_000},
    ]  # fmt: skip
    reading = read_rows(written(tmp_path / "a.jsonl", *rows), model)
    [recorded] = reading.records
    ids = [*recorded.row.ids]
    learned = [
        number for number, is_learned in zip(ids, recorded.row.learned, strict=True) if is_learned
    ]
    assert [part.strip() for part in model.codec.decode(learned).split("<|im_end|>")] == [
        "2",
        "4",
        "",
    ]
    assert model.codec.decode(ids).count("1 + 1?") == 1
    assert [entry.where for entry in reading.skipped] == ["a.jsonl:2", "a.jsonl:3"]


def test_a_model_learns_from_a_data_set_on_the_hub(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"prompt": f"What is {n} + 1?", "completion": str(n + 1)} for n in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "chat.parquet")
    out = tmp_path / "out"
    arguments = (
        base, "--output", out, "--data", "hf://acme/sums/chat.parquet", "--weights", "full",
        "--schedules", "micro", "--tokens", 4_000, "--batch", 4, "--validation", 0,
    )  # fmt: skip
    files = {"chat.parquet": (tmp_path / "chat.parquet").read_bytes()}
    with local_hub(files, tmp_path / "cache", monkeypatch):
        code, output = command(*arguments)
    assert code == 0, output
    assert "4 dialogues to learn from" in output
    report = read_report(out)
    assert report is not None
    [stage] = report.stages
    assert stage.rows == 4
    assert stage.losses[-1] < stage.losses[0]
    (out / "report.json").unlink()
    code, again = command(*arguments)
    assert code == 0, f"it goes on with the rows that it began with, without the Hub: {again}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "rows.jsonl", "--from-store", "store"), "name different rows: give one"),
        (("--data", "rows.jsonl", "--steps", 5), "--steps only applies with a recipe, not with"),
        (("--data", "rows.jsonl", "--agent", "a"), "--agent only applies with --from-store"),
        (("--data", "rows.jsonl", "--publish"), "set one with --policy"),
        (("--data", "nothing.jsonl"), "no row of nothing.jsonl can be learned from"),
        (("--rank", 4), "--rank only applies with --from-store or --data"),
    ],
)
def test_an_untrainable_data_set_is_reported_and_nothing_is_written(
    base: Path, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    out = tmp_path / "out"
    code, answer = command(base, "--output", out, *arguments)
    assert code != 0
    assert message in " ".join(answer.split())
    assert not out.exists()
