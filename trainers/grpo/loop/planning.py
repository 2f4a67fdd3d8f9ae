"""Plans the puzzles or tasks of a round, as a function of the settings, the round and the number
already played in it. Only the runs' ids are random; they are written down before the runs start."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from random import Random

from loopline.agents.environments.puzzle_splits import Split
from loopline.runtime.client.run_ids import new_run_id
from loopline.trainers.data.questions import Question, training_questions
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop.generators import DATASETS, dataset_of
from loopline.trainers.grpo.loop.levels import Level, game_of, share_out
from loopline.trainers.grpo.loop.run_directory import PlannedRun, RolloutBatch
from loopline.trainers.grpo.loop.settings import LoopSettings


class TooFewPuzzles(TrainingError):
    """A difficulty that leaves fewer different puzzles than a round needs."""


def plan_batch(
    settings: LoopSettings,
    number: int,
    wave: int,
    *,
    played: int,
    count: int,
    questions: Sequence[Question] = (),
    shares: Mapping[str, float] | None = None,
    before: Mapping[str, int] | None = None,
) -> RolloutBatch:
    """`count` further puzzles of a round that has played `played`, all different; or further
    `questions` of the file, all different if there are enough. If rounds play several levels,
    `shares` are the levels' shares, and `before` is the number of puzzles of each level that the
    round has played. Raises `TooFewPuzzles` if the difficulty leaves too few."""
    seed = zlib.crc32(f"{settings.grpo.seed}:{number}".encode())
    level_of: list[str | None] = [None] * count
    if settings.level:
        selected, level_of = list[Question](), list[str | None]()
        parts = share_out(count, shares or {}, f"{seed}:{played}")
        for level in settings.levels:
            drawn = _of_level(settings, level, seed, (before or {}).get(level.name, 0), parts)
            selected += drawn
            level_of += [level.name] * len(drawn)
    elif settings.tasks is not None or settings.questions is not None:
        places = task_indices(len(questions), settings.puzzles, settings.grpo.seed, number)
        selected = [questions[at] for at in islice(places, played, played + count)]
    elif settings.env is not None:
        dataset = DATASETS[settings.env]
        drawn = training_questions(dataset, seed, settings.split, settings.domain)
        selected = list(islice(drawn, played, played + count))
    else:
        try:
            environment = settings.environment
            levels = environment.levels(settings.size, settings.difficulty, settings.setting)
            puzzles = environment.puzzles(Split.TRAIN, seed, played + count, levels)[played:]
        except ValueError as error:
            raise TooFewPuzzles(f"--game {settings.game}: {error}") from error
        selected = [Question(id=puzzle.id, task=environment.task(puzzle)) for puzzle in puzzles]
    runs = [
        PlannedRun(
            id=new_run_id(),
            seed=zlib.crc32(f"{seed}:{at}:{play}".encode()),
            task=question.task,
            gold=question.gold,
            level=level,
        )
        for at, (question, level) in enumerate(zip(selected, level_of, strict=True), start=played)
        for play in range(settings.plays)
    ]
    return RolloutBatch(
        round=number, number=wave, puzzles=count, runs=tuple(runs), shares=dict(shares or {})
    )


def _of_level(
    settings: LoopSettings, level: Level, seed: int, played: int, parts: Mapping[str, int]
) -> list[Question]:
    """A level's part of a wave, in a round that has already played `played` of its puzzles. Raises
    `TooFewPuzzles`."""
    last = played + parts[level.name]
    level_seed = zlib.crc32(f"{seed}:{level.name}".encode())
    if settings.asks:
        drawn = training_questions(dataset_of(level.source), level_seed)
        return list(islice(drawn, played, last))
    game, difficulty = game_of(level, settings.setting)
    try:
        puzzles = game.puzzles(Split.TRAIN, level_seed, last, difficulty)[played:]
    except ValueError as error:
        raise TooFewPuzzles(f"--level {level.name!r}: {error}") from error
    return [Question(id=puzzle.id, task=game.task(puzzle)) for puzzle in puzzles]


def task_indices(count: int, first: int, seed: int, number: int) -> Iterator[int]:
    """Endless indices of the tasks that round `number` plays from a file of `count`, in order.

    Its first wave, of `first` tasks, takes the next ones in a pass through the file: the rounds
    together play each task once, then each once more in another order. Random tasks follow, to make
    up for groups without a signal; those that the round has played already come last.
    """
    begun = next(islice(_first_batches(count, first, seed), number - 1, None))
    more = _shuffle_indices(count, f"{seed}:round {number}", last=begun)
    return chain(begun, cycle(more))


def _first_batches(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """First wave of each round."""
    remaining: list[int] = []
    passes = 0
    while True:
        wave: list[int] = []
        while len(wave) < size:
            if not remaining:
                passes += 1
                remaining = _shuffle_indices(count, f"{seed}:pass {passes}", last=wave)
            missing = size - len(wave)
            wave += remaining[:missing]
            remaining = remaining[missing:]
        yield wave


def _shuffle_indices(count: int, seed: str, *, last: Sequence[int]) -> list[int]:
    """All indices in random order; those of `last` at the end."""
    order = Random(seed).sample(range(count), count)
    return sorted(order, key=set(last).__contains__)


def further_puzzles(settings: LoopSettings, *, played: int, group_count: int) -> int:
    """Number of further puzzles for a round that has `group_count` groups with a signal from
    `played` puzzles: as many as the missing groups need at this rate (DAPO's dynamic sampling, Yu
    et al. 2025, arXiv:2503.14476, §3.2, in waves), up to the limit; 0 if there are enough."""
    missing = settings.grpo.batch - group_count
    if missing <= 0:
        return 0
    return min(math.ceil(missing * played / max(group_count, 1)), settings.most_puzzles - played)
