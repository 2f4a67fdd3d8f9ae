"""`cascade`: the small model first, then the big one for answers that the ladder doubts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopline.agents.errors import InvalidOptions
from loopline.agents.records import Call, Outcome, Run, SamplingParams
from loopline.agents.replay import replay
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import workflows
from loopline.trainers.router.labelled import read_labelled
from loopline.trainers.router.training import train_router
from tests.agents.conversations import ScriptedHost, a_run, says
from tests.trainers.labelled_answers import labelled_rows, write_rows


def cascade(**options: object) -> Run:
    return a_run("cascade", "What is 3 * 4?", expected_type="number", **options)


def sampled(*texts: str) -> tuple[Call, ...]:
    """One batch."""
    hot = SamplingParams(temperature=0.8)
    return tuple(says(text).model_copy(update={"sampling": hot}) for text in texts)


RIGHT, WRONG_SUM = r"3 * 4 = 12, so \boxed{12}", r"3 * 4 = 14, so \boxed{14}"


async def test_an_answer_that_passes_the_ladder_is_final_and_the_big_model_is_not_asked() -> None:
    small, big = ScriptedHost([says(RIGHT)]), ScriptedHost([])
    trajectory = await run_locally(cascade(), {"first": small, "solo": big})
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "12")
    assert [step.agent for step in trajectory.steps] == ["first"]
    assert (await replay(trajectory)).reproduced


@pytest.mark.parametrize("text", [WRONG_SUM, "no idea", ""])
async def test_the_big_model_answers_the_whole_question_when_a_rung_fails(text: str) -> None:
    small, big = ScriptedHost([says(text)]), ScriptedHost([says(RIGHT)])
    trajectory = await run_locally(cascade(), {"first": small, "solo": big})
    assert trajectory.answer == "12"
    assert [step.agent for step in trajectory.steps] == ["first", "solo"]
    assert trajectory.steps[0].decision.data["reason"]
    assert "3 * 4 = 14" not in str(big.requests[0].messages)
    assert (await replay(trajectory)).reproduced


async def test_samples_that_disagree_send_the_question_to_the_big_model() -> None:
    samples = sampled(RIGHT, r"\boxed{7}", r"\boxed{9}", r"\boxed{8}")
    small, big = ScriptedHost([says(RIGHT), samples]), ScriptedHost([says(RIGHT)])
    trajectory = await run_locally(cascade(samples=4), {"first": small, "solo": big})
    step = trajectory.steps[0]
    assert step.decision.kind == "escalate"
    assert "25% of 4 samples" in str(step.decision.data["reason"])
    assert len(step.calls) == 5
    assert (await replay(trajectory)).reproduced


async def test_every_rung_that_was_checked_has_its_price() -> None:
    priced = [
        call.model_copy(update={"cost_micro_dollars": 7}) for call in sampled(RIGHT, RIGHT, RIGHT)
    ]
    small = ScriptedHost([priced[0], tuple(priced[1:])])
    trajectory = await run_locally(cascade(samples=2), {"first": small})
    prices = trajectory.steps[0].decision.data["prices"]
    assert prices == {"answer": 7, "schema": 0, "arithmetic": 0, "agreement": 14}


async def test_samples_at_temperature_zero_prove_nothing() -> None:
    small, big = ScriptedHost([says(RIGHT), (says(RIGHT),) * 2]), ScriptedHost([says(RIGHT)])
    trajectory = await run_locally(cascade(samples=2), {"first": small, "solo": big})
    assert "temperature 0" in str(trajectory.steps[0].decision.data["reason"])


@pytest.mark.parametrize(
    ("logprobs", "agents"),
    [((-0.1, -0.2), ["first"]), ((-3.0, -2.0), ["first", "solo"]), ((), ["first", "solo"])],
)
async def test_unlikely_or_unknown_tokens_fail_the_logprob_rung(
    logprobs: tuple[float, ...], agents: list[str]
) -> None:
    answer = says(RIGHT).model_copy(update={"raw_logprobs": logprobs, "logprobs": ()})
    small, big = ScriptedHost([answer]), ScriptedHost([says(RIGHT)])
    trajectory = await run_locally(cascade(min_logprob=-0.5), {"first": small, "solo": big})
    assert [step.agent for step in trajectory.steps] == agents


async def test_an_audited_question_also_goes_to_the_big_model_whose_answer_counts() -> None:
    small, big = ScriptedHost([says(RIGHT)]), ScriptedHost([says(r"\boxed{13}")])
    trajectory = await run_locally(cascade(audit=1.0), {"first": small, "solo": big})
    assert [step.decision.kind for step in trajectory.steps] == ["answer", "answer"]
    assert trajectory.answer == "13"


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("router")
    rows = read_labelled(write_rows(folder / "rows.jsonl", labelled_rows(400, signal=True)))
    path = folder / "apples.router.json"
    path.write_text(
        train_router(rows, alpha=0.1, delta=0.1, seed=1, where="rows").model_dump_json()
    )
    return path


@pytest.mark.parametrize(("wrong", "agents"), [(False, ["first"]), (True, ["first", "solo"])])
async def test_the_router_file_s_learned_score_decides(
    router: Path, wrong: bool, agents: list[str]
) -> None:
    row = next(
        row for row in labelled_rows(400, signal=True, seed=2)
        if row["small"]["right"] is not wrong and ("maybe" in row["small"]["text"]) is wrong
    )  # fmt: skip
    run = a_run(
        "cascade", row["question"], prompts="general", expected_type="text", router=str(router)
    )
    small, big = ScriptedHost([says(row["small"]["text"])]), ScriptedHost([says("#### 1")])
    trajectory = await run_locally(run, {"first": small, "solo": big})
    assert [step.agent for step in trajectory.steps] == agents
    assert (await replay(trajectory)).reproduced


@pytest.mark.parametrize("content", [None, "{}", '{"kind": "router"}', "not JSON"])
async def test_an_invalid_router_file_accepts_nothing_and_reports_why(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "bad.router.json"
    if content is not None:
        path.write_text(content)
    small, big = ScriptedHost([says(RIGHT)]), ScriptedHost([says(RIGHT)])
    trajectory = await run_locally(cascade(router=str(path)), {"first": small, "solo": big})
    assert [step.agent for step in trajectory.steps] == ["first", "solo"]
    assert str(path) in str(trajectory.steps[0].decision.data["reason"])


@pytest.mark.parametrize(
    "options",
    [{"samples": 17}, {"min_logprob": 0.5}, {"router": "/etc/passwd"}, {"audit": 2}, {"typo": 1}],
)
def test_invalid_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptions):
        workflows.get("cascade").check_options(json.loads(json.dumps(options)))
