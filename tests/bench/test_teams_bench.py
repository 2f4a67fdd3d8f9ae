"""`bench code` and `bench math` without a bus: what they ask, whose verdicts they trust, what they
refuse; and arms of every team that play with swapped policies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.environments.code import CodeProblem, ProgramTest, show_test
from loopline.agents.environments.code.team import CodeInstance, CodeSetting
from loopline.agents.environments.math_team import (
    MathInstance,
    MathProblem,
    MathQuestion,
    MathSetting,
)
from loopline.agents.judging import JUDGE_TOOLS
from loopline.agents.records import JsonObject, Outcome, Run, Task, Trajectory
from loopline.agents.roles.pair.settings import PairOptions
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import serving_role, workflows
from loopline.agents.workflows.routing import Handoff
from loopline.bench.arms import override_setting
from loopline.bench.datasets import Item, Request
from loopline.bench.deployments import add_deployment, needed_pools
from loopline.bench.errors import DataError, OutputError, UsageError
from loopline.bench.judgement import Judge
from loopline.bench.output import Manifest, OutputDirectory
from loopline.bench.registry import find, load
from loopline.bench.taxonomy import Class
from loopline.bench.teams.problem_judge import class_of, code_judge, math_judge
from loopline.bench.teams.sampling import sampling
from loopline.runtime.config import settings as config
from loopline.workers.judging.problems import ProblemFolder, key_of
from tests.agents.conversations import a_run
from tests.agents.test_pair import ManyHost
from tests.bench.benchmarks import measured
from tests.bench.command_line import bench
from tests.bench.puzzle_client import PuzzleClient, manifest, oracle
from tests.workers.sandbox.conftest import needs_bubblewrap

GOOD, BAD = "```python\nprint(2 * int(input()))\n```", "```python\nprint(input())\n```"
RIGHT = show_test(ProgramTest(stdin="2", stdout="4"))
DOUBLE = CodeProblem(id="t/d", statement="Double.", tests=(ProgramTest(stdin="3", stdout="6"),))
SUM = MathProblem(question=MathQuestion(id="t/s", statement="1 + 1?"), answer="2")
needs_data = pytest.mark.skipif(
    "LOOPLINE_DATA" not in os.environ, reason="LOOPLINE_DATA is not set"
)


# ---- swapped policies ----


def swapped(manifest: Manifest, **policies: str) -> Manifest:
    """The manifest as a deployment of the profile `petting` completes it."""
    settings = config.load("petting", environ={})
    settings_with_policies = settings.model_copy(
        update={"policies": {**settings.policies, **policies}}
    )
    arms = find(manifest.benchmark).parse_arms(",".join(manifest.arms), manifest.reference)
    return add_deployment(manifest, arms, settings_with_policies).model_copy(
        update={"options": manifest.options}
    )


def test_swapped_policies_play_each_other_s_role_and_are_compared_in_pairs(tmp_path: Path) -> None:
    """Here only the policy of the plan agent can solve, whatever its role."""

    def player(run: Run, handoff: Handoff) -> str:
        knows = run.policies[handoff.agent] == "pair/plan"
        return oracle(run, handoff) if knows else "I do not know."

    request = Request("test", 6, seed=7, choices={"game": "sudoku", "setting": {"turns": 1}})
    swapped_manifest = swapped(manifest(request, "pair,swapped"))
    assert swapped_manifest.policies == {
        "pair": {"tool_agent": "pair/tool", "plan_agent": "pair/plan"},
        "swapped": {"tool_agent": "pair/plan", "plan_agent": "pair/tool"},
    }
    client = PuzzleClient(player=player)
    facts = measured(tmp_path / "out", swapped_manifest, client)
    [pair] = facts.results["pairs"]
    assert (pair["a"], pair["b"], pair["n"]) == ("pair", "swapped", 6)
    assert (pair["only_a"], pair["only_b"]) == (6, 0)
    assert (pair["difference"]["estimate"], pair["p"]) == (1.0, 0.03125)
    played = {run.tags["arm"]: run.policies["tool_agent"] for run in client.runs.values()}
    assert played == {"pair": "pair/tool", "swapped": "pair/plan"}


def test_one_policy_in_both_roles_has_nothing_to_swap() -> None:
    request = Request("test", 1, seed=7, choices={"game": "sudoku"})
    with pytest.raises(UsageError, match=r"both served by the policy 'pair/tool'.*nothing to swap"):
        swapped(manifest(request, "swapped"), plan_agent="pair/tool")


@pytest.mark.parametrize("benchmark", ["puzzles", "code", "math"])
def test_the_profile_petting_serves_every_arm_of_every_team(benchmark: str) -> None:
    settings = config.load("petting", environ={})
    roles = {role for worker in settings.workers.values() for role in worker.roles}
    for arm in find(benchmark).arms_for({"game": "plan_path"}).listed.values():
        assert needed_pools(arm, settings.policies) == {"pair"}
        assert {serving_role(arm.workflow, agent) for agent in arm.roles} <= roles
        assert set(arm.roles) == set(arm.setting["team"])  # type: ignore[arg-type]


# ---- what is asked ----


def write_humaneval(folder: Path, tests: str = "    assert candidate(4711) == 9422\n") -> None:
    row = {
        "task_id": "HumanEval/0", "prompt": "def f(n):\n    'Double.'\n", "entry_point": "f",
        "canonical_solution": "    return 2 * n\n", "test": f"def check(candidate):\n{tests}",
    }  # fmt: skip
    (folder / "HumanEval.jsonl").write_text(json.dumps(row) + "\n")


def test_an_item_contains_the_question_and_a_hash_of_the_rest(tmp_path: Path) -> None:
    write_humaneval(tmp_path)
    request = Request(data=tmp_path, choices={"dataset": "humaneval", "attempts": 2})
    dataset = load("code", request)
    assert [item.id for item in dataset.items] == [
        "code/humaneval/0#1", "code/humaneval/0#2",
    ]  # fmt: skip
    assert "4711" not in repr(dataset.items)
    assert "4711" in repr(dataset.problems)
    write_humaneval(tmp_path, "    assert candidate(4712) == 9424\n")
    assert load("code", request).items[0].about["task"] != dataset.items[0].about["task"]


@needs_data
@pytest.mark.parametrize(
    ("benchmark", "dataset", "split", "count"),
    [
        ("code", "humaneval", "test", 164), ("code", "mbpp", "test", 500),
        ("code", "mbpp", "validation", 90), ("code", "mbpp_sanitized", "test", 257),
        ("code", "apps", "test", 128), ("code", "apps", "train", 5),
        ("code", "codecontests", "test", 165), ("math", "aime24", "test", 30),
        ("math", "aime25", "test", 30), ("math", "olympiadbench", "test", 675),
        ("math", "gsm8k", "test", 1_319), ("math", "gsm8k", "train", 7_473),
        ("code", "apps", "selected", 128),
    ],
)  # fmt: skip
def test_published_problems_carry_everything_that_their_judge_needs(
    tmp_path: Path, benchmark: str, dataset: str, split: str, count: int
) -> None:
    problem_set = load(benchmark, Request(split, 3, seed=7, choices={"dataset": dataset}))
    assert (problem_set.available, len(problem_set.items), len(problem_set.problems)) == (
        count,
        3,
        3,
    )
    folder = ProblemFolder(tmp_path)
    for item, problem in zip(problem_set.items, problem_set.problems, strict=True):
        task = item.about["task"]
        assert isinstance(task, dict)
        instance = task["instance"]
        assert isinstance(instance, dict)
        assert instance["judged_as"] == folder.add(problem)


def test_attempts_are_single_samples_regardless_of_the_profile_s_sampling() -> None:
    profile: JsonObject = {"adaptive": {"exit_when": "positive"}, "candidates": 8}
    options = PairOptions.model_validate({**profile, **sampling(None, None, None, 8)})
    assert (options.candidates, options.adaptive, options.greedy) == (1, None, False)


# ---- the judge ----


@pytest.fixture(scope="module", params=["code", "math"])
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Judge, Item, dict[str, list[str]]]]:
    """A judge, an item of its benchmark, and the solving texts by role."""
    folder = ProblemFolder(tmp_path_factory.mktemp("problems"))
    if request.param == "code":
        key = folder.add(DOUBLE)
        task = CodeInstance(
            question=DOUBLE.question, judged_as=key, setting=CodeSetting(turns=2)
        ).task
        solution = {"coder": [GOOD], "tester": [RIGHT]}
    else:
        key = folder.add(SUM)
        task = MathInstance(question=SUM.question, judged_as=key, setting=MathSetting(turns=2)).task
        solution = {"reasoner": ["\\boxed{2}"], "tool_user": ["```python\nprint(2)\n```"]}
    about: JsonObject = {
        "problem": "t", "task": {"environment": task.environment, "instance": task.instance},
    }  # fmt: skip
    bench_manifest = Manifest.model_construct(benchmark=request.param, reference={})
    open_judge = code_judge if request.param == "code" else math_judge
    with open_judge(bench_manifest, folder.path) as judge:
        yield judge, Item("x", task.prompt, "", about), solution


class Praising(ManyHost):
    """A host whose judge reports everything as right and in agreement."""

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        assert name in JUDGE_TOOLS
        many = next(v for k, v in arguments.items() if k in ("programs", "tests", "answers"))
        assert isinstance(many, list)
        match name:
            case "judge.programs":
                return {"verdicts": [{"pass_rate": 1.0} for _ in many]}
            case "judge.tests":
                return {"verdicts": [{"right": True, "agrees": True} for _ in many]}
            case "judge.answers":
                return {"right": [True for _ in many]}
            case _:
                return {"verdicts": [{"answer": "2", "agrees": True} for _ in many]}


async def praised(item: Item, texts_by_role: dict[str, list[str]], **changes: Any) -> Trajectory:
    """A run of the item whose deployment's judge praises everything."""
    task = item.about["task"]
    assert isinstance(task, dict)
    instance = task["instance"]
    assert isinstance(instance, dict)
    team: JsonObject = {"team": list(texts_by_role), **changes}
    run = a_run("pair", item.question, greedy=True)
    options = workflows.get("pair").check_options(run.options)
    team_task = Task(
        environment=str(task["environment"]),
        instance=override_setting(instance, team),
        prompt=item.question,
    )
    run = run.model_copy(update={"task": team_task, "options": options})
    hosts = {role: Praising([[text] for text in texts]) for role, texts in texts_by_role.items()}
    return await run_locally(run, hosts)


@needs_bubblewrap
async def test_the_verdicts_of_the_run_and_its_judge_are_ignored(
    judged: tuple[Judge, Item, dict[str, list[str]]],
) -> None:
    judge, item, solution = judged
    first, second = solution
    wrong = {first: [BAD if first == "coder" else "\\boxed{5}"], second: solution[second]}
    lost = await praised(item, wrong)
    assert (lost.outcome, lost.team_reward) == (Outcome.SOLVED, 1.0)
    verdict = judge.judge(lost, item)
    assert (verdict.verdicts, verdict.signals) == ({"solved": False}, ("wrong_answer",))
    won = (await praised(item, solution)).model_copy(update={"outcome": Outcome.FAILED})
    verdict = judge.judge(won, item)
    assert (verdict.verdicts, verdict.signals) == ({"solved": True}, ())
    assert verdict.measures["agreed"] == 1.0


@needs_bubblewrap
@pytest.mark.parametrize("judged", ["math"], indirect=True)
async def test_a_program_of_an_earlier_turn_does_not_answer_for_a_later_one(
    judged: tuple[Judge, Item, dict[str, list[str]]],
) -> None:
    """The run ended before the tool user's second turn."""
    judge, item, solution = judged
    won = await praised(item, {**solution, "reasoner": ["I do not know."]})
    assert judge.judge(won, item).verdicts == {"solved": True}
    broken_off = won.model_copy(update={"steps": (*won.steps, won.steps[0])})
    verdict = judge.judge(broken_off, item)
    assert (verdict.verdicts, verdict.detail) == ({"solved": False}, "there is no answer")


@needs_bubblewrap
async def test_a_run_of_another_instance_or_with_more_turns_counts_as_unsolved(
    judged: tuple[Judge, Item, dict[str, list[str]]],
) -> None:
    judge, item, solution = judged
    longer = await praised(item, solution, turns=9)
    assert "a different instance" in judge.judge(longer, item).detail
    won = await praised(item, solution)
    repeated = won.model_copy(update={"steps": won.steps * 3})
    assert judge.judge(repeated, item).detail == "3 turns were played, but only 2 are allowed"
    first = next(iter(solution))
    alone = await praised(item, {first: solution[first]})
    assert judge.judge(alone, item).verdicts["solved"]
    assert (
        "but is not on the team"
        in judge.judge(alone.model_copy(update={"steps": won.steps}), item).detail
    )


@needs_bubblewrap
def test_a_directory_without_its_problems_is_damaged(
    judged: tuple[Judge, Item, dict[str, list[str]]],
) -> None:
    judge, item, _ = judged
    trajectory = Trajectory(
        run=a_run("pair", item.question), steps=(), outcome=Outcome.ERROR, ended=1.0
    )
    with pytest.raises(OutputError, match="its manifest is damaged"):
        judge.judge(trajectory, Item("x", "?", ""))


@pytest.mark.parametrize(
    ("outcome", "signals", "expected"),
    [
        (Outcome.FAILED, ("wrong_answer", "timed_out"), Class.TIMED_OUT),
        (Outcome.FAILED, ("crashed", "refused"), Class.REFUSED),
        (Outcome.FAILED, ("no_code",), Class.NO_CODE),
        (Outcome.FAILED, (), Class.NO_ANSWER),
        (Outcome.ERROR, ("no_code",), Class.ERROR),
    ],
)
def test_a_failure_has_one_class(
    outcome: Outcome, signals: tuple[str, ...], expected: Class
) -> None:
    assert class_of(outcome, False, signals) is expected
    assert class_of(outcome, True, signals) is Class.RIGHT


# ---- the command line ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["code", "--dataset", "gsm8k"], "there is no 'gsm8k' here"),
        (["math", "--dataset", "humaneval"], "there are: gsm8k"),
        (["code", "--arms", "pair"], "there is no arm 'pair'"),
        (["math", "--arms", "tool_user_alone"], "there is no arm"),
        (["code", "--setting", "turns=0"], "--setting turns"),
        (["code", "--setting", "speed=2"], "--setting speed"),
        (["math", "--setting", 'team=["reasoner"]'], "choose the players with --arms"),
        (["code", "--split", "train"], "humaneval has no 'train'"),
        (["math", "--split", "train"], "aime24 has no 'train'"),
        (["code", "--greedy", "--attempts", "4"], "--greedy samples nothing"),
        (["code", "--attempts", "0"], "--attempts"),
    ],
)
def test_unplayable_options_are_reported_before_a_deployment_is_needed(
    arguments: list[str], message: str
) -> None:
    process = bench(*arguments)
    assert process.returncode == 2
    assert message in process.stderr


def test_missing_data_are_reported(tmp_path: Path) -> None:
    process = bench("code", "--data", str(tmp_path))
    assert process.returncode != 0
    assert "HumanEval.jsonl" in process.stderr
    (tmp_path / "HumanEval.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match="contains no problems"):
        load("code", Request(data=tmp_path, choices={"dataset": "humaneval"}))


def stopped_between() -> Iterator[CodeProblem]:
    """Ctrl-C after the problems are written and before the manifest is."""
    yield DOUBLE
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_stopped_start_leaves_a_folder_in_which_the_benchmark_can_start_again(
    tmp_path: Path,
) -> None:
    bench_manifest = manifest(Request("test", 1, seed=7, choices={"game": "sudoku"}))
    directory = OutputDirectory(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        directory.create(bench_manifest, stopped_between())
    directory.create(bench_manifest, [DOUBLE])
    assert directory.manifest() == bench_manifest
    assert ProblemFolder(directory.problems).code(key_of(DOUBLE)) == DOUBLE


def test_problems_are_not_added_to_an_existing_benchmark(tmp_path: Path) -> None:
    bench_manifest = manifest(Request("test", 1, seed=7, choices={"game": "sudoku"}))
    directory = OutputDirectory(tmp_path / "out")
    directory.create(bench_manifest)
    with pytest.raises(UsageError, match="already holds a benchmark"):
        directory.create(bench_manifest, [DOUBLE])
    assert not directory.problems.exists()


def test_without_bubblewrap_a_bench_of_programs_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_humaneval(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    process = bench("code", "--data", str(tmp_path))
    assert process.returncode == 2
    assert "apt-get install bubblewrap" in process.stderr
    assert "--unsafe-exec" in process.stderr
    process = bench("code", "--data", str(tmp_path), "--unsafe-exec")
    assert "runtime up" in process.stderr, "the next thing that is missing is a deployment"


def test_a_deployment_without_a_judge_is_refused(tmp_path: Path) -> None:
    write_humaneval(tmp_path)
    dataset = load("code", Request(data=tmp_path, choices={"dataset": "humaneval"}))
    assert dataset.problems
    code_manifest = Manifest.model_construct(
        benchmark="code", arms=("team",), options=None, policies={}
    )
    with pytest.raises(UsageError, match="needs a worker of the kind 'judge'"):
        add_deployment(
            code_manifest, find("code").arms.parse("team"), config.load("micro", environ={})
        )
