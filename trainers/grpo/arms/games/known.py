"""The games by name. A further one is a module, a member of `AnyGame` and a line of `GAMES`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

from loopline.trainers.grpo.arms.games import plan_path, sokoban, sudoku, word_problems
from loopline.trainers.grpo.arms.games.plan_path import LearnedPlanPath
from loopline.trainers.grpo.arms.games.sokoban import LearnedSokoban
from loopline.trainers.grpo.arms.games.sudoku import LearnedSudoku
from loopline.trainers.grpo.arms.games.word_problems import LearnedWordProblems
from loopline.trainers.grpo.arms.training import Training

AnyGame = Annotated[
    LearnedPlanPath | LearnedSudoku | LearnedSokoban | LearnedWordProblems,
    Field(discriminator="name"),
]


class Known(NamedTuple):
    """A game as it is learned unless somebody asks for another difficulty."""

    game: AnyGame
    training: Training


GAMES: dict[str, Known] = {
    "plan_path": Known(LearnedPlanPath(), plan_path.TRAINING),
    "sudoku": Known(LearnedSudoku(), sudoku.TRAINING),
    "sokoban": Known(LearnedSokoban(), sokoban.TRAINING),
    "word_problems": Known(LearnedWordProblems(), word_problems.TRAINING),
}
