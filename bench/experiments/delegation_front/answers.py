"""Results of every decision on every question: whole greedy runs of the workflows by the micro
models, on engines in this process. A planner's rewards come from these results, so each question is
answered once instead of in every round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from loopline.agents.records import GenerationOptions, JsonObject, Run, Task, Trajectory
from loopline.agents.router.rungs import logprobs_of
from loopline.agents.workflows import prompt_hashes
from loopline.bench.experiments.delegation_front.cells import (
    BIG,
    DECISIONS,
    SMALL,
    Answered,
    Decision,
    FrontSettings,
    ModelAnswer,
)
from loopline.bench.experiments.delegation_front.questions import Asked
from loopline.runtime.client.run_ids import new_run_id
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.data.questions import Question, fault
from loopline.trainers.router.prices import Prices
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.settings import ModelSettings

TOGETHER = 128
"""Concurrent runs."""
RUN_SECONDS = 3_600.0
MAX_TOKENS = 192
TELL_EVERY = 50
OPTIONS: JsonObject = {"prompts": "mathematics"}
ROUTES: dict[Decision, tuple[str, dict[str, str]]] = {
    "big": ("solo", {"solo": "llm"}),
    "small": ("solo", {"solo": "slm"}),
    "parts": ("delegate", {"planner": "llm", "slm": "slm", "expert": "llm"}),
}
"""Workflow and its policies, by decision."""


async def answer_all(
    questions: Sequence[Asked], settings: FrontSettings, tell: Callable[[JobLine], None]
) -> tuple[Answered, ...]:
    """Answer the questions in order, each with every decision."""
    pools = {
        name: ModelSettings(
            engine="torch", model=model, device="cpu", max_tokens=MAX_TOKENS,
            max_concurrency=TOGETHER, constrain_tools=False,
        )
        for name, model in (("llm", BIG), ("slm", SMALL))
    }  # fmt: skip
    engines = {name: EnginePool(pool, build_engine(pool)) for name, pool in pools.items()}
    places: dict[str, tuple[int, Decision]] = {}
    runs = list[Run]()
    for number, question in enumerate(questions):
        for decision in DECISIONS:
            run = _run(question, decision)
            runs.append(run)
            places[run.id] = (number, decision)
    answers: list[dict[Decision, ModelAnswer]] = [{} for _ in questions]
    done = 0
    try:
        for pool in engines.values():
            await pool.engine.start()
        async for trajectory in EngineRunner(engines).play_all(runs, together=TOGETHER):
            number, decision = places[trajectory.run.id]
            answers[number][decision] = model_answer(
                questions[number], trajectory, settings.prices, whole=decision == "small"
            )
            done += 1
            if done % TELL_EVERY == 0:
                tell(JobLine(event="playing", done=done, total=len(runs), message=f"{done:,} runs"))
    finally:
        for pool in engines.values():
            await pool.engine.close()
    return tuple(
        Answered(question=question, big=of["big"], small=of["small"], parts=of["parts"])
        for question, of in zip(questions, answers, strict=True)
    )


def model_answer(
    question: Asked, trajectory: Trajectory, prices: dict[str, Prices], *, whole: bool
) -> ModelAnswer:
    """Return the result of a run; `whole`: include the answer's text and log-probabilities."""
    checked_question = Question(
        id=trajectory.run.id, task=trajectory.run.task, gold=question.answer
    )
    calls = [call for step in trajectory.steps for call in step.calls]
    last = calls[-1:] if whole else []
    return ModelAnswer(
        right=not fault(checked_question, trajectory),
        dollars=sum(prices[call.policy.name].of_tokens(call.usage) for call in calls),
        text="".join(call.said for call in last),
        logprobs=tuple(round(value, 5) for value in logprobs_of(last)) if last else (),
    )


def _run(question: Asked, decision: Decision) -> Run:
    workflow, policies = ROUTES[decision]
    now = time.time()
    return Run(
        id=new_run_id(), task=Task(prompt=question.prompt), workflow=workflow, options=OPTIONS,
        policies=policies, prompts=prompt_hashes(workflow, options=OPTIONS),
        generation=GenerationOptions(temperature=0.0), seed=0, created=now,
        deadline=now + RUN_SECONDS,
    )  # fmt: skip
