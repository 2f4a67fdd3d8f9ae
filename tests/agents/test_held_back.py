"""Texts that may be refused are not published before their verdict."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from loopline.agents.held_back import accepted_call
from loopline.agents.records import SamplingParams, Step
from loopline.agents.workflow_runner import run_locally
from loopline.runtime.app.events import TextDelta, events_of
from tests.agents.conversations import Reply, ScriptedHost, a_run, says


@dataclass
class PublishingScript(ScriptedHost):
    """A host that records which of its completions would be published."""

    published: list[bool] = field(default_factory=list[bool])
    publishes: bool = True

    def unpublished(self) -> PublishingScript:
        twin = copy.copy(self)
        twin.publishes = False
        return twin

    async def complete(self, messages: Any, **more: Any) -> Any:
        self.published.append(self.publishes)
        return await super().complete(messages, **more)


async def played(
    workflow: str, small: list[Reply], big: list[Reply], **options: Any
) -> tuple[list[Step], PublishingScript, PublishingScript]:
    second = PublishingScript(big)
    first = PublishingScript(small, others={"agent.big": second, "solo": second})
    run = a_run(workflow, "What is 2 + 2?", **options)
    hosts = {"agent": first, "first": first, "solo": second}
    trajectory = await run_locally(run, hosts)
    return [*trajectory.steps], first, second


def texts(step: Step, streamed: tuple[str, ...] = ()) -> list[str]:
    return [event.text for event in events_of(step, streamed) if isinstance(event, TextDelta)]


BOXED = r"It is \boxed{4}."
ARITHMETIC = {"escalation": {"arithmetic": True}}


async def test_a_refused_draft_stays_hidden_and_the_big_model_s_text_is_streamed() -> None:
    right = says("2 + 2 = 4")
    [step], small, big = await played("agent", [says("2 + 2 = 5")], [right], **ARITHMETIC)
    assert (small.published, big.published) == ([False], [True])
    assert accepted_call(step) == right
    assert texts(step, (right.id,)) == [], "it was told of while it was written"


async def test_an_accepted_draft_is_published_whole_with_its_step() -> None:
    [step], small, _ = await played("agent", [says("2 + 2 = 4")], [], **ARITHMETIC)
    assert small.published == [False]
    assert texts(step) == ["2 + 2 = 4"]


async def test_a_cascade_s_small_answer_waits_for_its_verdict_and_samples_stay_hidden() -> None:
    hot = SamplingParams(temperature=0.8)
    samples = tuple(says(BOXED).model_copy(update={"sampling": hot}) for _ in range(2))
    steps, small, _ = await played("cascade", [says(BOXED), samples], [], samples=2)
    assert small.published == [False, False]
    assert texts(steps[0]) == [BOXED]

    steps, small, big = await played("cascade", [says("")], [says(BOXED)])
    assert (small.published, big.published) == ([False], [True])
    assert texts(steps[0]) == [], "what was refused is told of by nobody"


async def test_the_text_of_an_agent_without_a_ladder_is_streamed() -> None:
    [step], alone, _ = await played("agent", [says("Four.")], [])
    assert alone.published == [True]
    assert accepted_call(step) is None
