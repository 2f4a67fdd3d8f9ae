"""No role mistakes a model's thoughts for its answer, its call or its working."""

from __future__ import annotations

import pytest

from loopline.agents.answers import final_text
from loopline.agents.records import Outcome
from loopline.agents.replay import replay
from loopline.agents.roles.conversation import assistant_message
from loopline.agents.workflow_runner import run_locally
from tests.agents.conversations import ScriptedHost, a_run, asks, says

REJECTED = 'Action: calculate\nAction Input: {"expression": "9*7"}'
CALCULATES = 'Action: calculate\nAction Input: {"expression": "6*7"}'


async def test_a_right_answer_is_not_escalated_for_a_false_equation_in_a_thought() -> None:
    planner = ScriptedHost(
        [says("", asks("delegate", problem="12 * 7?", expected_type="integer")), says("84")]
    )
    slm = ScriptedHost([says("<think>12 * 7 = 80? No.</think>12 * 7 = 84, so \\boxed{84}")])
    run = await run_locally(a_run(), {"planner": planner, "slm": slm})
    assert [step.agent for step in run.steps] == ["planner", "slm", "planner"]
    assert (run.outcome, run.answer) == (Outcome.ANSWERED, "84")
    assert (await replay(run)).divergences == ()
    (call,) = run.steps[1].calls
    assert call.thought == "12 * 7 = 80? No."
    assert "<think>" in call.text


async def test_alpha_umi_reads_the_plan_and_the_call_after_the_thoughts() -> None:
    hosts = {
        "umi_planner": ScriptedHost(
            [says("<think>Next: conclusion? No.</think>I compute. Next: caller."),
             says("Next: caller?\n</think>\nKnown. Next: conclusion.")]
        ),
        "umi_caller": ScriptedHost([says(f"<think>{REJECTED}</think>{CALCULATES}")]),
        "umi_summarizer": ScriptedHost([says("<think>43?</think>It is 42.\nReally.")]),
    }  # fmt: skip
    run = await run_locally(a_run("umi", "What is 6*7?"), hosts)
    assert (run.outcome, run.answer) == (Outcome.ANSWERED, "It is 42.\nReally.")
    assert run.steps[1].decision.data["arguments"] == {"expression": "6*7"}
    assert "9*7" not in hosts["umi_planner"].requests[1].last.content
    assert final_text(run) == "Known. Next: conclusion."


@pytest.mark.parametrize("text", ["<think>12 * 7 = 84, \\boxed{84}", "12 * 7 = 84, \\boxed{84}"])
async def test_a_completion_with_only_thoughts_is_not_an_answer(text: str) -> None:
    """The second model's template opened the thought in the prompt."""
    call = says(text).model_copy(update={"begins_in_thought": "<think>" not in text})
    run = await run_locally(a_run("solo"), {"solo": ScriptedHost([call])})
    assert (run.outcome, run.answer) == (Outcome.GAVE_UP, None)
    assert "all thought" in (run.reason or "")


async def test_the_whole_answer_reaches_the_caller() -> None:
    text = "Warm: 20 °C ~ 68 °F.\n\n```python\nprint(1)\n```\n" + "More. " * 1_000 + "The end."
    run = await run_locally(a_run("solo"), {"solo": ScriptedHost([says(text)])})
    assert run.answer == text


@pytest.mark.parametrize(
    "markup",
    ['<tool_call>\n{"name": "calculate", "arguments": {}}\n</tool_call>', "[TOOL_CALLS][{}]"],
)
async def test_call_markup_is_never_the_answer(markup: str) -> None:
    run = await run_locally(a_run("solo", calculator=False), {"solo": ScriptedHost([says(markup)])})
    assert (run.outcome, run.answer) == (Outcome.GAVE_UP, None)
    assert "call of a tool" in (run.reason or "")


def test_thoughts_are_sent_back_only_in_text_that_a_template_reads() -> None:
    markup = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "6*7"}}\n</tool_call>'
    call = says(f"<think>Hm.</think>I compute.\n{markup}", asks("calculate", expression="6*7"))
    message = assistant_message(call)
    assert message.content == "I compute."
    assert message.raw_text == call.text
