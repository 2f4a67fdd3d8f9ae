"""`pair`: tasks and options that it refuses."""

from __future__ import annotations

import pytest

from loopline.agents.errors import InvalidOptions, InvalidTask
from loopline.agents.records import JsonObject, Task
from loopline.agents.workflows import workflows
from tests.agents.conversations import a_run


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            Task(prompt="What is 3 * 4?"),
            "there is no environment 'question'",
        ),
        (Task(environment="plan_path", prompt="?"), "no plan_path instance: grid"),
        (Task(environment="sudoku", instance={"givens": 3}, prompt="?"), "no sudoku instance"),
        (
            Task(environment="code", instance={"tests": []}, prompt="?"),
            "no code instance",
        ),
        (Task(environment="math", prompt="?"), "no math instance: question"),
    ],
)
def test_a_task_that_can_t_be_played_is_not_admitted(task: Task, message: str) -> None:
    with pytest.raises(InvalidTask) as error:
        workflows.get("pair").first(a_run("pair").model_copy(update={"task": task}))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": 0}, "'candidates'"),
        ({"temperature": 0.0}, "'temperature'"),
        ({"scheme": "dance"}, "'scheme'"),
        ({"kandidates": 4}, "known options: candidates, temperature, greedy"),
    ],
)
def test_an_unusable_option_is_refused_by_name(options: JsonObject, message: str) -> None:
    with pytest.raises(InvalidOptions) as error:
        workflows.get("pair").check_options(options)
    assert message in str(error.value)
