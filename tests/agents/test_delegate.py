"""The `delegate` workflow: planner, small solver, expert, and back."""

from __future__ import annotations

import pytest

from loopline.agents.answers import final_text
from loopline.agents.errors import (
    InvalidOptions,
    JournalIncomplete,
    RequestFailed,
    UnexpectedPayload,
)
from loopline.agents.payloads import QuestionPayload, ResumePayload
from loopline.agents.prompts import prompt_in
from loopline.agents.records import Message, Outcome, Run, Task, Trajectory
from loopline.agents.roles import StepContext, roles
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import workflows
from tests.agents.conversations import ScriptedHost, a_run, asks, says

ASK = {"problem": "What is 3 * 4?", "expected_type": "integer"}


def journey(trajectory: Trajectory) -> list[tuple[str, int, int, str]]:
    return [(s.agent, s.turn, s.branch, s.decision.kind) for s in trajectory.steps]


async def test_a_planner_may_answer_without_delegating() -> None:
    planner = ScriptedHost([says(r"Easy: \boxed{12}")])
    trajectory = await run_locally(a_run(), {"planner": planner})
    assert trajectory.outcome is Outcome.ANSWERED
    assert trajectory.answer == "12"
    assert journey(trajectory) == [("planner", 0, 0, "answer")]


async def test_a_delegated_problem_is_solved_and_the_planner_continues() -> None:
    wants = asks("delegate", dict(ASK))
    first = says("I delegate.", wants)
    planner = ScriptedHost([first, says(r"So \boxed{12}.")])
    slm = ScriptedHost([says(r"3 * 4 = 12. \boxed{12}")])
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm})
    assert journey(trajectory) == [
        ("planner", 0, 0, "delegate"),
        ("slm", 1, 0, "answer"),
        ("planner", 3, 0, "answer"),
    ]
    assert slm.requests[0].messages[1].content == "What is 3 * 4?\nAnswer type: integer."
    assert slm.requests[0].tools == ("calculate",)
    resumed = planner.requests[1]
    assert resumed.messages[:2] == planner.requests[0].messages
    assert resumed.messages[2].content == "I delegate."
    assert (resumed.last.content, resumed.last.tool_call_id) == ("12", wants.id)
    assert resumed.previous == first
    assert (trajectory.answer, final_text(trajectory)) == ("12", r"So \boxed{12}.")


async def test_an_answer_that_fails_the_check_goes_to_the_expert() -> None:
    planner = ScriptedHost([says("", asks("delegate", dict(ASK))), says(r"\boxed{12}")])
    slm = ScriptedHost([says(r"3 * 4 = 13. \boxed{13}")])
    expert = ScriptedHost([says(r"3 * 4 = 12. \boxed{12}")])
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm, "expert": expert})
    assert journey(trajectory) == [
        ("planner", 0, 0, "delegate"),
        ("slm", 1, 0, "escalate"),
        ("expert", 2, 0, "answer"),
        ("planner", 3, 0, "answer"),
    ]
    escalated = trajectory.steps[1].decision.data
    assert escalated["answer"] == "13"
    assert escalated["reason"] == "arithmetic: 3 * 4 = 13 is wrong: the left side is 12"
    assert expert.requests[0].messages[1] == slm.requests[0].messages[1]
    assert planner.requests[1].last.content == "12"


async def test_only_the_sub_task_with_doubtful_tokens_goes_to_the_expert() -> None:
    sure, doubtful = (
        says(r"3 * 4 = 12. \boxed{12}").model_copy(update={"raw_logprobs": (value, value)})
        for value in (-0.1, -2.0)
    )
    twice = says("", asks("delegate", dict(ASK)), asks("delegate", dict(ASK)))
    hosts = {
        "planner": ScriptedHost([twice, says(r"\boxed{24}")]),
        "slm": ScriptedHost([sure, doubtful]),
        "expert": ScriptedHost([says(r"\boxed{12}")]),
    }
    trajectory = await run_locally(a_run(min_logprob=-0.5), hosts)
    assert sorted(journey(trajectory)) == [
        ("expert", 2, 1, "answer"),
        ("planner", 0, 0, "delegate"),
        ("planner", 3, 0, "answer"),
        ("slm", 1, 0, "answer"),
        ("slm", 1, 1, "escalate"),
    ]
    (escalated,) = (step for step in trajectory.steps if step.decision.kind == "escalate")
    assert escalated.decision.data["reason"] == "logprob: -2.000, at least -0.5"


async def test_a_small_model_that_goes_in_circles_is_replaced_by_the_expert() -> None:
    planner = ScriptedHost([says("", asks("delegate", dict(ASK))), says(r"\boxed{12}")])
    slm = ScriptedHost(lambda _: says("", asks("calculate", expression="1")))
    expert = ScriptedHost([says(r"\boxed{12}")])
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm, "expert": expert})
    assert trajectory.steps[1].decision.data["reason"] == "no answer after 12 completions"
    assert trajectory.outcome is Outcome.ANSWERED


async def test_a_problem_that_the_expert_cannot_solve_is_an_error_for_the_planner() -> None:
    planner = ScriptedHost([says("", asks("delegate", dict(ASK))), says(r"Then \boxed{12}")])
    slm = ScriptedHost([says("no idea")])
    expert = ScriptedHost([says("no idea\neither")])
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm, "expert": expert})
    assert trajectory.steps[2].decision.kind == "give_up"
    assert planner.requests[1].last.content == (
        r"error: schema: there is no \boxed{…}, expected: integer"
    )
    assert trajectory.answer == "12"


async def test_parallel_problems_are_answered_by_call_and_number() -> None:
    single = asks("delegate", problem="A?", expected_type="integer")
    sum_ = asks("calculate", expression="20+1")
    many = asks(
        "delegate_many",
        problems=[
            {"problem": "B?", "expected_type": "integer"},
            {"problem": "C?", "expected_type": "text"},
        ],
    )
    planner = ScriptedHost([says("", single, sum_, many), says(r"\boxed{0}")])
    answers = {"A?": r"\boxed{1}", "B?": r"\boxed{2}", "C?": r"\boxed{red}"}
    slm = ScriptedHost(lambda request: says(answers[request.last.content.split("\n")[0]]))
    trajectory = await run_locally(
        a_run(), {"planner": planner, "slm": slm}, pick=lambda waiting: len(waiting) - 1
    )
    assert [step.branch for step in trajectory.steps] == [0, 2, 1, 0, 0]
    replies = planner.requests[1].messages[3:]
    assert [(m.tool_call_id, m.content) for m in replies] == [
        (single.id, "1"),
        (sum_.id, "21"),
        (many.id, "1: 2\n2: red"),
    ]


async def test_a_run_whose_planner_only_delegates_gives_up_at_the_turn_limit() -> None:
    planner = ScriptedHost(lambda _: says("", asks("delegate", dict(ASK))))
    slm = ScriptedHost(lambda _: says(r"\boxed{12}"))
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm})
    assert trajectory.outcome is Outcome.GAVE_UP
    assert trajectory.reason == "planner: no answer within 24 turns"
    assert len(planner.requests) == 8
    assert max(step.turn for step in trajectory.steps) == 21


async def test_a_text_truncated_before_its_answer_is_not_an_answer() -> None:
    planner = ScriptedHost([says("The first step is", finish="length")])
    trajectory = await run_locally(a_run(), {"planner": planner})
    assert trajectory.outcome is Outcome.GAVE_UP
    assert trajectory.reason == "planner: the text was cut off at 512 tokens, before an answer"
    assert trajectory.answer is None
    assert final_text(trajectory) == "The first step is"


@pytest.mark.parametrize("text", ["", "  \n ", r"\boxed{}"])
async def test_an_empty_text_is_not_an_answer(text: str) -> None:
    trajectory = await run_locally(a_run(), {"planner": ScriptedHost([says(text)])})
    assert trajectory.outcome is Outcome.GAVE_UP


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("auth", Outcome.ERROR), ("deadline", Outcome.DEADLINE), ("budget", Outcome.BUDGET)],
)
async def test_a_permanently_failed_request_ends_the_run_with_the_reason(
    kind: str, outcome: Outcome
) -> None:
    planner = ScriptedHost([says("", asks("delegate", dict(ASK)))])
    slm = ScriptedHost([RequestFailed(kind, "it says no")])
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm})
    assert trajectory.outcome is outcome
    assert trajectory.reason == f"slm: {kind}: it says no"
    assert journey(trajectory)[-1] == ("slm", 1, 0, "failed")


async def test_a_problem_too_long_for_the_small_model_goes_to_the_expert() -> None:
    planner = ScriptedHost([says("", asks("delegate", dict(ASK))), says(r"\boxed{12}")])
    slm = ScriptedHost([RequestFailed("context_overflow", "4,096 tokens at most")])
    expert = ScriptedHost([says(r"\boxed{12}")])
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm, "expert": expert})
    assert trajectory.outcome is Outcome.ANSWERED
    assert trajectory.steps[1].decision.data["reason"] == "context_overflow: 4,096 tokens at most"


async def test_a_run_without_the_calculator_offers_it_to_no_role() -> None:
    planner = ScriptedHost([says("", asks("delegate", dict(ASK))), says(r"\boxed{12}")])
    slm = ScriptedHost([says(r"\boxed{12}")])
    await run_locally(a_run(calculator=False), {"planner": planner, "slm": slm})
    assert planner.requests[0].tools == ("delegate", "delegate_many")
    assert slm.requests[0].tools == ()


async def test_the_solo_workflow_is_one_step_with_the_unchanged_question() -> None:
    host = ScriptedHost([says("", asks("calculate", expression="3*4")), says(r"\boxed{12}")])
    trajectory = await run_locally(a_run("solo"), {"solo": host})
    assert journey(trajectory) == [("solo", 0, 0, "answer")]
    assert host.requests[0].messages[1].content == "What is 3 * 4?"
    assert len(trajectory.steps[0].calls) == 2


async def test_a_planner_reports_which_answer_is_missing_from_the_journal() -> None:
    planner = ScriptedHost([says("", asks("delegate", dict(ASK))), says(r"\boxed{12}")])
    slm = ScriptedHost([says(r"\boxed{12}")])
    trajectory = await run_locally(a_run(), {"planner": planner, "slm": slm})
    context = StepContext(
        run=trajectory.run,
        journal=trajectory.steps[:1],
        payload=ResumePayload(asked_turn=0, branches=1),
        turn=3,
    )
    with pytest.raises(JournalIncomplete, match="branch 0 of the delegation in turn 0"):
        await roles.get("planner").step(context, ScriptedHost([]))


async def test_a_role_refuses_a_payload_that_it_cannot_start_from() -> None:
    context = StepContext(run=a_run(), journal=(), payload=QuestionPayload(), turn=1)
    with pytest.raises(UnexpectedPayload, match="slm takes no 'question'"):
        await roles.get("slm").step(context, ScriptedHost([]))


def test_an_invalid_option_is_refused_by_name() -> None:
    workflow = workflows.get("delegate")
    assert workflow.check_options({}) == {
        "calculator": True,
        "prompts": "general",
        "min_logprob": None,
    }
    assert workflow.check_options({"calculator": False})["calculator"] is False
    with pytest.raises(InvalidOptions, match=r"option 'prompts' .*'general' or 'mathematics'"):
        workflow.check_options({"prompts": "poetry"})
    with pytest.raises(InvalidOptions, match="option 'calcualtor' of workflow 'delegate'"):
        workflow.check_options({"calcualtor": False})
    with pytest.raises(InvalidOptions, match="option 'calculator'"):
        workflow.check_options({"calculator": "no"})


def with_conversation(run: Run) -> Run:
    turns = (
        Message(role="system", content="Answer in French."),
        Message(role="user", content="What is 3 * 4?"),
        Message(role="assistant", content="Douze."),
        Message(role="user", content="And 3 * 5?"),
    )
    return run.model_copy(update={"task": Task(prompt="And 3 * 5?", messages=turns)})


@pytest.mark.parametrize(("workflow", "role"), [("delegate", "planner"), ("solo", "solo")])
async def test_the_caller_s_conversation_reaches_the_model_that_answers(
    workflow: str, role: str
) -> None:
    host = ScriptedHost([says(r"\boxed{15}")])
    await run_locally(with_conversation(a_run(workflow)), {role: host})
    system, *turns = host.requests[0].messages
    prompt = prompt_in("mathematics", role).text
    assert (system.role, system.content) == ("system", f"{prompt}\n\nAnswer in French.")
    written = [(turn.role, turn.content) for turn in turns]
    assert written == [("user", "What is 3 * 4?"), ("assistant", "Douze."), ("user", "And 3 * 5?")]
