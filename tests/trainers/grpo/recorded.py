"""Handmade recorded runs, as the recorder writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from loopline.agents.records import (
    Call,
    Candidate,
    Decision,
    Outcome,
    PolicyRef,
    Run,
    SamplingParams,
    Step,
    StepTimings,
    Task,
    Trajectory,
    Usage,
)
from loopline.testing.recorded_runs import as_on_the_bus
from loopline.workers.recorder import TRAJECTORY_SCHEMA, Table, trajectory_row

SAMPLED = SamplingParams(temperature=1.0, max_tokens=16)


def a_call(
    prompt: Sequence[int] = (1, 2, 3),
    output: Sequence[int] = (4, 5),
    logprobs: Sequence[float] | None = None,
    *,
    version: int = 0,
    sampling: SamplingParams = SAMPLED,
    text: str = "",
    **changes: object,
) -> Call:
    """A completion that was sampled from the whole softmax."""
    call = Call(
        id="call",
        policy=PolicyRef(name="llm", base="micro", version=version),
        text=text,
        prompt_ids=tuple(prompt),
        output_ids=tuple(output),
        logprobs=tuple(logprobs if logprobs is not None else [-0.5] * len(output)),
        sampling=sampling,
        finish_reason="stop",
        usage=Usage(prompt=len(prompt), completion=len(output), source="engine"),
        cost_micro_dollars=0,
        trainable=True,
    )
    return Call.model_validate({**call.model_dump(), **changes})


def a_candidate(reward: float, *calls: Call) -> Candidate:
    return Candidate(calls=calls or (a_call(),), reward_parts={"team": reward})


def a_step(
    candidates: Sequence[Candidate], *, agent: str = "solo", turn: int = 0, selected: int = 0
) -> Step:
    return Step(
        run_id="",
        turn=turn,
        agent=agent,
        candidates=tuple(candidates),
        selected=selected,
        decision=Decision(kind="act"),
        timings=StepTimings(started=0.0, ended=0.0),
        worker="test",
    )


def a_run(
    number: int,
    *steps: Step,
    instance: int = 0,
    workflow: str = "pair",
    reward: float | None = None,
    agent_rewards: Mapping[str, float] | None = None,
) -> Trajectory:
    """Run `number` on task `instance`."""
    run = Run(
        id=f"00000000-0000-7000-8000-{number:012d}",
        task=Task(environment="test", instance={"number": instance}, prompt="What is it?"),
        workflow=workflow,
        policies={},
        created=0.0,
        deadline=1.0,
    )
    return Trajectory(
        run=run,
        steps=tuple(_of_run(run, place, step) for place, step in enumerate(steps)),
        outcome=Outcome.ANSWERED,
        ended=1.0,
        team_reward=reward,
        agent_rewards=dict(agent_rewards or {}),
    )


def _of_run(run: Run, place: int, step: Step) -> Step:
    """The step with its own completions, like those of every run."""
    candidates = tuple(
        candidate.model_copy(
            update={
                "calls": tuple(
                    call.model_copy(update={"id": f"{run.id}/{place}/{number}/{at}"})
                    for at, call in enumerate(candidate.calls)
                )
            }
        )
        for number, candidate in enumerate(step.candidates)
    )
    return step.model_copy(update={"run_id": run.id, "candidates": candidates})


async def record(store: Path, runs: Sequence[Trajectory], *, batch: int = 1) -> None:
    """Write the runs into a store with the recorder's own table, after the existing ones."""
    table = Table(store / "trajectories", 0, TRAJECTORY_SCHEMA, trajectory_row)
    await table.write([(f"{batch}-{at}", as_on_the_bus(run)) for at, run in enumerate(runs)])
