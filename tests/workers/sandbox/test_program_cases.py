"""Programs from public reports with their correct verdicts, and the environment of a program."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loopline.agents.environments.code import CodeProblem
from loopline.bench.datasets import apps, humaneval
from loopline.workers.sandbox import Ending, Limits, Sandbox, SandboxSettings
from loopline.workers.sandbox.judge import Judge
from loopline.workers.sandbox.limits import MIB
from tests.workers.sandbox.conftest import needs_bubblewrap

FOLDER = Path(__file__).parent / "cases"
CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (FOLDER / "programs.jsonl").read_text().splitlines()
]
WITHOUT = {"sortedcontainers", "Optional"}
"""Names that programs lack: they get only the standard library, and of its names those that APPS'
own judge imports. Both choices are debatable."""
SLOW = {"sleeps for two seconds", "sleeps for ever", "endless output", "opens a connection"}

pytestmark = [needs_bubblewrap, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CodeProblem]:
    folder = tmp_path_factory.mktemp("problems")
    (folder / "test.jsonl").write_bytes((FOLDER / "problems_apps.jsonl").read_bytes())
    (folder / "HumanEval.jsonl").write_bytes((FOLDER / "problems_humaneval.jsonl").read_bytes())
    records = (*apps.load("test", folder).records, *humaneval.load(folder).records)
    return {problem.id.replace("apps/test/", "apps_test/"): problem for problem in records}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[Judge]:
    limits = Limits(cpu_seconds=3, wall_seconds=20)
    async with Sandbox(settings=SandboxSettings(parallel=2, ready=2, limits=limits)) as sandbox:
        yield Judge(sandbox)


@pytest.mark.parametrize(
    "case",
    [pytest.param(record, id=record["id"]) for record in CASES if record["name"] not in SLOW],
)
async def test_a_program_from_a_public_report_gets_the_right_verdict(
    judge: Judge, problems: dict[str, CodeProblem], case: dict[str, Any]
) -> None:
    verdict = await judge.judge(problems[case["problem"]], case["program"])
    right = case["right"] and case["name"] not in WITHOUT
    assert verdict.solved is right, [outcome.why for outcome in verdict.outcomes]


READ = "n, *xs = map(int, {}.split())\nprint(n + sum(xs))"


@pytest.mark.parametrize(
    "reading",
    [
        "import os\n" + READ.format("os.read(0, os.fstat(0).st_size)"),
        READ.format("open('/dev/stdin').read()"),
        READ.format("open(0).read()"),
        "import os\n" + READ.format("os.read(os.open('/dev/stdin', os.O_RDONLY), 10**6)"),
        "import mmap\n" + READ.format("mmap.mmap(0, 0, access=mmap.ACCESS_READ).read()"),
        "import sys\nsys.stdin.seek(0, 2)\nassert sys.stdin.tell() == 6\nsys.stdin.seek(0)\n"
        + READ.format("sys.stdin.read()"),
        "import os\nwith os.fdopen(os.dup(0)) as file:\n    text = file.read()\n"
        + READ.format("text"),
        "import sys\n" + READ.format("sys.stdin.buffer.raw.readall()"),
    ],
)
async def test_standard_input_is_a_file(identity: str, reading: str) -> None:
    """It has a size, a position, and a name under which it can be reopened."""
    async with Sandbox(settings=SandboxSettings(parallel=1, ready=1)) as sandbox:
        result = await sandbox.run(reading, stdin="1 2\n34")
    assert (result.stdout, result.stderr) == ("37\n", "")


@pytest.mark.parametrize("how", ["os.write(0, b'x' * 100)", "os.ftruncate(0, 2**20)"])
async def test_standard_input_cannot_be_written(identity: str, how: str) -> None:
    """Its memory is outside every limit of the program."""
    limits = Limits(disk_bytes=4 * MIB)
    async with Sandbox(settings=SandboxSettings(parallel=1, ready=1, limits=limits)) as sandbox:
        result = await sandbox.run(f"import os\n{how}", stdin="1")
    assert result.ending is Ending.ERROR
    assert "PermissionError" in result.stderr


async def test_a_thread_may_ask_for_a_stack_as_large_as_its_memory() -> None:
    """Many contest programs ask for 512 MiB and recurse 20,000 calls deep."""
    program = (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**29)\n"
        "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(int(input()))))\nt.start()\nt.join()"
    )
    async with Sandbox(settings=SandboxSettings(parallel=1, ready=1)) as sandbox:
        result = await sandbox.run(program, stdin="20000")
    assert (result.stdout, result.stderr) == ("20000\n", "")


async def test_a_program_can_import_only_the_standard_library() -> None:
    """This is true even if the machine adds package folders to its path."""
    program = (
        "import glob, sys\n"
        "for root in ('/usr', '/usr/local', sys.base_prefix):\n"
        "    for kind in ('site', 'dist'):\n"
        "        sys.path += glob.glob(f'{root}/lib/python3*/{kind}-packages')\n"
        "import os\nprint(sum(len(os.listdir(each)) for each in sys.path if 'packages' in each))\n"
        "try:\n    import numpy\nexcept ImportError:\n    print('no numpy')"
    )
    async with Sandbox(settings=SandboxSettings(parallel=1, ready=1)) as sandbox:
        result = await sandbox.run(program)
    assert (result.stdout, result.stderr) == ("0\nno numpy\n", "")
