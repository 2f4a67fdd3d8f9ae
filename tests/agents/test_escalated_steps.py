"""Only an agent's doubtful step goes to the big model; the small one continues after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopline.agents.errors import InvalidOptions
from loopline.agents.generation import generation_of
from loopline.agents.records import (
    Call,
    GenerationOptions,
    JsonObject,
    Outcome,
    Run,
    SamplingParams,
    Step,
    Trajectory,
)
from loopline.agents.replay import replay
from loopline.agents.roles.escalation import replacements
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import policies_for, workflows
from loopline.trainers.router.labelled import read_labelled
from loopline.trainers.router.training import train_router
from loopline.workers.canaries.records import record_of
from tests.agents.conversations import Reply, ScriptedHost, a_run, asks, asks_badly, says
from tests.trainers.labelled_answers import labelled_rows, write_rows

SURE, DOUBTFUL = (-0.1,), (-3.0,)


def agent_run(**escalation: object) -> Run:
    return a_run("agent", "What is 3 * 4 + 1?", tools=["calculate"], escalation=escalation)


def with_logprobs(call: Call, values: tuple[float, ...]) -> Call:
    return call.model_copy(update={"raw_logprobs": values})


def batch(*calls: Call) -> tuple[Call, ...]:
    hot = SamplingParams(temperature=0.8)
    return tuple(call.model_copy(update={"sampling": hot}) for call in calls)


async def played(
    run: Run, small: list[Reply], big: list[Reply]
) -> tuple[Trajectory, ScriptedHost, ScriptedHost]:
    second = ScriptedHost(big)
    first = ScriptedHost(small, others={"agent.big": second})
    return await run_locally(run, {"agent": first}), first, second


def ladder(step: Step) -> list[Any]:
    climbs = step.observation["escalation"]
    assert isinstance(climbs, list)
    return climbs


async def test_the_big_model_makes_a_doubtful_call_and_the_small_one_continues() -> None:
    wrong = with_logprobs(says("", asks("calculate", expression="3 + 4")), DOUBTFUL)
    right = says("", asks("calculate", expression="3 * 4")).model_copy(
        update={"cost_micro_dollars": 70}
    )
    end = with_logprobs(says("13"), SURE)
    trajectory, small, big = await played(agent_run(min_logprob=-1), [wrong, end], [right])
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "13")
    assert len(big.requests) == 1
    assert big.requests[0].messages == small.requests[0].messages
    assert "12" in small.requests[1].last.content
    assert small.requests[1].previous is None
    assert small.tool_calls == [("calculate", {"expression": "3 * 4"})]
    (step,) = trajectory.steps
    assert [climb["escalated"] for climb in ladder(step)] == [True, False]
    assert ladder(step)[0]["prices"] == {
        "answer": 0, "schema": 0, "logprob": 0, "escalation": 70,
    }  # fmt: skip
    assert replacements(step) == {1}
    assert (await replay(trajectory)).reproduced


async def test_samples_are_drawn_in_one_batch_with_the_actual_call() -> None:
    def call(expression: str) -> Call:
        return says("", asks("calculate", expression=expression))

    agree = batch(call("3 * 4"), call("3 + 4"), call("3 * 4"), call("3 * 4"))
    differ = batch(says("13"), says("14"), says("15"), says("16"))
    trajectory, small, big = await played(agent_run(samples=3), [agree, differ], [says("13")])
    assert trajectory.answer == "13"
    assert len(small.requests) == 2
    assert len(big.requests) == 1
    (step,) = trajectory.steps
    reasons = [climb["verification"][-1]["reason"] for climb in ladder(step)]
    assert reasons == [
        "67% of 3 samples agree, at least 60%",
        "0% of 3 samples agree, at least 60%",
    ]
    assert len(step.calls) == 9
    assert replacements(step) == {8}
    assert (await replay(trajectory)).reproduced


@pytest.mark.parametrize(
    "doubtful",
    [
        says("", asks("no_such_tool")),
        says("", asks_badly("calculate", "3 *")),
        says(""),
        says("thirt", finish="length"),
    ],
)
async def test_a_malformed_call_or_text_is_always_doubtful(doubtful: Call) -> None:
    trajectory, _, big = await played(agent_run(), [doubtful], [says("13")])
    assert trajectory.answer == "13"
    assert len(big.requests) == 1


@pytest.mark.parametrize(("text", "times"), [("3 * 4 = 12", 0), ("3 * 4 = 14", 1)])
async def test_a_false_equation_is_doubtful_where_equations_are_recomputed(
    text: str, times: int
) -> None:
    _, _, big = await played(agent_run(arithmetic=True), [says(text)], [says("12")])
    assert len(big.requests) == times


async def test_the_big_model_rewrites_an_answer_of_the_wrong_form() -> None:
    run = a_run("agent", "How many?", answer={"type": "integer"}, escalation={})
    trajectory, _, big = await played(run, [says("many")], [says("13")])
    assert trajectory.answer == "13"
    assert big.requests[0].json_schema == {"type": "integer"}


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("router")
    rows = read_labelled(write_rows(folder / "rows.jsonl", labelled_rows(400, signal=True)))
    path = folder / "apples.router.json"
    learned = train_router(rows, alpha=0.1, delta=0.1, seed=1, where="rows")
    path.write_text(learned.model_dump_json())
    return path


@pytest.mark.parametrize(("wrong", "times"), [(False, 0), (True, 1)])
async def test_a_router_judges_the_final_text_of_any_agent(
    router: Path, wrong: bool, times: int
) -> None:
    row = next(
        row for row in labelled_rows(400, signal=True, seed=2)
        if row["small"]["right"] is not wrong and ("maybe" in row["small"]["text"]) is wrong
    )  # fmt: skip
    run = a_run("agent", row["question"], escalation={"router": str(router)})
    trajectory, _, big = await played(run, [says(row["small"]["text"])], [says("#### 1")])
    assert len(big.requests) == times
    assert (await replay(trajectory)).reproduced


async def test_an_agent_of_a_team_escalates_alone_to_its_own_big_model() -> None:
    team: JsonObject = {
        "kind": "sequence",
        "parts": [
            {"kind": "agent", "name": "writer", "model": "slm",
             "escalation": {"model": "llm", "min_logprob": -1}},
            {"kind": "agent", "name": "editor", "model": "slm"},
        ],
    }  # fmt: skip
    run = a_run("team", "Write.", team=team)
    assert policies_for("team", options=run.options) == {
        "writer": "slm", "editor": "slm", "writer.big": "llm",
    }  # fmt: skip
    assert policies_for("team", {"writer.big": "huge"}, options=run.options)["writer.big"] == "huge"
    big = ScriptedHost([says("better")])
    writer = with_logprobs(says("bad"), DOUBTFUL)
    host = ScriptedHost([writer, says("done")], others={"writer.big": big})
    trajectory = await run_locally(run, {"writer": host, "editor": host})
    assert trajectory.answer == "done"
    assert "better" in host.requests[1].last.content
    assert (await replay(trajectory)).reproduced


async def test_the_caller_s_options_also_apply_to_the_model_that_takes_doubtful_steps() -> None:
    run = agent_run().model_copy(update={"generation": GenerationOptions(max_tokens=7)})
    for agent in ("agent", "agent.big"):
        options = generation_of(run, agent, None)
        assert options is not None
        assert options.max_tokens == 7


async def test_a_cascade_may_escalate_only_doubtful_steps() -> None:
    run = a_run("cascade", "What is 3 * 4?", expected_type="number", escalate="step")
    slip = says("3 * 4 = 14, let me see", asks("calculate", expression="14"))
    better = says("", asks("calculate", expression="3 * 4"))
    big = ScriptedHost([better])
    small = ScriptedHost([slip, says(r"\boxed{12}")], others={"solo": big})
    trajectory = await run_locally(run, {"first": small, "solo": ScriptedHost([])})
    assert trajectory.answer == "12"
    assert [step.agent for step in trajectory.steps] == ["first"]
    assert "3 * 4 = 14" not in str(small.requests[1].messages)
    (step,) = trajectory.steps
    assert step.decision.data["prices"] == {
        "answer": 0, "schema": 0, "arithmetic": 0, "escalation": 0,
    }  # fmt: skip
    assert (await replay(trajectory)).reproduced


async def test_a_canary_is_compared_only_by_its_own_completions() -> None:
    doubtful = with_logprobs(says("12?"), DOUBTFUL)
    version = doubtful.policy.model_copy(update={"version": 7})
    doubtful = doubtful.model_copy(update={"policy": version})
    trajectory, _, _ = await played(agent_run(min_logprob=-1), [doubtful], [says("13")])
    assert record_of(trajectory).versions == {"llm": frozenset({7})}


@pytest.mark.parametrize(
    "escalation", [{"samples": 17}, {"min_logprob": 1}, {"router": "/etc/passwd"}, {"typo": 1}]
)
def test_invalid_options_are_refused(escalation: JsonObject) -> None:
    with pytest.raises(InvalidOptions, match="escalation"):
        workflows.get("agent").check_options({"escalation": escalation})
