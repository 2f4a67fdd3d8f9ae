"""Runs that a real engine played: the trainer learns from their conversations as they were
sampled."""

from __future__ import annotations

import pytest

from loopline.agents.environments.word_problems import generate
from loopline.agents.records import Task, Trajectory
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.groups import Sealing, seal
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.rows import MicroBatch, micro_batches_of, rows_of
from loopline.trainers.grpo.sequences import same_tokenizer
from loopline.trainers.grpo.stream import step_batches
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.settings import ModelSettings

from .recorded import a_run
from .tiny_grpo import SIZE, settings_of

MODEL = "micro:slm"


async def played() -> list[Trajectory]:
    """Four runs each of two problems, with the calculator and its answers in the conversation."""
    settings = ModelSettings(
        engine="torch", model=MODEL, temperature=1.0, device="cpu", dtype="float32",
        plain_logprobs=True, constrain_tools=False,
    )  # fmt: skip
    engine = build_engine(settings)
    await engine.start()
    here = EngineRunner({"llm": EnginePool(settings, engine)})
    runs = [
        a_run(number).run.model_copy(
            update={
                "task": Task(prompt=problem.prompt), "workflow": "solo", "seed": number,
                "options": {"calculator": True}, "deadline": 4e9,
            }
        )
        for number, problem in enumerate(generate("train", 2, seed=3) * SIZE)
    ]  # fmt: skip
    try:
        return [await here.play(run) for run in runs]
    finally:
        await engine.close()


def rewarded(trajectory: Trajectory) -> Trajectory:
    number = int(trajectory.run.id[-12:])
    return trajectory.model_copy(update={"team_reward": float(number % 3 == 0)})


async def test_the_trainer_learns_from_conversations_of_the_torch_engine_within_rounding() -> None:
    runs = [rewarded(trajectory) for trajectory in await played()]
    loaded = load_base(MODEL)
    belongs = same_tokenizer(loaded.codec, loaded.vocabulary, loaded.end_ids)
    sealing = Sealing(SIZE, belongs, loaded.max_context, grouping="single")
    sealed = seal(runs, sealing)
    assert sealed.skipped == ()
    assert len(sealed.records) == 2
    calls = [len(run.steps[0].calls) for run in runs]
    assert max(calls) > 1
    for group in sealed.records:
        for member in group.members:
            # The calculator's answers are within the one sequence that a conversation forms.
            (sequence,) = member.sequences
            learned = "".join("x" if flag else " " for flag in sequence.learned)
            assert len(learned.split()) in calls
    settings = settings_of(grouping="single")
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    micro_batches: list[MicroBatch] = micro_batches_of(
        rows_of(sealed.records, settings), settings.micro_batch_tokens, loaded.device
    )
    for micro_batch in micro_batches:
        logprobs = learner.logprobs(micro_batch)
        assert float((logprobs - micro_batch.behaviour).abs().max()) < 1e-5
    (batch,) = step_batches(sealed.records, settings)
    summary = learner.step(batch)["shared"]
    assert summary.effective_samples == pytest.approx(1.0, abs=1e-6)
