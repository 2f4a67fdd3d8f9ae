"""A finished run can be replayed and forked from only its journal."""

from __future__ import annotations

import pytest

from loopline.agents.errors import ForkImpossible, ReplayDiverged, RequestFailed, UnknownName
from loopline.agents.records import Decision, Outcome, Trajectory
from loopline.agents.replay import RecordedHost, fork, replay
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import prompt_hashes
from tests.agents.conversations import ScriptedHost, a_run, asks, says

FORK_ID = "01890000-0000-7000-8000-000000000002"
PROBLEMS = [
    {"problem": "A?", "expected_type": "integer"},
    {"problem": "B?", "expected_type": "integer"},
]


async def a_trajectory() -> Trajectory:
    """Calculate, delegate two (the second escalates), answer."""
    planner = ScriptedHost(
        [
            says("", asks("calculate", expression="1+1"), asks("dream")),
            says("", asks("delegate_many", problems=PROBLEMS)),
            says(r"\boxed{3}"),
        ]
    )
    slm = ScriptedHost(
        lambda request: says(r"\boxed{1}" if request.last.content.startswith("A") else "?")
    )
    expert = ScriptedHost([says(r"\boxed{2}")])
    return await run_locally(a_run(), {"planner": planner, "slm": slm, "expert": expert})


async def test_a_run_is_reproduced_without_any_request() -> None:
    trajectory = await a_trajectory()
    report = await replay(trajectory)
    assert report.reproduced
    assert report.steps == len(trajectory.steps) == 5


async def test_a_run_that_was_scored_later_is_reproduced() -> None:
    trajectory = await a_trajectory()
    judged = trajectory.model_copy(update={"outcome": Outcome.SOLVED})
    assert (await replay(judged)).reproduced


async def test_a_run_that_failed_is_reproduced_with_its_failure() -> None:
    planner = ScriptedHost(
        [says("", asks("calculate", expression="1")), RequestFailed("auth", "wrong key")]
    )
    trajectory = await run_locally(a_run(), {"planner": planner})
    assert trajectory.outcome is Outcome.ERROR
    assert (await replay(trajectory)).reproduced


async def test_a_cancelled_run_is_reproduced_up_to_its_cancellation() -> None:
    trajectory = await a_trajectory()
    cancelled = trajectory.model_copy(
        update={"steps": trajectory.steps[:2], "outcome": Outcome.CANCELLED, "answer": None}
    )
    assert (await replay(cancelled)).reproduced


async def test_a_journal_that_stops_without_a_reason_is_a_divergence() -> None:
    trajectory = await a_trajectory()
    cut = trajectory.model_copy(update={"steps": trajectory.steps[:2]})
    assert (await replay(cut)).divergences == (
        "the journal stops before the run's end, yet the outcome is answered",
    )


async def test_a_changed_decision_is_reported_with_its_place() -> None:
    trajectory = await a_trajectory()
    wrong = trajectory.steps[-1].model_copy(
        update={"decision": Decision(kind="answer", data={"answer": "4", "boxed": True})}
    )
    changed = trajectory.model_copy(update={"steps": (*trajectory.steps[:-1], wrong)})
    report = await replay(changed)
    assert report.divergences == ("turn 3, branch 0 (planner): decision came out differently",)
    assert report.steps == 4


async def test_a_missing_call_is_reported() -> None:
    trajectory = await a_trajectory()
    first = trajectory.steps[0]
    shorter = first.model_copy(
        update={"candidates": (first.candidates[0].model_copy(update={"calls": first.calls[:1]}),)}
    )
    changed = trajectory.model_copy(update={"steps": (shorter, *trajectory.steps[1:])})
    (divergence,) = (await replay(changed)).divergences
    assert "asks for more completions than were recorded" in divergence


async def test_a_step_without_a_handover_is_reported() -> None:
    trajectory = await a_trajectory()
    changed = trajectory.model_copy(update={"steps": trajectory.steps[1:]})
    (divergence,) = (await replay(changed)).divergences
    assert divergence == "turn 1, branch 0 (slm): the workflow hands nothing over there"


async def test_a_changed_answer_is_reported() -> None:
    trajectory = await a_trajectory()
    (divergence,) = (await replay(trajectory.model_copy(update={"answer": "4"}))).divergences
    assert divergence == "the end is answered '3', but the record has answered '4'"


async def test_a_changed_prompt_is_reported_but_does_not_stop_the_replay() -> None:
    trajectory = await a_trajectory()
    run = trajectory.run
    older = run.model_copy(update={"prompts": {**run.prompts, "slm.md": "0" * 64}})
    report = await replay(trajectory.model_copy(update={"run": older}))
    assert report.steps == 5
    assert [divergence[:24] for divergence in report.divergences] == ["prompt slm.md has change"]


async def test_a_run_is_replayed_and_forked_with_its_own_prompt() -> None:
    files = {"planner.md": "---\nname: planner\nversion: 2\n---\nPlan.\n"}
    hashes = prompt_hashes("delegate", files, options={"prompts": "mathematics"})
    trajectory = await a_trajectory()
    run = trajectory.run.model_copy(update={"prompt_files": files, "prompts": hashes})
    source = trajectory.model_copy(update={"run": run})
    assert (await replay(source)).reproduced
    forked = fork(source, 1, run_id=FORK_ID, created=1.0).run
    assert (forked.prompt_files, forked.prompts) == (files, hashes)


async def test_a_recorded_host_answers_only_recorded_requests() -> None:
    trajectory = await a_trajectory()
    host = RecordedHost(trajectory.steps[0])
    with pytest.raises(ReplayDiverged, match=r"the record has calculate\(\{'expression': '1\+1'\}"):
        await host.call_tool("calculate", {"expression": "2+2"})


async def test_a_fork_keeps_the_earlier_turns_and_repeats_the_chosen_one() -> None:
    trajectory = await a_trajectory()
    branch = fork(trajectory, 3, run_id=FORK_ID, created=5_000.0, tags={"why": "test"})
    assert branch.run.parent == trajectory.run.id
    assert branch.run.deadline - branch.run.created == 600.0
    assert branch.run.tags == {"why": "test"}
    assert {step.run_id for step in branch.journal} == {FORK_ID}
    assert [(handoff.role, handoff.turn) for handoff in branch.handoffs] == [("planner", 3)]
    assert branch.joins == {}
    planner = ScriptedHost([says(r"\boxed{99}")])
    ended = await run_locally(branch.run, {"planner": planner}, journal=branch.journal)
    assert ended.answer == "99"
    assert planner.requests[0].last.content == "1: 1\n2: 2"


async def test_a_fork_in_the_middle_of_a_fan_out_keeps_its_join_open() -> None:
    trajectory = await a_trajectory()
    branch = fork(trajectory, 2, run_id=FORK_ID, created=5_000.0)
    assert [(handoff.role, handoff.turn, handoff.branch) for handoff in branch.handoffs] == [
        ("expert", 2, 1)
    ]
    (join,) = branch.joins.values()
    assert join.remaining == 1
    assert (join.continuation.role, join.continuation.turn) == ("planner", 3)


async def test_a_fork_at_the_first_turn_starts_over() -> None:
    branch = fork(await a_trajectory(), 0, run_id=FORK_ID, created=5_000.0)
    assert branch.journal == ()
    assert [handoff.role for handoff in branch.handoffs] == ["planner"]


@pytest.mark.parametrize("turn", [-1, 4, 1_000])
async def test_a_run_cannot_be_forked_at_a_turn_that_it_never_reached(turn: int) -> None:
    with pytest.raises(ForkImpossible, match="has the turns 0 to 3"):
        fork(await a_trajectory(), turn, run_id=FORK_ID, created=5_000.0)


async def test_a_fork_uses_the_policy_given_for_a_role() -> None:
    branch = fork(
        await a_trajectory(), 0, run_id=FORK_ID, created=5_000.0, policies={"planner": "other"}
    )
    assert branch.run.policies["planner"] == "other"


async def test_a_fork_with_a_policy_for_an_unknown_role_is_refused() -> None:
    with pytest.raises(UnknownName, match="called 'plannr'; did you mean 'planner'"):
        fork(await a_trajectory(), 0, run_id=FORK_ID, created=5_000.0, policies={"plannr": "llm"})
