"""`bench code` and `bench math` as their user runs them: real workers on a real bus, real
sandboxes, models that play golden, wrong and hostile solutions."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
import redis

from loopline.agents.environments.code import CodeProblem, ProgramTest
from loopline.agents.environments.code.team import CodeInstance, CodeSetting
from loopline.agents.records import Outcome
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.judging.problems import ProblemFolder
from loopline.workers.sandbox import SandboxSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    JudgeWorkerSettings,
    RoleWorkerSettings,
    WorkerBase,
)
from tests.bench.bench_process import deployable, errors_of, killed_at, last_line
from tests.forked import Forked
from tests.workers.processes import spawn, workers_running
from tests.workers.sandbox.conftest import needs_bubblewrap
from tests.workers.test_worker_failures import until

# One deployment serves the tests that only query it.
pytestmark = [needs_bubblewrap, pytest.mark.asyncio(loop_scope="module")]

ROLES = ("coder", "tester", "reasoner", "tool_user")
HIDDEN = ("27182818284590", "81548454853770", "golden-secret")
"""Texts that only tests and golden programs contain: too long to occur in a time or hash by
chance."""
SECRET = "hush-4711"
"""A secret in the environment of the judge."""
PROGRAMS = {
    "f0": ("return 3 * n", "right"),
    "f1": ("return n + n + n", "right"),
    "f2": ("return 4 * n", "wrong_answer"),
    "f3": ("import os\n    while True: os.fork()", "refused"),
    "f4": ("import sys\n    while True: sys.stderr.write('x' * 65536)", "refused"),
    "f5": (
        "import os\n    seen = str(os.environ)\n"
        "    for path in ('/proc/self/environ', '/proc/1/environ', '/etc/passwd'):\n"
        "        try: seen += open(path).read()\n        except OSError: pass\n    return seen",
        "wrong_answer",
    ),
    "f6": ("raise SystemExit(0)", "crashed"),
    "f7": ("", "no_code"),
}
"""Function → its body as the scripted coder writes it, and the expected result."""
TRIPLED = "**Test Input:**\n```\n2\n```\n**Test Output:**\n```\n6\n```"
SUMS = {
    "the sum of 1 to 5": ("\\boxed{15}", "print(15)", "right"),
    "the sum of 1 to 6": ("\\boxed{22}", "print(sum(range(6)))", "wrong_answer"),
    "the sum of 1 to 7": ("I can't.", "print(sum(range(8)))", "right"),
    "the sum of 1 to 8": ("I can't.", "import os; os.fork()", "refused"),
}
"""Question → solution, program, and the expected result."""
SLOW = CodeProblem(
    id="t/slow", statement="Slowly three times n.", tests=(ProgramTest(stdin="2", stdout="6"),)
)


def problems(folder: Path) -> None:
    """Problems in the format of HumanEval, and in that of AIME 2025."""
    folder.mkdir()
    rows = [
        {
            "task_id": f"HumanEval/{at}",
            "prompt": f'def {name}(n):\n    """Three times n."""\n',
            "entry_point": name,
            "canonical_solution": "    return 3 * n  # golden-secret\n",
            "test": "def check(candidate):\n    assert candidate({}) == {}\n".format(*HIDDEN),
        }
        for at, name in enumerate(PROGRAMS)
    ]
    sums = [
        {"id": str(at), "question": f"What is {sum_text}?", "answer": str(sum(range(at + 6)))}
        for at, sum_text in enumerate(SUMS)
    ]
    for file, lines in (("HumanEval.jsonl", rows), ("aime2025_insight_replay.jsonl", sums)):
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines))


def scripted() -> ModelSettings:
    """An engine that knows its solutions by heart."""
    slow = "```python\nimport time\ntime.sleep(2)\nprint(3 * int(input()))\n```"
    answers: list[dict[str, object]] = [
        {"where": ["Three times n", "one new test"], "says": [TRIPLED]},
        {"where": [SLOW.statement], "says": [slow]},
    ]
    for name, (body, _) in PROGRAMS.items():
        program = f"```python\ndef {name}(n):\n    {body}\n```" if body else "I give up."
        answers.append({"where": [f"defines `{name}`"], "says": [program]})
    for sum_text, (solution, program, _) in SUMS.items():
        answers.append({"where": [sum_text, "Reason step by step, and put"], "says": [solution]})
        answers.append({"where": [sum_text], "says": [f"```python\n{program}\n```"]})
    return ModelSettings.model_validate(
        {
            "engine": "scripted",
            "model": "scripted-pair",
            "base_until_published": ROLES,
            "scripted": {"answers": answers},
        }
    )


def a_judge(bus: BusSettings, folder: Path, name: str = "judge") -> JudgeWorkerSettings:
    few = SandboxSettings(parallel=2, ready=2)
    return JudgeWorkerSettings(bus=bus, name=name, problems=folder, sandbox=few)


@dataclass
class Deployment:
    """Workers on a separate server, and the settings of the command line to find them."""

    bus: BusSettings
    processes: dict[str, Forked]
    folder: Path
    environment: dict[str, str]

    @property
    def problems(self) -> Path:
        """The data that the judge knows."""
        return self.folder / "state" / "problems"

    @property
    def data(self) -> Path:
        """The data that the bench reads."""
        return self.folder / "data"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Deployment]:
    folder = tmp_path_factory.mktemp("teams")
    # The profile sets 64 for the shipped model.
    longer = {"LOOPLINE_OPTIONS__PAIR__MAX_TOKENS": "512"}
    with (
        pytest.MonkeyPatch.context() as patch,
        deployable(folder, "petting", **longer) as (bus, environment),
    ):
        patch.setenv("SECRET_TOKEN", SECRET)
        # A killed judge is soon replaced, and a busy machine does not take a live one for dead.
        bus = bus.model_copy(update={"lease_seconds": 6.0, "sweep_seconds": 0.1})
        problems(folder / "data")
        workers: list[WorkerBase] = [
            RoleWorkerSettings(bus=bus, name="roles", roles=ROLES),
            GpuWorkerSettings(bus=bus, name="gpu", models={"pair": scripted()}),
            a_judge(bus, folder / "state" / "problems"),
        ]
        async with workers_running(workers, folder / "workers") as processes:
            yield Deployment(bus, processes, folder, environment)


@dataclass
class Overheard:
    """Every command that a server was given."""

    commands: list[str] = field(default_factory=list[str])

    def __contains__(self, text: str) -> bool:
        return any(text in command for command in self.commands)


@contextmanager
def overheard(url: str) -> Generator[Overheard]:
    heard, end = Overheard(), "end-of-the-test"
    client = redis.Redis.from_url(url)
    with client.monitor() as monitor:

        def listen() -> None:
            for event in monitor.listen():
                command = str(event["command"])
                if end in command:
                    return
                heard.commands.append(command)

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield heard
        finally:
            client.echo(end)
            listener.join()
            client.close()


def classes(line: dict[str, Any], arm: str) -> dict[str, str]:
    """Item → class, from the report."""
    report = json.loads((Path(line["output"]) / "report.json").read_text())
    return {item["item"]: item["arms"][arm]["class"] for item in report["results"]["items"]}


async def test_golden_programs_pass_wrong_ones_fail_and_hostile_ones_are_contained(
    here: Deployment, tmp_path: Path
) -> None:
    """Even if the bench is killed halfway; and no hidden text reaches the bus."""
    output = tmp_path / "out"
    arguments = (
        "code",
        "--dataset",
        "humaneval",
        "--arms",
        "team,coder_alone",
        "--setting",
        "turns=2",
    )
    how = ("--data", str(here.data), "--concurrency", "4", "--output", str(output))
    with overheard(here.bus.redis_url) as heard:
        killed_at(3, output, here.environment, *arguments, *how)
        line = last_line(here.environment, "resume", str(output))
    assert line["complete"]
    for arm in ("team", "coder_alone"):
        assert classes(line, arm) == {
            f"code/humaneval/{at}": wanted for at, (_, wanted) in enumerate(PROGRAMS.values())
        }
        [version] = line["code"]["versions"][arm]
        assert (version["right"], version["n"]) == (2, len(PROGRAMS))
        assert "coder: pair v0 (scripted-pair)" in version["policies"]
    assert line["code"]["dataset"] == "humaneval"
    assert line["arms"]["team"]["measures"]["agreed"]["estimate"] == 2 / len(PROGRAMS)
    assert line["arms"]["team"]["measures"]["right_tests"]["estimate"] == 1.0
    [pair] = line["pairs"]
    assert (pair["both"], pair["only_a"], pair["only_b"]) == (2, 0, 0)
    assert "Three times n" in heard
    assert "judge.programs" in heard
    assert not [word for word in (*HIDDEN, SECRET) if word in heard]


async def test_a_failed_write_of_problems_does_not_block_a_later_start(
    here: Deployment, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "problems").write_text("in the way")
    how = ("--arms", "reasoner_alone", "--samples", "1", "--output", str(output))
    arguments = ("math", "--dataset", "aime25", "--data", str(here.data), *how)
    errors = errors_of(here.environment, *arguments)
    assert f"error: {output / 'problems'}: cannot be written (File exists)" in errors
    assert "Traceback" not in errors
    (output / "problems").unlink()
    assert last_line(here.environment, *arguments)["complete"]


async def test_answers_to_mathematics_come_from_the_box_or_else_from_the_program(
    here: Deployment, tmp_path: Path
) -> None:
    arguments = ("math", "--dataset", "aime25", "--data", str(here.data), "--setting", "turns=2")
    how = ("--attempts", "2", "--output", str(tmp_path / "out"))
    line = last_line(here.environment, *arguments, *how)
    wanted = [wanted for _, _, wanted in SUMS.values() for _ in (1, 2)]
    assert list(classes(line, "team").values()) == wanted
    curve = line["math"]["pass_at_k"]["team"]
    assert [(k, point["estimate"], point["instances"]) for k, point in curve.items()] == [
        ("1", 0.5, 4), ("2", 0.5, 4),
    ]  # fmt: skip


async def test_a_run_continues_after_its_judge_is_killed_and_leaves_nothing_behind(
    here: Deployment,
) -> None:
    key = ProblemFolder(here.problems).add(SLOW)
    task = CodeInstance(
        question=SLOW.question, judged_as=key, setting=CodeSetting(team=("coder",))
    ).task
    async with Client.connect(here.bus, {}) as client:
        run = client.new_run(
            task.prompt,
            workflow="pair",
            options={"greedy": True},
            environment=task.environment,
            instance=task.instance,
        )
        await client.submit(run)
        judge = psutil.Process(here.processes["judge"].pid)

        async def busy() -> bool:
            """The judge is in use, and has its interpreters."""
            stream = client.bus.keys.shard(0).work("judge")
            return bool(await client.bus.redis.xlen(stream)) and any(
                "launcher.py" in " ".join(process.cmdline())
                for process in judge.children(recursive=True)
            )

        await until(busy)
        left_behind = judge.children(recursive=True)
        judge.kill()
        here.processes["judge"].wait()

        async def gone() -> bool:
            return not any(process.is_running() for process in left_behind)

        await until(gone)
        here.processes["judge"] = spawn(a_judge(here.bus, here.problems), here.folder / "workers")
        trajectory = await client.wait(run.id)
    assert trajectory.outcome is Outcome.SOLVED
    assert [step.decision.data["reward"] for step in trajectory.steps] == [2.0]
