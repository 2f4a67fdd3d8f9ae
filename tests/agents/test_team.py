"""The `team` workflow: agents in a sequence, in parallel, in a loop, and all of these nested."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loopline.agents.errors import InvalidOptions
from loopline.agents.frontier import frontier_of
from loopline.agents.records import Outcome, Run, Task, Trajectory
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import policies_for, serving_role, workflows
from tests.agents.conversations import Request, ScriptedHost, a_run, says


def agent(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "agent", "name": name, "instructions": f"You are {name}.", **fields}


def sequence(*parts: Any) -> dict[str, Any]:
    return {"kind": "sequence", "parts": list(parts)}


def parallel(*parts: Any) -> dict[str, Any]:
    return {"kind": "parallel", "parts": list(parts)}


def loop(*parts: Any, until: Any, max_rounds: int = 5) -> dict[str, Any]:
    return {"kind": "loop", "parts": list(parts), "until": until, "max_rounds": max_rounds}


def team_run(team: dict[str, Any]) -> Run:
    options = workflows.get("team").check_options({"team": team})
    policies = policies_for("team", options=options)
    run = a_run("solo")
    return run.model_copy(
        update={
            "workflow": "team", "task": Task(prompt="Q"), "options": options, "policies": policies,
        }
    )  # fmt: skip


async def played(
    team: dict[str, Any], replies: dict[str, list[str]] | None = None, seed: int = 0
) -> tuple[Trajectory, dict[str, list[str]]]:
    """Return the trajectory, and the last request of each agent in each of its turns. Without a
    scripted reply an agent answers with its name."""
    questions: dict[str, list[str]] = {}
    left = {name: iter(texts) for name, texts in (replies or {}).items()}

    def reply(request: Request) -> Any:
        name = (
            request.messages[0].content.splitlines()[0].removeprefix("You are ").removesuffix(".")
        )
        questions.setdefault(name, []).append(request.last.content)
        return says(next(left[name]) if name in left else name)

    rng = random.Random(seed)
    run, host = team_run(team), ScriptedHost(reply)
    trajectory = await run_locally(
        run, lambda _: host, pick=lambda waiting: rng.randrange(len(waiting))
    )
    return trajectory, questions


async def test_each_agent_of_a_sequence_reads_the_earlier_answers() -> None:
    trajectory, questions = await played(sequence(agent("a"), agent("b"), agent("c")))
    assert trajectory.answer == "c"
    assert [step.agent for step in trajectory.steps] == ["a", "b", "c"]
    assert questions["a"] == ["Q"]
    assert questions["c"] == ["Q\n\nThe others have answered:\n\na:\na\n\nb:\nb"]


@pytest.mark.parametrize("seed", range(4))
async def test_parallel_agents_read_no_peer_s_answer_and_the_next_agent_reads_all(
    seed: int,
) -> None:
    team = sequence(parallel(agent("a"), agent("b")), agent("c"))
    trajectory, questions = await played(team, seed=seed)
    assert (questions["a"], questions["b"]) == (["Q"], ["Q"])
    assert questions["c"][0].endswith("a, b:\na:\na\n\nb:\nb")
    assert trajectory.answer == "c"


async def test_a_loop_ends_by_its_condition_with_its_first_part_s_last_answer() -> None:
    team = loop(agent("writer"), agent("critic"), until="APPROVED")
    replies = {"writer": ["one", "two"], "critic": ["longer", "APPROVED"]}
    trajectory, questions = await played(team, replies)
    assert trajectory.answer == "two"
    assert questions["writer"][1].endswith("writer:\none\n\ncritic:\nlonger")
    assert questions["critic"][1].endswith("writer:\ntwo")


async def test_a_loop_ends_by_a_typed_answer_s_field_or_after_its_rounds() -> None:
    verdict = {"type": "object", "properties": {"good": {"type": "boolean"}}}
    parts = agent("writer"), agent("critic", answer=verdict)
    replies = {"critic": ['{"good": false}', '{"good": true}']}
    trajectory, _ = await played(loop(*parts, until={"good": True}), replies)
    assert len(trajectory.steps) == 4
    replies = {"critic": ['{"good": false}'] * 3}
    trajectory, _ = await played(loop(*parts, until={"good": True}, max_rounds=3), replies)
    assert len(trajectory.steps) == 6


@pytest.mark.parametrize("seed", range(8))
async def test_nested_parts_finish_in_any_order_of_commits(seed: int) -> None:
    inner = loop(parallel(sequence(agent("a"), agent("b")), agent("c")), agent("d"), until="no",
                 max_rounds=3)  # fmt: skip
    team = parallel(sequence(inner, agent("e")), parallel(agent("f"), agent("g")), agent("h"))
    trajectory, _ = await played(team, seed=seed)
    assert trajectory.outcome is Outcome.ANSWERED
    assert trajectory.answer == "e:\ne\n\nf, g:\nf:\nf\n\ng:\ng\n\nh:\nh"
    places = [(step.turn, step.branch) for step in trajectory.steps]
    assert len(set(places)) == len(places)
    assert [step.agent for step in trajectory.steps].count("a") == 3
    for length in range(len(trajectory.steps) + 1):
        frontier = frontier_of(trajectory.run, trajectory.steps[:length])
        assert (frontier.finish is not None) == (length == len(trajectory.steps))


async def test_an_agent_that_gives_up_ends_the_run() -> None:
    trajectory, _ = await played(sequence(agent("a"), agent("b")), {"a": [" "]})
    assert trajectory.outcome is Outcome.GAVE_UP
    assert trajectory.reason == "a: the model's final text is empty"


def test_each_agent_has_its_own_policy_and_one_role_serves_all() -> None:
    run = team_run(sequence(agent("a", model="slm"), agent("b", model="slm/b"), agent("c")))
    assert run.policies == {"a": "slm", "b": "slm/b", "c": "llm"}
    assert serving_role("team", "a") == "agent"


@pytest.mark.parametrize(
    ("team", "wrong"),
    [
        ({"kind": "sequence", "parts": []}, "at least 1 item"),
        ({"kind": "circle"}, "circle"),
        (sequence(agent("a"), agent("a", model="slm")), "two different agents"),
        (sequence(*(agent(f"a{n}") for n in range(70))), "at most 64 parts"),
        (sequence(agent("a b")), "should match pattern"),
    ],
)  # fmt: skip
def test_a_team_that_cannot_be_played_is_refused(team: Any, wrong: str) -> None:
    with pytest.raises(InvalidOptions, match=wrong):
        workflows.get("team").check_options({"team": team})
