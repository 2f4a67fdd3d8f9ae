"""Caller's settings of `umi`: a conversation before the question, and the answer's length."""

from __future__ import annotations

from loopline.agents.prompts import load_prompt
from loopline.agents.records import GenerationOptions, Message, Outcome, Run, Task, ToolCall
from loopline.agents.workflow_runner import run_locally
from tests.agents.conversations import ScriptedHost, a_run, says

CALL = ToolCall(id="c", name="weather", arguments={"city": "Oslo"})
TASK = Task(
    prompt="And tomorrow?",
    messages=(
        Message(role="system", content="Speak French."),
        Message(role="user", content="Weather in Oslo?"),
        Message(role="assistant", tool_calls=(CALL,)),
        Message(role="tool", content="rain", tool_call_id="c"),
        Message(role="assistant", content="It rains.</s>"),
        Message(role="user", content="And tomorrow?"),
    ),
)


async def ended(run: Run, summarizer: ScriptedHost, planner: ScriptedHost | None = None):
    """Play a run whose planner concludes at once."""
    concluding = planner or ScriptedHost([says("I know.\n Next: conclusion.")])
    return await run_locally(run, {"umi_planner": concluding, "umi_summarizer": summarizer})


async def test_the_conversation_starts_the_history() -> None:
    planner = ScriptedHost([says("I know.\n Next: conclusion.")])
    summarizer = ScriptedHost([says("Sun.")])
    run = a_run("umi").model_copy(update={"task": TASK})
    trajectory = await ended(run, summarizer, planner)
    assert trajectory.answer == "Sun."
    system, text = planner.requests[0].messages
    assert system.content == f"{load_prompt('umi_planner').text}\n\nSpeak French."
    assert text.content.partition("History:\n")[2] == (
        "user: Weather in Oslo?</s>"
        'caller: Action: weather\nAction Input: {"city": "Oslo"}</s>'
        "observation: rain</s>"
        "conclusion: It rains.< / s ></s>"
        "user: And tomorrow?</s>"
        "\nassistant:"
    )
    assert summarizer.requests[0].messages[0].content.endswith("\n\nSpeak French.")


async def test_an_answer_under_the_caller_s_token_limit_may_be_truncated() -> None:
    cut = says("It is", finish="length")
    run = a_run("umi")
    assert (await ended(run, ScriptedHost([cut]))).outcome is Outcome.GAVE_UP
    short = run.model_copy(update={"generation": GenerationOptions(max_tokens=3)})
    trajectory = await ended(short, ScriptedHost([cut]))
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "It is")
    assert "cut_off" in trajectory.steps[-1].decision.data
