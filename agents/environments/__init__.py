"""Where tasks come from: generators with exact checkers.

`games` holds the environments that are played turn by turn (`loopline.agents.environments.game`); a
package adds one by an entry point of the group `loopline.environments`.

`code` and `math_team` are no games: what a program or an answer is worth only a judge knows, who
keeps hidden tests and gold answers. They are pure functions of the turns and of what a judge said
(`observe`, `done`, `verdict`, the rewards); the workflow `pair` plays them, on the bus or, with a
host that asks a judge, in one process (`loopline.agents.local.run_locally`).
"""

from __future__ import annotations

from typing import TypeGuard

from loopline.agents.environments.game import Game
from loopline.agents.environments.plan_path.game import PlanPath
from loopline.agents.environments.sokoban.game import Sokoban
from loopline.agents.environments.sudoku.game import Sudoku
from loopline.agents.environments.word_problem_team.game import WordProblems
from loopline.agents.registry import Registry

__all__ = ["games"]


def _is_game(item: object) -> TypeGuard[Game]:
    return isinstance(item, Game) and not isinstance(item, type)


games: Registry[Game] = Registry("environment", "loopline.environments", _is_game)
"""Every environment that is played, by the name that `records.Task.environment` says."""

games.register(PlanPath())
games.register(Sokoban())
games.register(Sudoku())
games.register(WordProblems())
