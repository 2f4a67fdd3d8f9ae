"""`umi_single`: one model thinks, calls and answers. It also plays single steps of a given
trajectory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopline.agents.environments import tool_step
from loopline.agents.environments.api_worlds import Instance, Split, instances
from loopline.agents.environments.tool_step import GivenCall, GivenStep
from loopline.agents.errors import InvalidTask
from loopline.agents.records import Outcome, Task, Trajectory
from loopline.agents.replay import replay
from loopline.agents.roles.umi.backbone import (
    CallTurn,
    FinalTurn,
    call_part,
    conclusion_part,
    read_step,
    step_text,
)
from loopline.agents.roles.umi.output import Action, Unreadable
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.agents.roles.umi.transcript import calls_of
from loopline.agents.thinking import split_thoughts
from loopline.agents.tools import tools
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import workflows
from loopline.trainers.data.examples import SetName, examples_of
from loopline.trainers.data.sources import from_worlds
from tests.agents.conversations import ScriptedHost, a_run, says


def calling(thought: str, expression: str) -> str:
    return step_text(thought, call_part(Action("calculate", {"expression": expression})))


def answering(thought: str, answer: str | None) -> str:
    return step_text(thought, conclusion_part(answer))


async def played(
    texts: Sequence[str], task: Task | None = None, **options: object
) -> tuple[Trajectory, ScriptedHost]:
    """Play a run of these texts, which must be reproducible from its journal."""
    run = a_run("umi_single", "What is 12 * 7 + 5?", **options)
    if task is not None:
        run = run.model_copy(update={"task": task})
    host = ScriptedHost([says(text) for text in texts])
    trajectory = await run_locally(run, {"umi_single": host})
    stored = Trajectory.model_validate_json(trajectory.model_dump_json())
    assert (await replay(stored)).divergences == ()
    return trajectory, host


async def test_one_model_calls_a_tool_reads_the_observation_and_answers() -> None:
    run, host = await played(
        [calling("First.", "12 * 7"), calling("Now.", "84 + 5"), answering("Known.", "It is 89.")]
    )
    assert (run.outcome, run.answer) == (Outcome.ANSWERED, "It is 89.")
    assert host.requests[2].last.content.partition("\nHistory:\n")[2] == (
        "user: What is 12 * 7 + 5?</s>"
        'assistant: First.\nAction: calculate\nAction Input: {"expression": "12 * 7"}</s>'
        "observation: 84</s>"
        'assistant: Now.\nAction: calculate\nAction Input: {"expression": "84 + 5"}</s>'
        "observation: 89</s>\nassistant:"
    )
    assert [call.arguments for call in calls_of(run.steps)] == [
        {"expression": "12 * 7"},
        {"expression": "84 + 5"},
    ]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([answering("No tool can.", None)], "umi_single: No tool can."),
        (["I wonder."], "umi_single: its text has no line `Action:` and no line `conclusion:`"),
        ([calling("", "1+1")] * 3, "umi_single: 3 times the same call and observation"),
        (
            [calling("", f"{n}+1") for n in range(3)],
            "umi_single: wants another call after 2, which is the limit",
        ),
    ],
)
async def test_the_model_gives_up_with_a_reason(texts: list[str], reason: str) -> None:
    run, _ = await played(texts, max_calls=2 if "limit" in reason else 6)
    assert run.outcome is Outcome.GAVE_UP
    assert (run.reason or "").startswith(reason)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (step_text("", "Action: oracle\nAction Input: {}"), "there is no tool 'oracle'"),
        ("Action: calculate\nAction Input: {12}", "the arguments are not valid JSON"),
    ],
)
async def test_the_error_of_a_call_is_returned_as_its_observation(text: str, message: str) -> None:
    run, host = await played([text, answering("", "4")])
    assert run.answer == "4"
    assert message in host.requests[1].last.content
    assert calls_of(run.steps) == ()


async def test_a_truncated_call_is_reported_as_truncated() -> None:
    cut = says("Action: calculate\nAction Input: {", finish="length")
    host = ScriptedHost([cut, says(answering("", "4"))])
    await run_locally(a_run("umi_single"), {"umi_single": host})
    assert "(the text was cut off at 512 tokens)" in host.requests[1].last.content


_WORDS = st.text(st.characters(categories=("L", "N", "P", "Zs")), max_size=60).map(str.strip)
_PLAIN = _WORDS.filter(
    lambda text: not any(word in text.lower() for word in ("action", "conclusion", ":", "</s"))
)
_JSON = st.dictionaries(_WORDS, st.one_of(st.integers(), _WORDS, st.lists(_WORDS)), max_size=3)


@given(thought=_PLAIN, arguments=_JSON)
def test_a_written_call_reads_back(thought: str, arguments: dict[str, object]) -> None:
    call = Action("weather", arguments)  # type: ignore[arg-type]
    text = step_text(thought, call_part(call))
    assume(not split_thoughts(text).spans)  # What is within a thought is not read.
    step = read_step(text)
    assert isinstance(step, CallTurn)
    assert step.call == call
    assert step.rationale == thought


@given(thought=_PLAIN, answer=_PLAIN.filter(bool))
def test_a_written_answer_reads_back(thought: str, answer: str) -> None:
    text = step_text(thought, conclusion_part(answer))
    assume(not split_thoughts(text).spans)
    step = read_step(text)
    if not answer.strip("*_` "):
        assert isinstance(step, FinalTurn | Unreadable)
        return
    assert isinstance(step, FinalTurn)
    assert step.answer is None or step.answer == answer.lstrip("*_` ")


@given(st.text(max_size=300))
def test_any_text_is_read_or_reported_as_unreadable(text: str) -> None:
    assert isinstance(read_step(text), CallTurn | FinalTurn | Unreadable)


def an_instance() -> Instance:
    """Return an instance with at least two calls."""
    candidates = instances(Split.TRAIN, 5, 20)
    return next(candidate for candidate in candidates if len(candidate.oracle.steps) >= 2)


def rows(instance: Instance, name: SetName) -> list[tuple[str, str]]:
    """Return the training inputs and targets of the oracle's trajectory."""
    ways = from_worlds("train", 20, 5).trajectories
    way = next(way for way in ways if way.id == instance.id)
    entries = examples_of(way, UmiOptions())
    examples = [entry[1] for entry in entries if isinstance(entry, tuple) and entry[0] == name]
    return [(entry.input, entry.target_text) for entry in examples]


async def test_a_run_sends_exactly_the_texts_of_the_backbone_s_training() -> None:
    instance = an_instance()
    expected = rows(instance, "global_steps")
    run, host = await played([target for _, target in expected], instance.task, calculator=False)
    assert [request.last.content for request in host.requests] == [text for text, _ in expected]
    assert instance.verify(run.answer, calls_of(run.steps)).solved


def given_step(instance: Instance, number: int) -> Task:
    """Return the step of that number, counted from 0, after the oracle's steps before it."""
    before = [
        GivenCall(
            rationale=step.rationale,
            name=step.call.name,
            arguments=step.call.arguments or {},
            output={"result": step.observation},
        )
        for step in instance.oracle.steps[:number]
    ]
    step_instance = GivenStep(tools=instance.tools, before=tuple(before))
    return Task(
        environment=tool_step.ENVIRONMENT,
        instance=step_instance.model_dump(mode="json"),
        prompt=instance.instruction,
    )


async def test_a_given_step_uses_the_training_texts_and_ends_after_one_step() -> None:
    instance = an_instance()
    text, target = rows(instance, "global_steps")[1]
    run, host = await played([target], given_step(instance, 1), calculator=False)
    assert [request.last.content for request in host.requests] == [text]
    assert run.outcome is Outcome.ANSWERED
    assert [name for name, _ in host.tool_calls] == ["noted_call"]


async def test_the_team_plays_a_given_step_with_the_planner_s_own_thought() -> None:
    instance = an_instance()
    (plan_input, plan), (call_input, call) = (
        rows(instance, name)[1] for name in ("planner", "caller")
    )
    run = a_run("umi", calculator=False).model_copy(update={"task": given_step(instance, 1)})
    hosts = {
        role: ScriptedHost([says(text)] if text else [])
        for role, text in zip(workflows.get("umi").roles, (plan, call, ""), strict=True)
    }
    trajectory = await run_locally(run, hosts)
    assert hosts["umi_planner"].requests[0].last.content == plan_input
    assert hosts["umi_caller"].requests[0].last.content == call_input
    assert [step.agent for step in trajectory.steps] == ["umi_planner", "umi_caller"]
    assert trajectory.outcome is Outcome.ANSWERED


async def test_a_noted_call_is_not_executed() -> None:
    assert await tools.get("noted_call").call({"name": "pay", "arguments": {"sum": 5}}) == {
        "result": ""
    }


def test_a_task_that_is_not_a_given_step_is_refused() -> None:
    run = a_run("umi_single")
    task = Task(environment=tool_step.ENVIRONMENT, instance={"tools": [{"name": 1}]}, prompt="?")
    with pytest.raises(InvalidTask, match=r"not a given step: tools\.0\.name"):
        workflows.get("umi_single").first(run.model_copy(update={"task": task}))
