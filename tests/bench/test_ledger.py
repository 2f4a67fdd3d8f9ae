"""The append-only files: the possible effects of a crash, and the damage that must not go
unnoticed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline.agents.records import Latency, PolicyRef, Usage
from loopline.agents.usage import UnknownUsage, UsageEntry
from loopline.bench.append_log import AppendLog, read_log, torn_notice
from loopline.bench.errors import OutputError
from loopline.bench.ledger import Ledger, Sum, read_ledger, sum_of, total


def entry(number: int, *, discarded: bool = False, tokens: int = 10) -> UsageEntry:
    return UsageEntry(
        run_id="0" * 36,
        call_id=f"call-{number}",
        agent="solo",
        turn=0,
        policy=PolicyRef(name="llm", base="scripted"),
        usage=Usage(prompt=tokens, cached=tokens // 2, completion=3, reasoning=1, source="engine"),
        cost_micro_dollars=tokens * 5,
        latency=Latency(),
        discarded=discarded,
        at=1.0,
    )


def test_the_total_of_the_entries_includes_discarded_calls(tmp_path: Path) -> None:
    """Discarded calls included."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add([entry(1), entry(2, discarded=True, tokens=20)])
    ledger.close()
    assert total(read_ledger(tmp_path / "ledger.jsonl")) == Sum(2, 30, 15, 6, 2, 150)


def test_fetching_a_runs_usage_twice_books_it_once(tmp_path: Path) -> None:
    """Even in another process: the entries in the file are known."""
    path = tmp_path / "ledger.jsonl"
    first = Ledger(path)
    assert len(first.add([entry(1), entry(2)])) == 2
    assert first.add([entry(1)]) == []
    first.close()
    second = Ledger(path)
    assert [e.call_id for e in second.add([entry(2), entry(3)])] == ["call-3"]
    second.close()
    assert len(read_ledger(path)) == 3


def test_a_call_billed_twice_keeps_both_entries(tmp_path: Path) -> None:
    """One was used; the other came too late."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert len(ledger.add([entry(1), entry(1, discarded=True)])) == 2
    ledger.close()


def unknown(number: int) -> UsageEntry:
    most = UnknownUsage(why="its worker died", prompt=100, completion=50, micro_dollars=700)
    return entry(number).model_copy(
        update={
            "usage": None, "cost_micro_dollars": None, "unknown": most, "discarded": True,
            "sent_as": f"worker/1/{number}-0/1",
        }
    )  # fmt: skip


def test_a_call_with_unknown_usage_is_counted_apart_with_its_maximum(tmp_path: Path) -> None:
    """It counts separately, and a budget assumes its maximum possible cost."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add([entry(1), unknown(2)])
    ledger.close()
    paid = total(read_ledger(tmp_path / "ledger.jsonl"))
    assert paid == Sum(1, 10, 5, 3, 1, 50, unknown=1, unknown_micro_dollars=700)
    assert paid.most_micro_dollars == 750


def test_a_call_whose_usage_arrives_late_counts_once() -> None:
    late = entry(2).model_copy(update={"sent_as": unknown(2).sent_as, "discarded": True})
    assert total([unknown(2), late]) == total([late]) == sum_of(late)
    assert total([unknown(3), late]).unknown == 1


def test_an_entry_without_usage_states_what_is_unknown() -> None:
    with pytest.raises(ValidationError, match="says that they are unknown"):
        UsageEntry.model_validate({**entry(1).model_dump(), "usage": None})


@given(st.lists(st.integers(0, 1000), max_size=30))
def test_sums_do_not_depend_on_the_order(tokens: list[int]) -> None:
    """Addition ignores the order and has a neutral element."""
    entries = [entry(at, tokens=value) for at, value in enumerate(tokens)]
    assert total(entries) == total(reversed(entries))
    assert total(entries).prompt == sum(tokens)
    assert total(entries) + Sum() == total(entries)
    assert sum((sum_of(e).tokens for e in entries), 0) == total(entries).tokens


@given(cut=st.integers(1, 200))
def test_a_torn_last_line_is_dropped_with_a_notice_wherever_it_was_torn(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A crash cuts the last line; everything before it stays."""
    path = tmp_path_factory.mktemp("log") / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.add([entry(1), entry(2)])
    ledger.close()
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[: max(first + 1, len(whole) - cut)])
    assert torn_notice(path) is not None
    assert [e.call_id for e in read_ledger(path)] == ["call-1"]
    mended = Ledger(path)
    assert mended.notice is not None
    assert "torn" in mended.notice
    assert [e.call_id for e in mended.add([entry(1), entry(2)])] == ["call-2"]
    mended.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"{broken\n", b"[]\n", b'{"run_id": 1}\n', b"\xff\xfe\n"])
def test_a_damaged_inner_line_is_an_error_with_its_number(tmp_path: Path, damage: bytes) -> None:
    """A crash cannot cause that, so a person should check."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.add([entry(1), entry(2)])
    ledger.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + lines[1])
    with pytest.raises(OutputError, match="damaged") as caught:
        read_ledger(path)
    assert str(caught.value).startswith(f"{path}:2:")


def test_sigkill_during_a_write_leaves_complete_lines_and_at_most_one_torn(
    tmp_path: Path,
) -> None:
    """A real process, killed while it appends as fast as possible."""
    path = tmp_path / "log.jsonl"
    code = (
        "import sys\nfrom pathlib import Path\nfrom loopline.bench.append_log import AppendLog\n"
        "log = AppendLog(Path(sys.argv[1])).open()\nprint('ready', flush=True)\nn = 0\n"
        "while True:\n    log.append({'n': n, 'text': 'x' * 500})\n    n += 1\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    until = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < 50_000:
        assert time.monotonic() < until, "nothing is appended"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    numbers = [record["n"] for _, record in read_log(path)]
    assert numbers == list(range(len(numbers)))
    with AppendLog(path) as log:
        log.append({"n": "after"})
    assert [record["n"] for _, record in read_log(path)] == [*numbers, "after"]


def test_a_full_disk_is_one_clear_error() -> None:
    """/dev/full refuses every write."""
    log = AppendLog(Path("/dev/full"))
    log._descriptor = os.open("/dev/full", os.O_WRONLY)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(OutputError, match=r"No space left.*bench resume"):
        log.append({"a": 1})
    log.close()


def test_a_partial_line_from_a_full_disk_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with AppendLog(path) as log:
        log.append({"n": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
        try:
            with pytest.raises(OutputError, match="free some space"):
                log.append({"n": "x" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        log.append({"n": 2})
    assert [record["n"] for _, record in read_log(path)] == [1, 2]


def test_a_missing_ledger_reads_as_empty(tmp_path: Path) -> None:
    """A benchmark that was killed before its first call."""
    assert read_ledger(tmp_path / "ledger.jsonl") == []
    assert torn_notice(tmp_path / "ledger.jsonl") is None
