"""One cell: the answers to a seed's questions, its initial planner, or a training.

A cell takes a minute or two; an interrupted one starts over.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from loopline.bench.experiments.delegation_front.answers import answer_all
from loopline.bench.experiments.delegation_front.cells import (
    DECISIONS,
    POLICY,
    RESULT,
    Answered,
    AnswerTable,
    Cell,
    FrontSettings,
    PlannerResult,
    RoundCurve,
    is_finished,
    read_answers,
)
from loopline.bench.experiments.delegation_front.planner import Planner, mean
from loopline.bench.experiments.delegation_front.questions import (
    Asked,
    held_out_questions,
    training_questions,
)
from loopline.bench.experiments.harness import SETTINGS
from loopline.trainers.core.interruption import deferred_interrupt
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.json_records import write_record
from loopline.trainers.errors import UnreadableModel
from loopline.trainers.grpo.advantages import has_signal
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.stream import StepBatch

Tell = Callable[[JobLine], None]
T = TypeVar("T")


def run_job(output: Path, job: str, tell: Tell) -> str:
    """Run one cell for `loopline.bench.experiments.worker`."""
    settings = FrontSettings.model_validate_json((output / SETTINGS).read_bytes())
    cell = Cell.model_validate_json(job)
    if is_finished(cell, output):
        return "finished"
    folder = cell.folder(output)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.process_time()
    if cell.kind == "answers":
        rows = asyncio.run(answer_all(questions_of(cell.seed, settings), settings, tell))
        spent = round(time.process_time() - began, 1)
        write_record(folder / RESULT, AnswerTable(rows=rows, cpu_seconds=spent))
        return f"{len(rows):,} questions answered for every decision"
    work = _start if cell.kind == "start" else _train
    planner, curves = work(cell, output, settings, tell)
    held_out = questions_of(0, settings)
    tell(JobLine(event="playing", message=f"{len(held_out):,} held-out questions"))
    probabilities = planner.probabilities(held_out)
    result = PlannerResult(
        cell=cell,
        probabilities=tuple(probabilities),
        decision_dollars=tuple(map(planner.decision_dollars, held_out)),
        rounds=tuple(curves),
        cpu_seconds=round(time.process_time() - began, 1),
    )
    write_record(folder / RESULT, result)
    choices = [row.index(max(row)) for row in probabilities]
    return ", ".join(
        f"{decision} {choices.count(at) / len(choices):.0%}"
        for at, decision in enumerate(DECISIONS)
    )


def questions_of(seed: int, settings: FrontSettings) -> list[Asked]:
    """Return the questions that a seed learns from; for seed 0 the held-out ones."""
    held_out = held_out_questions(settings.test_seed, settings.held_out)
    if seed == 0:
        return held_out
    return training_questions(seed, settings.train_questions, held_out)


def _start(
    cell: Cell, output: Path, settings: FrontSettings, tell: Tell
) -> tuple[Planner, list[RoundCurve]]:
    """Train the seed's initial planner, supervised, from which all its trainings start."""
    planner = Planner(settings, cell.seed)
    rng = random.Random(f"demonstrations:{cell.seed}")
    drawn = _endless(questions_of(cell.seed, settings), rng)
    with deferred_interrupt() as interruption:
        for step in range(1, settings.start_steps + 1):
            loss = planner.imitate([*islice(drawn, 32)], rng, settings.start_rate)
            message = f"loss {loss:.3f}"
            tell(JobLine(event="training", done=step, total=settings.start_steps, message=message))
            if interruption.requested:
                raise KeyboardInterrupt
    planner.write(cell.folder(output) / POLICY)
    return planner, []


def _train(
    cell: Cell, output: Path, settings: FrontSettings, tell: Tell
) -> tuple[Planner, list[RoundCurve]]:
    """Train on decisions by GRPO; each round samples with the current weights."""
    answers, start = cell.needs
    table = read_answers(answers, output)
    weight = cell.dollar_weight
    if table is None or weight is None:
        raise UnreadableModel(f"{answers.folder(output)} has no result: run the command again")
    planner = Planner(settings, cell.seed, start.folder(output) / POLICY)
    learner = Learner(planner.policies)
    drawn = _endless(table.rows, random.Random(f"rounds:{cell.seed}"))
    curves: list[RoundCurve] = []
    with deferred_interrupt() as interruption:
        for number in range(settings.rounds):
            curve = _round(planner, learner, [*islice(drawn, settings.questions)], weight, number)
            curves.append(curve)
            message = f"reward {curve.reward:.3f}, " + ", ".join(
                f"{decision} {share:.0%}"
                for decision, share in zip(DECISIONS, curve.shares, strict=True)
            )
            tell(JobLine(event="training", done=number + 1, total=settings.rounds, message=message))
            if interruption.requested:
                raise KeyboardInterrupt
    planner.write(cell.folder(output) / POLICY)
    return planner, curves


def _round(
    planner: Planner, learner: Learner, rows: Sequence[Answered], weight: float, number: int
) -> RoundCurve:
    seed = planner.grpo.seed * 1_000_003 + number
    groups, drawn = planner.draw(rows, weight, number, seed)
    learned = tuple(group for group in groups if has_signal(group.rewards))
    if learned:
        learner.step(StepBatch(number, learned, (), 0))
    return RoundCurve(
        reward=mean([reward for group in groups for reward in group.rewards]),
        shares=tuple(drawn.count(decision) / len(drawn) for decision in DECISIONS),
        trained=len(learned),
    )


def _endless(items: Sequence[T], rng: random.Random) -> Iterator[T]:
    """Yield the questions repeatedly, each time in another order."""
    while True:
        yield from rng.sample(items, len(items))
