"""A workflow that waits: routed, driven without a bus, replayed and forked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from loopline.agents.errors import ForkImpossible, NoRoute
from loopline.agents.frontier import frontier_of
from loopline.agents.payloads import QuestionPayload, SignalPayload, WakeUp
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Candidate, Decision, JsonObject, Outcome, Run, Step, Task
from loopline.agents.replay import fork, replay
from loopline.agents.roles import roles
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import Finish, Handoff, Routing, Wait, workflows

RUN_ID = "01a217fd-7c97-7620-bb0f-f30aed441ade"


class Clerk:
    name = "clerk"
    version = 1
    prompts: tuple[Prompt, ...] = ()

    async def step(self, context: StepContext, host: Host) -> StepResult:
        if isinstance(context.payload, SignalPayload):
            woken = context.payload.woken
            assert woken is not None
            data: JsonObject = {"kind": woken.kind, "value": woken.value}
            return StepResult((Candidate(),), Decision(kind="woken", data=data))
        return StepResult((Candidate(),), Decision(kind="sent"))


class Billing:
    """A workflow that sends a bill, waits until it is paid, and reminds once."""

    name = "billing"
    roles = ("clerk",)
    default_policies: Mapping[str, str] = {}

    def check_options(self, options: JsonObject) -> JsonObject:
        return options

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff("clerk", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        kind = step.decision.data.get("kind")
        if step.decision.kind == "sent" or (kind == "expired" and step.turn == 1):
            return Wait("paid", role="clerk", turn=step.turn + 1, expires=60)
        return Finish(Outcome.ANSWERED, answer=str(kind))


@pytest.fixture(autouse=True)
def _billing(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry, item in ((roles, Clerk()), (workflows, Billing())):
        items = {**vars(registry)["_items"], item.name: item}
        monkeypatch.setattr(registry, "_items", items)


@pytest.fixture
def run() -> Run:
    return Run(
        id=RUN_ID, task=Task(prompt="Bill Ada."), workflow="billing", policies={}, created=1.0,
        deadline=601.0,
    )  # fmt: skip


class NoHost:
    async def complete(self, messages: Sequence[object], **_: object) -> tuple[()]:
        raise AssertionError

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        raise AssertionError


def hosts(_: Handoff) -> Host:
    return NoHost()  # pyright: ignore[reportReturnType]


async def test_the_next_step_reads_the_signal(run: Run) -> None:
    trajectory = await run_locally(run, hosts, signals={"paid": {"euros": 5}})
    assert trajectory.answer == "signalled"
    assert trajectory.steps[1].decision.data["value"] == {"euros": 5}
    assert (await replay(trajectory)).reproduced


async def test_each_wait_without_a_signal_expires(run: Run) -> None:
    trajectory = await run_locally(run, hosts)
    assert [step.decision.data.get("kind") for step in trajectory.steps] == [
        None,
        "expired",
        "expired",
    ]
    assert (await replay(trajectory)).reproduced


async def test_a_journal_leads_to_its_open_wait(run: Run) -> None:
    trajectory = await run_locally(run, hosts)
    frontier = frontier_of(run, trajectory.steps[:1])
    assert (frontier.waiting, [wait.signal for wait in frontier.waits]) == ((), ["paid"])
    wrong = Handoff("clerk", 1, SignalPayload(signal="other", woken=None))
    with pytest.raises(NoRoute, match="nothing waits"):
        frontier.wake(wrong)
    frontier.wake(frontier.waits[0].handoff(WakeUp(kind="expired", at=1.0)))
    assert len(frontier.waiting) == 1


async def test_a_fork_after_a_wait_keeps_the_event_that_ended_it(run: Run) -> None:
    trajectory = await run_locally(run, hosts, signals={"paid": 1})
    forked = fork(trajectory, 1, run_id=RUN_ID.replace("01a2", "01a3"), created=2.0)
    [handoff] = forked.handoffs
    assert isinstance(handoff.payload, SignalPayload)
    assert handoff.payload.woken is not None
    assert handoff.payload.woken.value == 1


async def test_a_run_that_never_passed_its_wait_cannot_be_forked_after_it(run: Run) -> None:
    trajectory = await run_locally(run, hosts)
    stopped = trajectory.model_copy(
        update={"steps": trajectory.steps[:1], "outcome": Outcome.CANCELLED}
    )
    with pytest.raises(ForkImpossible):
        fork(stopped, 1, run_id=RUN_ID.replace("01a2", "01a3"), created=2.0)
