"""Which puzzles a round plays: a function of the settings, the round and how many were played in it
before. Only the runs' ids are chance; they are written down before the runs begin."""

from __future__ import annotations

import math
import zlib

from agents.environments.puzzle_splits import Split
from agents.environments.puzzles import drawn_puzzles
from runtime.run_ids import new_run_id
from trainers.errors import TrainingError
from trainers.grpo.loop.book import PlannedRun, Wave
from trainers.grpo.loop.settings import LoopSettings


def planned_wave(
    settings: LoopSettings, number: int, wave: int, *, played: int, count: int
) -> Wave:
    """`count` further puzzles of a round that has played `played`, all different. Raises
    `TrainingError` where the difficulty leaves not so many."""
    seed = zlib.crc32(f"{settings.grpo.seed}:{number}".encode())
    try:
        puzzles = drawn_puzzles(settings.levels, Split.TRAIN, seed, played + count)[played:]
    except ValueError as error:
        raise TrainingError(f"--game {settings.game}: {error}") from error
    runs = [
        PlannedRun(
            id=new_run_id(),
            seed=zlib.crc32(f"{seed}:{at}:{play}".encode()),
            task=puzzle.task,
        )
        for at, puzzle in enumerate(puzzles, start=played)
        for play in range(settings.plays)
    ]
    return Wave(round=number, number=wave, puzzles=count, runs=tuple(runs))


def further_puzzles(settings: LoopSettings, *, played: int, found: int) -> int:
    """How many more puzzles a round plays that has `found` groups with a signal in `played`: as
    many as the missing ones need at this rate (DAPO's dynamic sampling, Yu et al. 2025,
    arXiv:2503.14476, §3.2, in waves), up to the limit; 0 if it has enough."""
    missing = settings.grpo.batch - found
    if missing <= 0:
        return 0
    return min(math.ceil(missing * played / max(found, 1)), settings.most_puzzles - played)
