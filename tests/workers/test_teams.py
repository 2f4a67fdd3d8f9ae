"""Code team and math team with a real judge and real sandboxes; models answer from a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio

from loopline.agents.environments.code import CodeProblem, ProgramTest, show_test
from loopline.agents.environments.code.team import CodeInstance, CodeSetting
from loopline.agents.environments.math_team import (
    MathInstance,
    MathProblem,
    MathQuestion,
    MathSetting,
)
from loopline.agents.records import JsonObject, Outcome, Run, Task, Trajectory
from loopline.agents.replay import replay
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import workflows
from loopline.workers.judging.problems import ProblemFolder
from loopline.workers.judging.service import JudgeService, judge_service
from loopline.workers.sandbox import SandboxSettings
from tests.agents.conversations import a_run
from tests.agents.test_pair import ManyHost
from tests.workers.sandbox.conftest import needs_bubblewrap

pytestmark = [needs_bubblewrap, pytest.mark.asyncio(loop_scope="module")]

HIDDEN = "27182818284590"
DOUBLE = CodeProblem(
    id="t/double",
    statement="Read a number and print its double.",
    examples=(ProgramTest(stdin="1", stdout="2"),),
    tests=(
        ProgramTest(stdin=HIDDEN, stdout="54365636569180"),
        ProgramTest(stdin="-3", stdout="-6"),
    ),
    solutions=("print(int(input()) * 2)  # golden-secret",),
)
SUM = MathProblem(
    question=MathQuestion(id="t/sum", statement="The sum of 1 to 15, less 4?"), answer="116"
)
GOOD = "```python\nprint(2 * int(input()))\n```"
ABSOLUTE = "```python\nprint(abs(2 * int(input())))\n```"
NONE = "I can't."
RIGHT = show_test(ProgramTest(stdin="-5", stdout="-10"))
WRONG = show_test(ProgramTest(stdin="-5", stdout="10"))
SUMMED = "```python\nprint(sum(range(16)) - 4)\n```"


@dataclass
class JudgedHost(ManyHost):
    """Answers completions from a script, and calls the judge."""

    judge: JudgeService | None = None

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        assert self.judge is not None
        return await self.judge.call(name, arguments)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JudgeService]:
    folder = ProblemFolder(tmp_path_factory.mktemp("problems"))
    async with judge_service(folder, SandboxSettings(parallel=2, ready=2)) as service:
        yield service


def code_task(judge: JudgeService, setting: CodeSetting) -> Task:
    key = judge.problems.add(DOUBLE)
    return CodeInstance(question=DOUBLE.question, judged_as=key, setting=setting).task


def math_task(judge: JudgeService, setting: MathSetting) -> Task:
    key = judge.problems.add(SUM)
    return MathInstance(question=SUM.question, judged_as=key, setting=setting).task


def a_team_run(task: Task, **options: object) -> Run:
    run = a_run("pair", task.prompt, **options)
    checked = workflows.get("pair").check_options(run.options)
    return run.model_copy(update={"task": task, "options": checked})


async def play(
    judge: JudgeService, run: Run, **texts_by_role: Iterable[Sequence[str]]
) -> tuple[Trajectory, dict[str, JudgedHost]]:
    hosts = {role: JudgedHost(list(texts), judge=judge) for role, texts in texts_by_role.items()}
    return await run_locally(run, hosts), hosts


def parts(trajectory: Trajectory, step: int) -> list[dict[str, float]]:
    return [candidate.reward_parts for candidate in trajectory.steps[step].candidates]


async def test_the_best_program_and_the_best_test_of_k_candidates_are_executed(
    judge: JudgeService,
) -> None:
    run = a_team_run(code_task(judge, CodeSetting()), candidates=3)
    trajectory, hosts = await play(
        judge, run, coder=[[NONE, ABSOLUTE, GOOD]], tester=[[WRONG, RIGHT, NONE]]
    )
    assert (trajectory.outcome, trajectory.answer) == (
        Outcome.SOLVED,
        "print(2 * int(input()))\n",
    )
    assert [(step.agent, step.selected) for step in trajectory.steps] == [
        ("coder", 2), ("tester", 1),
    ]  # fmt: skip
    assert [item["total"] for item in parts(trajectory, 0)] == [0.0, 1.0, 2.0]
    assert [item["total"] for item in parts(trajectory, 1)] == [1.0, 2.0, 1.0]
    assert {item.n for host in hosts.values() for item in host.sampling} == {3}
    assert (trajectory.team_reward, trajectory.agent_rewards) == (
        1.0,
        {"coder": 2.0, "tester": 2.0},
    )
    assert trajectory.steps[0].candidates[1].action == {"code": "print(abs(2 * int(input())))\n"}


async def test_adaptive_sampling_asks_the_judge_round_by_round_and_can_be_replayed(
    judge: JudgeService,
) -> None:
    run = a_team_run(
        code_task(judge, CodeSetting()), candidates=2,
        adaptive={"exit_when": "positive", "success": 2.0},
    )  # fmt: skip
    trajectory, _ = await play(
        judge, run, coder=[[NONE, ABSOLUTE], [NONE, GOOD]], tester=[[WRONG, RIGHT]]
    )
    assert trajectory.outcome is Outcome.SOLVED
    coder, tester = trajectory.steps
    assert (len(coder.candidates), coder.selected, len(tester.candidates)) == (4, 3, 2)
    assert (await replay(trajectory)).reproduced


@pytest.mark.parametrize("program", [GOOD, ABSOLUTE])
async def test_a_right_test_is_a_tester_s_success_whatever_the_program_of_its_turn(
    judge: JudgeService, program: str
) -> None:
    """Otherwise all of its tests would be of one kind, and every extra round would be wasted."""
    run = a_team_run(
        code_task(judge, CodeSetting(turns=1)), candidates=2,
        adaptive={"exit_when": "balanced", "rounds": 2},
    )  # fmt: skip
    trajectory, _ = await play(judge, run, coder=[[program, NONE]] * 2, tester=[[WRONG, RIGHT]] * 2)
    coder, tester = trajectory.steps
    assert len(coder.candidates) == (2 if program == GOOD else 4)
    assert len(tester.candidates) == 2


async def test_the_tester_does_not_see_the_program_of_its_turn_and_both_see_it_in_the_next(
    judge: JudgeService,
) -> None:
    run = a_team_run(code_task(judge, CodeSetting()), greedy=True)
    trajectory, hosts = await play(
        judge, run, coder=[[ABSOLUTE], [GOOD]], tester=[[RIGHT], [RIGHT]]
    )
    assert trajectory.outcome is Outcome.SOLVED
    assert [step.agent for step in trajectory.steps] == ["coder", "tester"] * 2
    texts = [hosts[role].prompts[turn][1].content for role in hosts for turn in (0, 1)]
    assert ["abs(" in text for text in texts] == [False, True, False, True]
    assert ["They disagree (wrong answer)" in text for text in texts] == [False, True] * 2
    for host in hosts.values():
        assert [sampling.temperature for sampling in host.sampling] == [0.0, 0.0]


async def test_a_run_s_records_contain_no_hidden_test_and_no_golden_program(
    judge: JudgeService,
) -> None:
    run = a_team_run(code_task(judge, CodeSetting(turns=2)), candidates=2)
    trajectory, hosts = await play(
        judge, run, coder=[[ABSOLUTE, NONE]] * 2, tester=[[RIGHT, WRONG]] * 2
    )
    assert trajectory.outcome is Outcome.FAILED
    assert trajectory.reason == "the last program passes 50% of the tests"
    output = trajectory.model_dump_json() + "".join(
        message.content for host in hosts.values() for prompt in host.prompts for message in prompt
    )
    assert DOUBLE.statement in output
    assert not [word for word in (HIDDEN, "54365636569180", "golden-secret") if word in output]


async def test_agreement_on_a_wrong_answer_ends_a_run_unsolved(judge: JudgeService) -> None:
    run = a_team_run(code_task(judge, CodeSetting()), greedy=True)
    trajectory, _ = await play(judge, run, coder=[[ABSOLUTE]], tester=[[WRONG]])
    assert trajectory.outcome is Outcome.FAILED
    assert trajectory.agent_rewards == {"coder": 1.0, "tester": 0.5}


async def test_a_lone_member_has_one_turn(judge: JudgeService) -> None:
    coder = a_team_run(code_task(judge, CodeSetting(team=("coder",))), greedy=True)
    reasoner = a_team_run(math_task(judge, MathSetting(team=("reasoner",))), greedy=True)
    lost, _ = await play(judge, coder, coder=[[ABSOLUTE]])
    won, _ = await play(judge, reasoner, reasoner=[["It is \\boxed{116}."]])
    assert (lost.outcome, won.outcome, won.answer) == (Outcome.FAILED, Outcome.SOLVED, "116")


async def test_reasoner_and_tool_user_continue_until_they_agree(judge: JudgeService) -> None:
    run = a_team_run(math_task(judge, MathSetting()), candidates=2)
    trajectory, hosts = await play(
        judge,
        run,
        reasoner=[["\\boxed{5}", "no box"], ["\\boxed{5}", "So \\boxed{116.0}"]],
        tool_user=[[SUMMED, "```python\n1/0\n```"], [NONE, SUMMED]],
    )
    assert (trajectory.outcome, trajectory.answer) == (Outcome.SOLVED, "116.0")
    assert [step.selected for step in trajectory.steps] == [0, 0, 1, 1]
    assert [reward_parts["total"] for reward_parts in parts(trajectory, 1)] == [1.0, -1.0]
    assert [reward_parts["total"] for reward_parts in parts(trajectory, 2)] == [0.0, 2.0]
    assert [reward_parts["total"] for reward_parts in parts(trajectory, 3)] == [0.0, 2.0]
    second = hosts["reasoner"].prompts[1][1].content
    assert "Its answer: 5" in second
    assert "Its answer: 116" in second
    assert "116" not in hosts["tool_user"].prompts[0][1].content


async def test_a_run_of_a_team_is_reproduced_from_its_journal_without_a_judge(
    judge: JudgeService,
) -> None:
    code = a_team_run(code_task(judge, CodeSetting(turns=2)), candidates=2)
    math = a_team_run(math_task(judge, MathSetting(turns=2)), candidates=1)
    played = [
        await play(judge, code, coder=[[NONE, ABSOLUTE]] * 2, tester=[[RIGHT, NONE]] * 2),
        await play(judge, math, reasoner=[["\\boxed{5}"]] * 2, tool_user=[[SUMMED]] * 2),
    ]
    for trajectory, _ in played:
        assert trajectory.outcome is Outcome.FAILED
        assert (await replay(trajectory)).divergences == ()


async def test_a_problem_unknown_to_the_judge_ends_the_run_with_the_reason(
    judge: JudgeService,
) -> None:
    unknown = CodeInstance(question=DOUBLE.question, judged_as="0" * 64).task
    trajectory, _ = await play(judge, a_team_run(unknown, greedy=True), coder=[[GOOD]])
    assert trajectory.outcome is Outcome.ERROR
    assert "coder: judge: no problem 000000000000 is in this judge's folder" in str(
        trajectory.reason
    )
