"""Arms that learn nothing: they measure another arm's policies under other conditions."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from loopline.agents.environments.game import Agent
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import PLAN, TOOL
from loopline.agents.records import PolicyRef
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.kinds import BEST_OF_K, SWAPPED
from loopline.trainers.grpo.arms.models import Playing, load_policies
from loopline.trainers.grpo.arms.results import Arm, ArmResult, write_result
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.vectorized_rollout import (
    EvaluationResult,
    Rules,
    Table,
    evaluate,
    roll_out,
    slices,
)

TOGETHER = 64
"""Puzzles whose candidates are in memory at the same time."""
_OTHER: dict[str, Agent] = {TOOL: PLAN, PLAN: TOOL}


def measure(arm: Arm, output: Path, settings: ArmSettings) -> ArmResult:
    """Play the held-out puzzles and write the result. Raises `TrainingError`."""
    if arm.begins is None:
        raise TrainingError(f"{arm.name}: there is nothing to measure")
    began = time.process_time()
    playing = load_policies(arm.begins, output, settings)
    if arm.kind == BEST_OF_K:
        evaluation = _best_of_k(playing, arm, settings)
    else:
        evaluation = play_greedily(
            playing, arm, settings, Split.TEST, settings.held_out, swapped=arm.kind == SWAPPED
        )
    spent = round(time.process_time() - began, 1)
    return write_result(
        arm.folder(output),
        ArmResult.of(arm, evaluation, steps=0, tokens=0, samples=0, train_cpu_seconds=0.0,
                     cpu_seconds=spent, curve=()),
    )  # fmt: skip


def play_greedily(
    playing: Playing,
    arm: Arm,
    settings: ArmSettings,
    split: Split,
    count: int,
    *,
    swapped: bool = False,
) -> EvaluationResult:
    """Play the first puzzles of a split greedily by the arm's team; `swapped`: each agent's policy
    plays the other agent."""
    return evaluate(
        settings.game.tables(split, settings.test_seed, count, arm.what.team),
        playing.prompter,
        playing.sampler,
        settings.reinforced.limit,
        lambda agent: playing.activate(_OTHER[agent] if swapped else agent),
        settings.game.failure,
    )


def _best_of_k(playing: Playing, arm: Arm, settings: ArmSettings) -> EvaluationResult:
    """Outcomes sampled as in training: the rules choose among K candidates. Texts are not kept."""
    import torch

    training, generator = settings.reinforced, torch.Generator().manual_seed(arm.seed)
    tables: list[Table] = settings.game.tables(Split.TEST, settings.test_seed, settings.held_out)
    outcomes, failures = "", Counter[str]()
    for part in slices(range(len(tables)), TOGETHER):
        rollout = roll_out(
            [tables[number] for number in part],
            playing.prompter,
            playing.sampler,
            Rules(training.candidates, training.limit, scheme=training.scheme),
            lambda agent: PolicyRef(name=agent, base=playing.grpo.base, version=0),
            playing.activate,
            generator,
            run="held out",
            failure=settings.game.failure,
        )
        outcomes += rollout.outcomes
        failures.update(rollout.failures)
    return EvaluationResult(outcomes, dict(sorted(failures.items())), 0, 0, {})
