"""Laws of every run of `delegate`, whatever its models write and whichever branch commits first."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.frontier import frontier_of
from loopline.agents.records import Call, Message, Outcome, Trajectory
from loopline.agents.replay import replay
from loopline.agents.stepping import route_step
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import MAX_TURNS, Arrive, Fanout, Handoff
from loopline.agents.workflows.routing import Continue, Finish, Wait
from tests.agents.conversations import Request, ScriptedHost, a_run, asks, asks_badly, says


class ErraticModels:
    """Models that delegate, compute, err, ramble and answer, determined by a seed. Each answer
    depends only on its own step, so that the order of commits can't change it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.hosts: list[tuple[Handoff, ScriptedHost]] = []

    def __call__(self, handoff: Handoff) -> ScriptedHost:
        rng = Random(f"{self._seed}/{handoff.turn}/{handoff.branch}")
        plans = handoff.role == "planner"

        def reply(request: Request) -> Call:
            return _planner_says(rng) if plans else _solver_says(rng)

        host = ScriptedHost(reply)
        self.hosts.append((handoff, host))
        return host

    def planner_messages(self) -> list[tuple[str, ...]]:
        """Return the contents of every request of the planner. Call ids differ between runs."""
        return [
            tuple(_said(message) for message in request.messages)
            for handoff, host in self.hosts
            if handoff.role == "planner"
            for request in host.requests
        ]


def _said(message: Message) -> str:
    return f"{message.role}: {message.content} {[c.raw_arguments for c in message.tool_calls]}"


def _problem(rng: Random) -> dict[str, str]:
    kind = rng.choice(["integer", "number", "text"])
    return {"problem": f"What is {rng.randrange(99)} + 1?", "expected_type": kind}


def _planner_says(rng: Random) -> Call:
    factories = [
        lambda: asks("delegate", {**_problem(rng)}),
        lambda: asks("delegate_many", problems=[_problem(rng) for _ in range(rng.randrange(6))]),
        lambda: asks("calculate", expression=rng.choice(["1+1", "1/0", "("])),
        lambda: asks("dream"),
        lambda: asks_badly("delegate", "{"),
    ]
    match rng.randrange(6):
        case 0:
            return says(rng.choice([r"\boxed{7}", "seven", "", "so"]))
        case 1:
            return says("cut", finish="length")
        case _:
            return says("", *(rng.choice(factories)() for _ in range(1 + rng.randrange(4))))


def _solver_says(rng: Random) -> Call:
    texts = [r"1 + 1 = 2. \boxed{2}", r"1 + 1 = 3. \boxed{3}", r"\boxed{red}", "no box", ""]
    if rng.randrange(4) == 0:
        return says("", asks("calculate", expression="2*3"))
    return says(rng.choice(texts))


async def _run(seed: int, order: int) -> tuple[Trajectory, ErraticModels]:
    models, rng = ErraticModels(seed), Random(order)
    trajectory = await run_locally(
        a_run(), models, pick=lambda waiting: rng.randrange(len(waiting))
    )
    return trajectory, models


seeds = st.integers(0, 2**32)


@given(seeds, seeds)
@settings(max_examples=60, deadline=None)
async def test_every_run_ends_within_its_turns(seed: int, order: int) -> None:
    trajectory, _ = await _run(seed, order)
    assert trajectory.outcome in (Outcome.ANSWERED, Outcome.GAVE_UP)
    assert (trajectory.answer is None) == (trajectory.outcome is Outcome.GAVE_UP)
    assert (trajectory.reason is None) == (trajectory.outcome is Outcome.ANSWERED)
    assert max(step.turn for step in trajectory.steps) < MAX_TURNS
    places = Counter((step.turn, step.branch) for step in trajectory.steps)
    assert set(places.values()) == {1}


@given(seeds, seeds)
@settings(max_examples=60, deadline=None)
async def test_every_fanned_out_branch_arrives(seed: int, order: int) -> None:
    trajectory, _ = await _run(seed, order)
    opened: dict[str, int] = {}
    arrived: Counter[str] = Counter()
    for position, step in enumerate(trajectory.steps):
        match route_step(trajectory.run, trajectory.steps[:position], step):
            case Fanout(handoffs, join, continuation):
                opened[join] = len(handoffs)
                assert [handoff.branch for handoff in handoffs] == list(range(len(handoffs)))
                assert continuation.branch == 0
            case Arrive(join):
                arrived[join] += 1
            case Continue(handoffs):
                assert [handoff.role for handoff in handoffs] == ["expert"]
            case Finish():
                assert position == len(trajectory.steps) - 1
            case Wait():
                pytest.fail("delegate waits for nobody")
    assert dict(arrived) == opened


@given(seeds, seeds, seeds)
@settings(max_examples=60, deadline=None)
async def test_the_order_of_commits_does_not_change_the_planner_s_input(
    seed: int, first_order: int, second_order: int
) -> None:
    first, heard_first = await _run(seed, first_order)
    second, heard_second = await _run(seed, second_order)
    assert heard_first.planner_messages() == heard_second.planner_messages()
    assert (first.outcome, first.answer, first.reason) == (
        second.outcome,
        second.answer,
        second.reason,
    )


@given(seeds)
@settings(max_examples=60, deadline=None)
async def test_every_tool_call_in_a_conversation_is_answered_right_after_it(seed: int) -> None:
    _, models = await _run(seed, 0)
    for _, host in models.hosts:
        for request in host.requests:
            for position, message in enumerate(request.messages):
                wanted = [call.id for call in message.tool_calls]
                answers = request.messages[position + 1 : position + 1 + len(wanted)]
                assert [answer.tool_call_id for answer in answers] == wanted
                assert all(answer.role == "tool" for answer in answers)


@given(seeds, seeds)
@settings(max_examples=30, deadline=None)
async def test_every_run_is_reproduced_from_its_journal(seed: int, order: int) -> None:
    trajectory, _ = await _run(seed, order)
    again = Trajectory.model_validate_json(trajectory.model_dump_json())
    report = await replay(again)
    assert report.divergences == ()
    assert report.steps == len(trajectory.steps)


@given(seeds, seeds, st.integers(0, 100))
@settings(max_examples=60, deadline=None)
async def test_any_part_of_a_journal_leads_to_the_remaining_steps(
    seed: int, order: int, cut: int
) -> None:
    trajectory, _ = await _run(seed, order)
    cut = min(cut, len(trajectory.steps) - 1)
    frontier = frontier_of(trajectory.run, trajectory.steps[:cut])
    assert frontier.finish is None
    waiting = {(handoff.turn, handoff.branch) for handoff in frontier.waiting}
    following = trajectory.steps[cut]
    assert (following.turn, following.branch) in waiting
