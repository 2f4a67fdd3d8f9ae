"""`bench tools`: the four suites, from their items to the report, in this process."""

from __future__ import annotations

import gzip
import json
import os
import re
from base64 import b64decode
from pathlib import Path
from shutil import copytree

import pytest

from loopline.agents.environments.api_worlds import APIS, HELD_OUT, Instance, instances
from loopline.agents.environments.tool_step import GivenStep
from loopline.agents.records import JsonObject, Outcome, Run, Trajectory
from loopline.agents.roles.umi.output import format_call, format_plan
from loopline.agents.workflow_runner import run_locally
from loopline.bench.datasets import Request
from loopline.bench.deployments import add_deployment
from loopline.bench.errors import UsageError
from loopline.bench.output import ManifestItem, manifest_items
from loopline.bench.registry import find, load
from loopline.bench.report.measures import win
from loopline.bench.rescoring import rescore_all
from loopline.bench.results import Result
from loopline.bench.taxonomy import Class
from loopline.bench.tools.apibench import ApiBenchJudge
from loopline.bench.tools.bfcl import BfclJudge
from loopline.bench.tools.classes import class_of
from loopline.bench.tools.steps import StepsJudge, reference_of
from loopline.bench.tools.worlds import WorldsJudge
from loopline.runtime.config import settings as config
from tests.agents.conversations import ScriptedHost, a_run, says
from tests.bench.benchmarks import measured
from tests.bench.test_tool_datasets import API, APIBENCH, QUESTION, write
from tests.bench.tool_client import manifest, oracle_client

HAS_DATA = "LOOPLINE_DATA" in os.environ
needs_data = pytest.mark.skipif(not HAS_DATA, reason="LOOPLINE_DATA is not set")
SPLIT = "unseen_worlds"


# ---- whole runs in the simulator ----


def test_the_oracle_solves_every_instance_as_a_team_and_alone(tmp_path: Path) -> None:
    bench_manifest = manifest("worlds", "umi,single", Request(SPLIT, 12, seed=7))
    facts = measured(tmp_path / "out", bench_manifest, oracle_client(SPLIT, 12))
    for arm in facts.results["arms"].values():
        assert arm["accuracy"]["solved"]["right"] == 12
        assert arm["measures"]["hallucination"]["estimate"] == 0.0
    [pair] = facts.results["pairs"]
    assert pair["win_rate"]["estimate"] == 0.5
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Instructions in simulated worlds: umi against single" in page
    packed = re.search(r'id="index">([^<]+)<', page)
    assert packed is not None
    index = json.loads(gzip.decompress(b64decode(packed[1])))
    assert index["checkers"] == ["solved"]
    assert "## Measures" in (tmp_path / "out" / "report.md").read_text()


def test_a_team_that_gives_up_fails_and_the_report_shows_the_classes(tmp_path: Path) -> None:
    client = oracle_client(SPLIT, 12, mistake_rate=0.4)
    bench_manifest = manifest("worlds", "umi,single", Request(SPLIT, 12, seed=7))
    facts = measured(tmp_path / "out", bench_manifest, client)
    for name, arm in facts.results["arms"].items():
        failed = 12 - arm["accuracy"]["solved"]["right"]
        assert failed > 0, name
        assert sum(n for kind, n in arm["classes"].items() if kind != "right") == failed
        assert set(arm["classes"]) <= {"right", "gave_up", "not_tried"}


def test_the_mixed_split_has_equal_parts_of_every_held_out_split() -> None:
    dataset = load("worlds", Request("held_out", 8, seed=3))
    assert [item.about["split"] for item in dataset.items] == [str(s) for s in HELD_OUT] * 2


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("tomorrow", 3), "no split 'tomorrow'"),
        (Request(SPLIT, 0), "--samples must lie between"),
        (Request(SPLIT, 3, data=Path(".")), "--data has no effect"),
    ],
)
def test_requests_beyond_the_simulator_are_refused(request_: Request, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load("worlds", request_)


def an_item(at: int = 0) -> tuple[Instance, ManifestItem]:
    """A solvable instance that changes its world."""
    changing = [
        candidate
        for candidate in instances(SPLIT, 7, 40)
        if candidate.oracle.answer
        and any(APIS[call.name].changes for call in candidate.oracle.calls)
    ]
    wanted = changing[at]
    items = manifest_items(load("worlds", Request(SPLIT, 40, seed=7)).items)
    return wanted, next(item for item in items if item.id.endswith(wanted.id))


async def a_team_run(
    instance: Instance, plans: list[str], calls: list[str], answers: list[str]
) -> Trajectory:
    run: Run = a_run("umi", calculator=False, constrained=False)
    run = run.model_copy(update={"task": instance.task})
    texts = {"umi_planner": plans, "umi_caller": calls, "umi_summarizer": answers}
    hosts = {role: ScriptedHost([says(text) for text in turns]) for role, turns in texts.items()}
    return await run_locally(run, hosts)


CALL, END = format_plan("I call.", "call"), format_plan("I know.", "conclude")


def oracle_calls(instance: Instance) -> list[str]:
    return [format_call(call.name, call.arguments or {}) for call in instance.oracle.calls]


async def classed(
    instance: Instance, item: ManifestItem, trajectory: Trajectory
) -> tuple[bool, Class]:
    judged = WorldsJudge().judge(trajectory, item)
    right = judged.verdicts["solved"]
    return right, class_of(trajectory.outcome, right, judged.signals)


async def test_the_verdict_comes_from_the_world_and_the_class_explains_it() -> None:
    instance, item = an_item()
    calls, answer = oracle_calls(instance), instance.oracle.answer or ""
    plans = [CALL] * len(calls)
    cases = {
        Class.RIGHT: ([*plans, END], calls, [answer]),
        Class.WRONG_ANSWER: ([*plans, END], calls, ["It was 4711 then."]),
        Class.GAVE_UP: ([*plans, format_plan("Enough.", "give_up")], calls, []),
        Class.NOT_DONE: ([*plans[1:], END], calls[:-1], [answer]),
        Class.NOT_TRIED: ([END], [], [answer]),
        Class.UNREADABLE: (["Hm."], [], []),
        Class.HALLUCINATED: ([CALL, format_plan("No.", "give_up")], [format_call("pay", {})], []),
        Class.CYCLE: ([CALL] * 3, [format_call("pay", {})] * 3, []),
    }
    if len(calls) == 1:
        del cases[Class.NOT_DONE]
    for expected, (planned, called, reply) in cases.items():
        trajectory = await a_team_run(instance, planned, called, reply)
        right, kind = await classed(instance, item, trajectory)
        assert (right, kind) == (expected is Class.RIGHT, expected)


async def test_a_change_other_than_the_requested_one_is_damage() -> None:
    kinds: set[Class] = set()
    for at in range(3):
        instance, item = an_item(at)
        *before, last = instance.oracle.calls
        for key, value in (last.arguments or {}).items():
            other_arguments = {
                **(last.arguments or {}),
                key: 1 if isinstance(value, int) else "Other",
            }
            calls = [format_call(call.name, call.arguments or {}) for call in before]
            calls.append(format_call(last.name, other_arguments))
            plans = [*[CALL] * len(calls), END]
            trajectory = await a_team_run(instance, plans, calls, [instance.oracle.answer or ""])
            right, kind = await classed(instance, item, trajectory)
            assert not right, other_arguments
            kinds.add(kind)
    assert kinds == {Class.DAMAGE, Class.NOT_DONE}, "changed otherwise, or refused by the API"


async def test_a_failed_run_counts_as_unsolved_regardless_of_its_world() -> None:
    instance, item = an_item()
    calls = oracle_calls(instance)
    whole = await a_team_run(
        instance, [*[CALL] * len(calls), END], calls, [instance.oracle.answer or ""]
    )
    broken = whole.model_copy(update={"outcome": Outcome.DEADLINE, "answer": None})
    assert await classed(instance, item, broken) == (False, Class.DEADLINE)


def a_result(right: bool, calls: int) -> Result:
    """Only the fields that decide a win."""
    return Result.model_construct(verdicts={"solved": right}, measures={"calls": float(calls)})


def test_the_only_solver_wins_and_of_two_solvers_the_one_with_fewer_calls() -> None:
    cases = [
        (a_result(True, 5), a_result(False, 1), 1.0),
        (a_result(False, 1), a_result(True, 5), 0.0),
        (a_result(True, 2), a_result(True, 3), 1.0),
        (a_result(True, 3), a_result(True, 3), 0.5),
        (a_result(False, 1), a_result(False, 2), 0.5),
    ]
    assert [win(a, b) for a, b, _ in cases] == [expected for *_, expected in cases]


# ---- single steps ----


def test_the_oracle_predicts_each_of_its_own_steps(tmp_path: Path) -> None:
    bench_manifest = manifest("tool_steps", "umi,single", Request(SPLIT, 24, seed=7))
    facts = measured(tmp_path / "out", bench_manifest, oracle_client(SPLIT, 24))
    for arm in facts.results["arms"].values():
        assert arm["accuracy"]["step"]["right"] == arm["accuracy"]["plan"]["right"] == 24
        measures = {name: measure["estimate"] for name, measure in arm["measures"].items()}
        assert measures == {
            "plan_accuracy": 1.0,
            "action_match": 1.0,
            "hallucination": 0.0,
            "argument_f1": 1.0,
            "rouge_l": 1.0,
        }
        assert arm["measures"]["action_match"]["n"] < arm["measures"]["plan_accuracy"]["n"] == 24


async def test_a_step_s_metrics_are_computed_from_the_models_outputs() -> None:
    items = manifest_items(load("tool_steps", Request(SPLIT, 12, seed=7)).items)
    calling = next(i for i in items if "'decision': 'call'" in str(i.about["reference"]))
    environment, instance = calling.task or ("", {})
    run = a_run("umi", calculator=False, constrained=False)
    task = run.task.model_copy(
        update={"environment": environment, "instance": instance, "prompt": calling.question}
    )
    texts = {"umi_planner": [CALL], "umi_caller": [format_call("pay", {})], "umi_summarizer": []}
    hosts = {role: ScriptedHost([says(text) for text in texts]) for role, texts in texts.items()}
    trajectory = await run_locally(run.model_copy(update={"task": task}), hosts)
    judged = StepsJudge().judge(trajectory, calling)
    assert judged.verdicts == {"step": False, "plan": True}
    assert judged.measures == {
        "plan_accuracy": 1.0, "action_match": 0.0, "hallucination": 1.0, "argument_f1": 0.0,
    }  # fmt: skip
    assert class_of(trajectory.outcome, False, judged.signals) is Class.HALLUCINATED


@needs_data
def test_toolbench_steps_have_their_published_tools_and_history() -> None:
    dataset = load("tool_steps", Request("toolbench", 40, seed=7))
    assert len(dataset.items) == 40
    assert dataset.available > 40
    kinds = {str(item.about["reference"])[:22] for item in dataset.items}
    assert len(kinds) >= 2
    assert all(item.gold for item in dataset.items)
    assert "test" in dataset.source


@needs_data
def test_toolalpaca_s_first_calls_are_used_if_there_is_one_right_call(tmp_path: Path) -> None:
    """85 of 100: 8 start with a question to the user, 7 with a value that only a user knew."""
    dataset = load("tool_steps", Request("toolalpaca"))
    assert (len(dataset.items), dataset.available) == (85, 85)
    assert "15 records left out: the first action is not a function of the API: 8 (Abuse" in (
        dataset.source
    )
    assert "the first call has a placeholder: 7 (" in dataset.source
    for item in manifest_items(dataset.items):
        reference = reference_of(item)
        step = GivenStep.model_validate((item.task or ("", {}))[1])
        assert (reference.decision, step.before) == ("call", ())
        assert reference.action in {tool.name for tool in step.tools}
    bench_manifest = manifest("tool_steps", "umi,single", Request("toolalpaca", 6, seed=7))
    facts = measured(tmp_path / "out", bench_manifest, oracle_client(SPLIT, 1))
    assert [arm["n"] for arm in facts.results["arms"].values()] == [6, 6]


def test_a_toolalpaca_function_s_parameters_are_read_from_its_description(tmp_path: Path) -> None:
    description = (
        "Find pets.\nParameters: "
        '{"kind": "Required. string. One of: [cat, dog].", "ages": "Array[string]. Of them.", '
        '"form": "Array[Object{a: string}]. More."}'
        "\nOutput: Pets.\n - Format: application/json"
    )
    golden = {"Action": "find", "Action_Input": '{"kind": "cat"}'}
    optional = {**golden, "Action": "[Optional]find"}
    asks = {"Action": "getDetails", "Action_Input": "{}"}
    placeholder = {**golden, "Action_Input": '{"kind": ${kind}}'}
    api = {
        "Name": "Pets",
        "Function_Description": {"find": description, "count": "How many.", "components": ""},
        "Instructions": ["A cat?", "b", "c", "d"],
        "Golden_Answers": [[golden, asks], [optional], [asks], [placeholder]],
    }
    broken = {**api, "Name": "Bad", "Function_Description": {"find": "Parameters: {"}}
    write(tmp_path / "eval_simulated.json", json.dumps([api, broken]))
    dataset = load("tool_steps", Request("toolalpaca", data=tmp_path))
    [item] = manifest_items(dataset.items)
    assert (item.id, item.question) == ("toolalpaca/Pets/0/0", "A cat?")
    find, count = GivenStep.model_validate((item.task or ("", {}))[1]).tools
    assert find.description == "Find pets.\nOutput: Pets.\n - Format: application/json"
    assert find.parameters == {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "description": "string. One of: [cat, dog]."},
            "ages": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Array[string]. Of them.",
            },
            "form": {"description": "Array[Object{a: string}]. More."},
        },
        "required": ["kind"],
    }
    assert (count.description, count.parameters["properties"]) == ("How many.", {})
    for reason in (
        "the first call is optional: 2 (Pets/1, Bad/1)",
        "the first action is not a function of the API: 2 (Pets/2, Bad/2)",
        "the first call has a placeholder: 2 (Pets/3, Bad/3)",
        "not JSON: 1 (Bad/0)",
    ):
        assert reason in dataset.source


@needs_data
def test_only_toolbench_s_test_queries_are_used_if_the_folder_lists_them(
    tmp_path: Path,
) -> None:
    every = load("tool_steps", Request("toolbench")).items
    folder = tmp_path / "toolbench"
    copytree(Path(os.environ["LOOPLINE_DATA"]) / "tool/toolbench/data_example", folder)
    (folder / "test_query_ids").mkdir(exist_ok=True)
    group, query = every[0].id.split("/")[1:3]
    listed = folder / "test_query_ids" / f"{group}_instruction.json"
    listed.write_text(json.dumps({query.partition("_")[0]: 0}))
    dataset = load("tool_steps", Request("toolbench", data=folder))
    assert 0 < len(dataset.items) < len(every)
    assert {item.id for item in dataset.items} >= {every[0].id}
    assert "test queries" in dataset.source


# ---- one completion for each question ----


def answered(text: str) -> Trajectory:
    return Trajectory(
        run=a_run("completion", prompt="function_calls"),
        steps=(),
        outcome=Outcome.ANSWERED if text else Outcome.GAVE_UP,
        answer=text or None,
        ended=1.0,
    )


def right_answer(item: ManifestItem) -> str:
    """The first possible value of every argument."""
    wanted = item.about["wanted"]
    assert isinstance(wanted, list)
    calls: list[str] = []
    for call in wanted:
        match call:
            case {"name": str(name), "arguments": dict(arguments)}:
                pairs = [
                    f"{key}={values[0]!r}"
                    for key, values in arguments.items()
                    if isinstance(values, list) and values[0] != ""
                ]
                calls.append(f"{name}({', '.join(pairs)})")
            case other:
                raise AssertionError(other)
    return f"[{', '.join(calls)}]" if calls else "No function can do that."


@needs_data
def test_bfcl_s_possible_answers_are_right_and_other_functions_are_not() -> None:
    items = manifest_items(load("bfcl", Request("all", 60, seed=7)).items)
    judge = BfclJudge()
    assert {str(item.about["split"]) for item in items} >= {
        "simple_python",
        "irrelevance",
        "parallel",
    }
    for item in items:
        if "{" not in item.gold:  # possible objects contain lists of values in turn
            assert judge.judge(answered(right_answer(item)), item).verdicts["ast"], item.id
        wrong = judge.judge(answered("[launch(rocket=1)]"), item)
        assert not wrong.verdicts["ast"]
        assert wrong.measures == {"hallucination": 1.0}
        silent = judge.judge(answered(""), item)
        assert not silent.verdicts["ast"], "an error is not an abstention"


@needs_data
def test_bfcl_faults_fall_into_classes() -> None:
    [first, *_] = manifest_items(load("bfcl", Request("simple_python", None)).items)
    judge = BfclJudge()

    def classify(text: str) -> Class:
        judged = judge.judge(answered(text), first)
        return class_of(Outcome.ANSWERED, judged.verdicts["ast"], judged.signals)

    good = right_answer(first)
    assert classify(good) is Class.RIGHT
    assert classify("I would rather not.") is Class.NO_CALL
    assert classify("[fly(to='Oslo')]") is Class.HALLUCINATED
    assert classify(f"{good[:-1]}, {good[1:]}") is Class.WRONG_TOOL
    assert classify(good.replace("=", "_=", 1)) is Class.WRONG_ARGUMENTS


@needs_data
def test_apibench_s_references_are_right_and_invented_ones_are_hallucinations() -> None:
    dataset = load("apibench", Request("torchhub", 20, seed=7))
    judge = ApiBenchJudge(dataset.reference)
    items = manifest_items(dataset.items)
    right = [judge.judge(answered(item.gold), item).verdicts["ast"] for item in items]
    assert all(right)
    made_up = judge.judge(answered("torch.hub.load('me/mine', 'resnet_9000')"), items[0])
    assert made_up.measures == {"hallucination": 1.0}
    assert class_of(Outcome.ANSWERED, False, made_up.signals) is Class.HALLUCINATED


def test_a_benchmark_reports_the_records_that_it_leaves_out(tmp_path: Path) -> None:
    """Each reason with its count and first locations, in the source that every report shows."""
    write(
        tmp_path / "BFCL_v4_irrelevance.json", QUESTION, "{", "[", "]", "}", {**QUESTION, "id": 1}
    )
    assert load("bfcl", Request("irrelevance", data=tmp_path)).source == (
        "BFCL v4 (5 records left out: not JSON: 4 (BFCL_v4_irrelevance.json:2, "
        "BFCL_v4_irrelevance.json:3, BFCL_v4_irrelevance.json:4, …); not the expected fields: 1 "
        "(BFCL_v4_irrelevance.json:6))"
    )
    write(tmp_path / "torchhub_eval.json", APIBENCH, "{")
    shell = {**API, "api_call": "./run.sh --all"}
    write(tmp_path / "torchhub_api.jsonl", API, shell, {**API, "domain": ""})
    assert load("apibench", Request("torchhub", data=tmp_path)).source == (
        "APIBench, evaluation questions (3 records left out: not JSON: 1 (torchhub_eval.json:2); "
        "not the expected fields: 1 (torchhub_api.jsonl:3); an API that is not a call: 1 "
        "(torchhub[1]))"
    )


@needs_data
def test_toolbench_s_answers_without_a_chain_are_reported_with_its_steps() -> None:
    source = load("tool_steps", Request("toolbench", 1)).source
    assert "4 records left out: " in source
    assert "no chain: 2 (G1_answer/69_ChatGPT_DFS_woFilter_w2.json, G3_answer/8_Chat" in source


@needs_data
@pytest.mark.parametrize(
    ("suite", "split", "prompt"),
    [("bfcl", "all", "function_calls"), ("apibench", "torchhub", "api_call")],
)
def test_each_question_is_one_completion_of_a_policy(
    tmp_path: Path, suite: str, split: str, prompt: str
) -> None:
    options: JsonObject = {"prompt": prompt}
    bench_manifest = manifest(suite, "llm,umi/single", Request(split, 10, seed=7), options)
    facts = measured(tmp_path / "out", bench_manifest, oracle_client(SPLIT, 1))
    assert set(facts.results["arms"]) == {"llm", "umi/single"}
    for arm in facts.results["arms"].values():
        assert arm["n"] == 10
        assert arm["usage"]["calls"] == 10


# ---- what is refused ----


def test_a_deployment_without_a_worker_for_a_role_is_refused() -> None:
    bench_manifest = manifest("worlds", "single", Request(SPLIT, 2, seed=7))
    settings = config.load("micro", environ={})
    with pytest.raises(UsageError, match="needs the role 'umi_single', which no worker"):
        add_deployment(bench_manifest, find("worlds").arms.parse("single"), settings)


def test_the_prompt_format_defaults_to_the_profile_s() -> None:
    settings = config.load("umi_micro", environ={})
    arms = find("worlds").arms.parse("umi,single")
    for choices, used in (({}, "signatures"), ({"tool_style": "documents"}, "documents")):
        bench_manifest = manifest(
            "worlds", "umi,single", Request(SPLIT, 2, seed=7), {"constrained": True, **choices}
        )
        options = add_deployment(bench_manifest, arms, settings).workflow_options
        assert options == {"constrained": True, "tool_style": used}


def test_the_win_rate_s_opponent_can_be_a_separate_model() -> None:
    """With the options that the profile `umi` sets."""
    overrides = ["models.single.model=runs/single/single", "models.single.engine=torch",
              "policies.umi_single=single", 'workers.gpu.models=["umi", "single"]']  # fmt: skip
    settings = config.load("umi_micro", overrides=overrides, environ={})
    bench_manifest = manifest("worlds", "umi,single", Request(SPLIT, 2, seed=7))
    pools = add_deployment(bench_manifest, find("worlds").arms.parse("umi,single"), settings).pools
    assert {name: pool.model for name, pool in pools.items()} == {
        "umi": "micro:umi", "single": "runs/single/single",
    }  # fmt: skip
    assert settings.policies["umi_single"] == "single"
    assert settings.policies["umi_planner"] == "umi/planner"


def test_an_arm_that_a_suite_lacks_is_reported() -> None:
    with pytest.raises(UsageError, match="there is no arm 'llm'; there are: umi, single"):
        find("worlds").arms.parse("llm")


def test_runs_are_not_rescored_from_their_last_text(tmp_path: Path) -> None:
    bench_manifest = manifest("worlds", "umi", Request(SPLIT, 2, seed=7))
    measured(tmp_path / "out", bench_manifest, oracle_client(SPLIT, 2))
    with pytest.raises(UsageError, match="judges the actions of a run"):
        rescore_all(tmp_path / "out")
