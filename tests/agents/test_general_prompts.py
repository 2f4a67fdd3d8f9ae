"""`solo` and `delegate` on questions of any domain."""

from __future__ import annotations

import pytest

from loopline.agents.payloads import ExpectedType
from loopline.agents.prompts import prompt_in
from loopline.agents.records import Outcome
from loopline.agents.typed_answers import answer_in
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import prompt_hashes, workflows
from tests.agents.conversations import ScriptedHost, a_run, asks, says

CAPITAL = "Capital of France?"


@pytest.mark.parametrize(("workflow", "role"), [("delegate", "planner"), ("solo", "solo")])
async def test_a_general_prompt_serves_questions_of_any_domain(workflow: str, role: str) -> None:
    options = workflows.get(workflow).check_options({})
    host = ScriptedHost([says("Paris.")])
    trajectory = await run_locally(a_run(workflow, CAPITAL, **options), {role: host})
    system, question = host.requests[0].messages
    assert system.content == prompt_in("general", role).text
    assert not {"math", "problem", "boxed"} & {*system.content.lower().split()}
    assert (question.content, trajectory.answer) == (CAPITAL, "Paris.")
    assert trajectory.run.prompts == prompt_hashes(workflow)


async def test_the_answer_is_the_model_s_verbatim_text() -> None:
    text = "  It is 12~14 °C.\n\n```tex\n\\boxed{12}\n```\n" + "A line of it.\n" * 500
    host = ScriptedHost([says(text)])
    trajectory = await run_locally(a_run("solo", prompts="general"), {"solo": host})
    assert trajectory.answer == text


async def test_a_truncated_text_is_an_answer_marked_as_truncated() -> None:
    host = ScriptedHost([says("Once upon a", finish="length")])
    trajectory = await run_locally(a_run("solo", prompts="general"), {"solo": host})
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "Once upon a")
    assert "cut off at" in str(trajectory.steps[0].decision.data["cut_off"])


async def test_tasks_of_any_type_are_handed_over_and_their_answers_returned() -> None:
    problems = [
        {"problem": "Name two rivers.", "expected_type": "list"},
        {"problem": "Is the Seine one?", "expected_type": "boolean"},
        {"problem": "Write a line about it.", "expected_type": "text"},
    ]
    planner = ScriptedHost([says("", asks("delegate_many", problems=problems)), says("Done.")])
    answers = iter(
        [says('I know.\nAnswer: ["Seine", "Rhône"]'), says("Answer: **Yes.**"), says("A river.\n")]
    )
    slm = ScriptedHost(lambda request: next(answers))
    run = a_run("delegate", "Rivers?", prompts="general")
    trajectory = await run_locally(run, {"planner": planner, "slm": slm})
    assert slm.requests[0].messages[0].content == prompt_in("general", "slm").text
    assert planner.requests[1].last.content.splitlines() == [
        '1: ["Seine", "Rhône"]',
        "2: true",
        "3: A river.",
    ]
    assert trajectory.answer == "Done."


async def test_an_answer_of_the_wrong_type_goes_to_the_expert() -> None:
    call = asks("delegate", problem="When was it?", expected_type="date")
    hosts = {
        "planner": ScriptedHost([says("", call), says("In July.")]),
        "slm": ScriptedHost([says("Answer: in summer")]),
        "expert": ScriptedHost([says("Answer: 1789-07-14")]),
    }
    trajectory = await run_locally(a_run("delegate", "When?", prompts="general"), hosts)
    assert [step.agent for step in trajectory.steps] == ["planner", "slm", "expert", "planner"]
    assert "expected: date" in str(trajectory.steps[1].decision.data["reason"])
    assert hosts["planner"].requests[1].last.content == "1789-07-14"


async def test_an_equation_in_a_text_is_not_recomputed() -> None:
    call = asks("delegate", problem="Quote the poster.", expected_type="text")
    hosts = {
        "planner": ScriptedHost([says("", call), says("There.")]),
        "slm": ScriptedHost([says("It says that 2 + 2 = 5.")]),
    }
    trajectory = await run_locally(a_run("delegate", "?", prompts="general"), hosts)
    assert trajectory.answer == "There."


async def test_a_truncated_text_is_not_an_answer_to_a_task() -> None:
    call = asks("delegate", problem="Write a story.", expected_type="text")
    hosts = {
        "planner": ScriptedHost([says("", call), says("There.")]),
        "slm": ScriptedHost([says("Once upon", finish="length")]),
        "expert": ScriptedHost([says("Once upon a time.")]),
    }
    await run_locally(a_run("delegate", "?", prompts="general"), hosts)
    assert hosts["planner"].requests[1].last.content == "Once upon a time."


@pytest.mark.parametrize(
    ("text", "expected", "answer"),
    [
        ("It is two lines:\none\ntwo", "text", "It is two lines:\none\ntwo"),
        ("  ", "text", None),
        ("6 * 8 = 48\nAnswer: 48", "integer", "48"),
        ("**Answer:** 1,000 euros", "integer", "1000"),
        ("Final answer: 0.5", "number", "0.5"),
        ("so \\boxed{7}", "integer", "7"),
        ("42", "integer", "42"),
        ("Answer: about ten", "integer", None),
        ("Answer: 2.5", "integer", None),
        ("No.", "boolean", "false"),
        ("Answer: TRUE", "boolean", "true"),
        ("Answer: maybe", "boolean", None),
        ("Answer: 2024-02-29", "date", "2024-02-29"),
        ("Answer: 2023-02-29", "date", None),
        ("Answer: 29 February 2024", "date", None),
        ('Answer:\n```json\n{"a": [1]}\n```', "json", '{"a": [1]}'),
        ('See:\n```json\n{"a": 1}\n```\nThat is it.', "json", '{"a": 1}'),
        ('````json\n{"a": "```"}\n````', "json", '{"a": "```"}'),
        ('See:\n````json\n{"a": 1}\n````', "json", '{"a": 1}'),
        ('See:\n~~~json\n{"a": 1}\n~~~', "json", '{"a": 1}'),
        ("1. See:\n   ```json\n   [1]\n   ```\nThat is it.", "list", "[1]"),
        ("Answer：42", "integer", "42"),
        ("Answer: 1.5e-3", "number", "0.0015"),
        ("Answer: 2E3", "integer", "2000"),
        ("Answer: 1e9999", "number", None),
        ("Answer: 3", "json", None),
        ('Answer: {"a": NaN}', "json", None),
        ("```a\n" * 200_000, "json", None),
        ("Answer: " + "[" * 100_000, "list", None),
        ('Answer: {"a": 1}', "list", None),
        ("Answer: []", "list", "[]"),
        ("Answer: 1\nI was wrong.\nAnswer: 2", "integer", "2"),
    ],
)
def test_an_answer_of_each_type_is_read(
    text: str, expected: ExpectedType, answer: str | None
) -> None:
    assert answer_in(text, expected) == answer
