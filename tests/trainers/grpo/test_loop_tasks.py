"""Loops on tasks of a file, with a real judge: a model that writes right and wrong programs, tests
and answers at random learns from their rewards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from loopline.agents.environments.code import CallTest, CodeProblem, show_test
from loopline.agents.environments.code.team import CodeInstance, CodeSetting
from loopline.agents.workflows.pair import PairWorkflow
from loopline.bench.proofs.grpo_faults.model import write_base
from loopline.testing import RedisProcess
from loopline.trainers.data.task_files import TaskFile, read_tasks
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop.rounds import LoopWatch
from loopline.trainers.grpo.loop.run_directory import RolloutBatch
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.workers.judging.problems import ProblemFolder
from tests.bench.command_line import bench
from tests.conftest import quick_settings
from tests.runtime.parsed_page import ParsedPage
from tests.workers.sandbox.conftest import needs_bubblewrap

from .looped import (
    Deployed,
    adapter,
    asked,
    deployed,
    directory_of,
    loop_settings,
    on_bus,
    run_loop,
    same,
)
from .test_command import command

pytestmark = [needs_bubblewrap, pytest.mark.timeout(300)]

MEMBERS = ("coder", "tester", "reasoner", "tool_user")
POLICIES = {member: PairWorkflow.default_policies[member] for member in MEMBERS}
FACTORS = (2, 3, 4)


def times(factor: int) -> CodeProblem:
    """A problem in the style of MBPP, with a golden program."""
    return CodeProblem(
        id=f"t/{factor}",
        statement=f"Write a function to multiply a number by {factor}.",
        tests=tuple(CallTest(function="f", arguments=(n,), expected=factor * n) for n in (0, 5)),
        solutions=(f"def f(n):\n    return {factor} * n\n",),
    )


@dataclass(frozen=True)
class Here:
    """A deployment of both teams whose judge knows the tasks."""

    where: Deployed
    sums: Path
    programs: Path
    """Files of tasks."""
    state: Path


@pytest.fixture(scope="module")
def here(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Here]:
    pytest.importorskip("peft", reason="needs make install")
    folder = tmp_path_factory.mktemp("teams")
    problems = ProblemFolder(folder / "state" / "problems")
    sums, programs = folder / "sums.jsonl", folder / "programs.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPLINE_STATE", str(folder / "state"))
        arguments = ("wordproblems", str(sums), "--samples", "3", "--setting", "turns=1")
        assert bench("tasks", *arguments).returncode == 0
    tasks = [
        CodeInstance(
            question=times(factor).question,
            judged_as=problems.add(times(factor)),
            setting=CodeSetting(turns=1),
        ).task
        for factor in FACTORS
    ]
    programs.write_text("".join(f"{task.model_dump_json()}\n" for task in tasks))
    keys = [str(task.instance["judged_as"]) for task in read_tasks(sums).tasks]
    base = write_base(folder / "base", answers=answers([problems.math(key).answer for key in keys]))
    bus = quick_settings(next(iter(_shared_servers.values())).url, lease_seconds=2.0)
    with deployed(bus, base, folder / "workers", POLICIES, problems.path) as where:
        yield Here(where, sums, programs, folder / "state")


def answers(sums: Sequence[str]) -> list[str]:
    """The model's random answers to these sums and programs."""
    code = [*(f"print({item})" for item in sums), *(f"def f(n): return {n} * n" for n in FACTORS)]
    tests = [CallTest(function="f", arguments=(5,), expected=5 * factor) for factor in FACTORS]
    return [
        *(f"\\boxed{{{item}}}" for item in sums),
        *(f"\n```python\n{item}\n```\n" for item in code),
        *map(show_test, tests),
    ]


def test_coder_and_tester_learn_from_the_judge_s_verdicts_on_programs_and_tests(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_PROFILE", str(here.where.profile))
    monkeypatch.setenv("LOOPLINE_STATE", str(here.state))
    output = tmp_path / "out"
    code, out, err = command(
        "loop", output, "--tasks", here.programs, "--base", here.where.base, "--weights", "lora",
        "--rank", 2, "--no-instructions", "--max-tokens", 8, "--rounds", 1, "--puzzles", 3,
        "--batch", 4, "--learning-rate", 1e-2, "--truncated", "keep", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert "tasks" in out
    assert "puzzles" not in out.partition("now served")[0]
    summary = json.loads(out.splitlines()[-1])
    assert summary["trained_groups"] >= 4
    assert summary["broken_runs"] == 0
    directory = directory_of(output)
    assert not same(adapter(directory, 0), adapter(directory, 1))
    (first, *_) = directory.waves(1)
    played = {run.task.prompt for run in first.runs}
    assert played == {times(factor).statement for factor in FACTORS}
    rewards = {
        member: {
            reward
            for group in directory.sealed(1).groups
            if group.policy == POLICIES[member]
            for reward in group.rewards
        }
        for member in ("coder", "tester")
    }
    # No program, one that is right only for 0, and one that is right.
    assert rewards["coder"] <= {0.0, 1.0, 2.0}
    assert all(len(values) > 1 for values in rewards.values())
    for member in ("coder", "tester"):
        policy = on_bus(here.where.settings.bus, POLICIES[member])
        assert policy.path_of(policy.current) == str((directory.published(1) / "shared").resolve())
    page = ParsedPage((output / "report.html").read_text())
    page.require_harmless()
    assert "AT-GRPO as a loop: 3 tasks of code" in page.text


def test_an_interrupted_loop_of_mathematics_resumes_its_runs_only_with_its_own_file(
    here: Here, tmp_path: Path
) -> None:
    file, output = read_tasks(here.sums), tmp_path / "out"
    settings, where = settings_for(here, file), here.where.settings

    def give_up(wave: RolloutBatch, ended: int) -> None:
        raise TrainingError("given up")

    with pytest.raises(TrainingError, match="given up"):
        run_loop(settings, output, where, LoopWatch(rolled=give_up), questions=asked(file.tasks))
    (begun,) = directory_of(output).waves(1)
    other_path = here.sums.with_name("fewer.jsonl")
    other_path.write_text(here.sums.read_text().partition("\n")[0] + "\n")
    with pytest.raises(TrainingError, match=r"was started with other settings: tasks"):
        run_loop(settings_for(here, read_tasks(other_path)), output, where)
    report = run_loop(settings, output, where, questions=asked(file.tasks))
    directory = directory_of(output)
    assert {run.id for run in begun.runs} <= set(directory.sealed(1).runs)
    assert not same(adapter(directory, 0), adapter(directory, 1))
    (facts,) = report.rounds
    assert (facts.broken, facts.foreign, facts.left_out) == (0, 0, {})
    assert facts.agreement is None
    rewards = {reward for group in directory.sealed(1).groups for reward in group.rewards}
    # The tool user's rewards go down to -1, for no answer.
    assert rewards <= {-1.0, 0.0, 1.0, 2.0}
    assert -1.0 in rewards
    assert facts.trained >= settings.grpo.batch
    page = ParsedPage((output / "report.html").read_text()).text
    assert "3 tasks of math" in page
    assert "Agreement" not in page


def settings_for(here: Here, file: TaskFile) -> LoopSettings:
    return loop_settings(
        here.where.base, game=None, size=None, setting={}, tasks=file.about, rounds=1, puzzles=3,
        policies={member: POLICIES[member] for member in file.about.team},
    )  # fmt: skip
