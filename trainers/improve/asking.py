"""Asks one version of a small model by itself, and keeps its answers in a file: questions with an
answer in the file are not asked again, and those that were running at a kill are not paid for
twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import JsonObject, Step
from loopline.agents.router.rungs import logprobs_of
from loopline.runtime.admitted_runs import AdmittedRuns
from loopline.runtime.append_log import AppendLog, read_log
from loopline.runtime.client.client import Client
from loopline.runtime.run_driver import RunDriver
from loopline.trainers.errors import TrainingError
from loopline.trainers.router.recorded import Answered

AT_ONCE = 32
"""Questions that are asked at the same time."""
TAG = "improve"
"""Tag of comparison runs; its value is the version's name."""
_GO_ON = "the same command"


@dataclass(frozen=True)
class SmallAnswer:
    """A version's answer to a question; an empty text if it gave none."""

    text: str
    logprobs: tuple[float, ...]
    micro_dollars: int

    @classmethod
    def of(cls, step: Step) -> SmallAnswer:
        """The answer in a step of the role `first` or `solo`."""
        cost = sum(call.cost_micro_dollars for call in step.calls)
        if not step.calls:
            return cls("", (), cost)
        call = Answered(step, None).last
        return cls(call.said, logprobs_of((call,)), cost)


async def ask_small(
    client: Client,
    policy: str,
    questions: Mapping[str, tuple[str, JsonObject]],
    path: Path,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, SmallAnswer]:
    """Ask all `questions`, by key: the question, and options of the workflow `solo`. Returns the
    answers by key, including those of other questions in the file at `path`. Raises `TrainingError`
    for a file that is damaged or can't be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    answers = {
        str(line["key"]): SmallAnswer(line["text"], tuple(line["logprobs"]), line["cost"])
        for _, line in read_log(path, TrainingError)
    }
    driver, places = RunDriver(client, say), asyncio.Semaphore(AT_ONCE)
    runs = AdmittedRuns(path.with_suffix(".admitted.jsonl"), resume=_GO_ON, failure=TrainingError)
    with AppendLog(path, resume=_GO_ON, failure=TrainingError) as log, runs:

        async def ask(key: str, question: str, options: JsonObject) -> None:
            async with places:
                run_id = runs.run_id(key)
                trajectory, usage = await driver.finish(
                    lambda: client.new_run(
                        question,
                        workflow="solo",
                        policies={"solo": policy},
                        options=options,
                        tags={TAG: path.stem},
                        run_id=run_id,
                    )
                )
            answer = SmallAnswer.of(trajectory.steps[0]) if trajectory.steps else None
            cost = sum(entry.cost_micro_dollars or 0 for entry in usage)
            text, logprobs = (answer.text, answer.logprobs) if answer is not None else ("", ())
            answers[key] = SmallAnswer(text, logprobs, cost)
            log.append({"key": key, "text": text, "logprobs": [*logprobs], "cost": cost})

        async with asyncio.TaskGroup() as group:
            for key, (question, options) in questions.items():
                if key not in answers:
                    group.create_task(ask(key, question, options))
    return answers
