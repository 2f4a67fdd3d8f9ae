"""Workers' log files: bounded, whole lines, followed across rotations."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.runtime.observe.log_files import (
    LOG_BYTES,
    MAX_LINE_BYTES,
    Follower,
    RotatingLog,
    pump,
    rotate,
    rotate_output,
    tail,
)


def test_a_log_is_rotated_at_its_limit_and_old_files_are_deleted(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "slm-1.log", limit=100, files=3)
    for number in range(100):
        log.write(b"line %03d padded\n" % number)
    log.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[-2:] == ["slm-1.log.1", "slm-1.log.2"]
    assert all(path.stat().st_size <= 120 for path in tmp_path.iterdir())


def test_a_large_log_is_rotated_before_its_process_restarts(
    tmp_path: Path,
) -> None:
    log = tmp_path / "supervisor.log"
    rotate(log)  # no log exists yet
    for size, file_names in (
        (LOG_BYTES, ["supervisor.log"]),
        (LOG_BYTES + 1, ["supervisor.log", "supervisor.log.1"]),
    ):
        log.write_bytes(b"x" * size)
        rotate(log)
        assert sorted(path.name for path in tmp_path.iterdir()) == file_names


WRITING = """
import json, sys, threading
from pathlib import Path
from loopline.runtime.observe.log_files import rotate_output

rotations = 0
written = []

def write(name):
    number = 0
    while rotations < 5:
        written.append(f"{name} {number}")
        sys.stderr.write(f"{name} {number}\\n")
        number += 1

threads = [threading.Thread(target=write, args=[name]) for name in "ab"]
for thread in threads:
    thread.start()
while rotations < 5:
    rotations += rotate_output(Path(sys.argv[1]), 2000, 100)
for thread in threads:
    thread.join()
json.dump(written, sys.stdout)
"""


def test_a_process_rotates_its_own_output_while_it_writes_and_loses_no_line(
    tmp_path: Path,
) -> None:
    log = tmp_path / "supervisor.log"
    with log.open("ab") as output:
        process = subprocess.run(
            [sys.executable, "-c", WRITING, str(log)],
            stdout=subprocess.PIPE,
            stderr=output,
            check=True,
        )
    files = list(tmp_path.iterdir())
    assert len(files) == 6
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(json.loads(process.stdout))


def test_a_log_that_is_not_the_output_of_the_process_is_not_rotated(tmp_path: Path) -> None:
    log = tmp_path / "supervisor.log"
    assert not rotate_output(log, 10, 3)
    log.write_bytes(b"x" * 100)
    assert not rotate_output(log, 10, 3)
    assert log.stat().st_size == 100


def test_a_follower_misses_no_line_when_the_log_is_rotated(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "x.log", limit=64, files=5)
    follower = Follower(log.path)
    lines: list[str] = []
    for number in range(40):
        log.write(b"line %d\n" % number)
        lines += list(follower.lines())
    lines += list(follower.lines())
    log.close()
    follower.close()
    assert lines == [f"line {number}" for number in range(40)]


async def test_output_is_copied_line_by_line_and_overlong_lines_are_truncated(
    tmp_path: Path,
) -> None:
    reader = asyncio.StreamReader(limit=1 << 24)
    reader.feed_data(b"first\nsecond")
    reader.feed_data(b" half\n" + b"x" * (3 * MAX_LINE_BYTES) + b"\nlast")
    reader.feed_eof()
    log = RotatingLog(tmp_path / "x.log", limit=1 << 24, files=1)
    await pump(reader, log)
    log.close()
    lines = log.path.read_bytes().split(b"\n")
    assert lines[:2] == [b"first", b"second half"]
    assert all(len(line) <= MAX_LINE_BYTES for line in lines)
    assert lines[-2] == b"last"


def test_a_full_disk_drops_lines_and_the_log_reports_how_many(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    log = RotatingLog(full, limit=1000, files=2)
    log.write(b"lost\n")
    log.write(b"lost too\n")
    assert log.last_lines[-1] == "lost too"
    log.path = tmp_path / "x.log"
    log.write(b"kept\n")
    log.close()
    assert log.path.read_text() == "(2 lines lost: the disk was full)\nkept\n"


@given(
    st.lists(st.text(alphabet="abc é\u2028\u2029\x85\x0b\x1c", max_size=40), max_size=60),
    st.integers(0, 70),
)
def test_the_tail_contains_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], wanted: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "x.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert tail(path, wanted) == (lines[-wanted:] if wanted else [])
