"""What players by hand solve of the same instances: those of the arms' games
(`loopline.trainers.grpo.arms.games`), and the best blind ones
(`loopline.agents.environments.blind`)."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.environments.blind import PUZZLES, blind_scores
from loopline.agents.environments.plan_path import POLICIES, PlanPathInstance, plays
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.puzzles import Difficulty, Instance, drawn_puzzles
from loopline.agents.environments.sokoban import SokobanInstance
from loopline.agents.environments.sudoku import SudokuInstance
from loopline.agents.environments.word_problem_team import WordProblemInstance
from loopline.agents.records import JsonObject
from loopline.trainers.grpo.arms.games import sokoban, sudoku, word_problems

_BY_HAND = {
    "plan_path": "as many answers as there are turns, each of moves chosen one by one",
    "sokoban": "pushes chosen one by one without memory, with an agent's moves",
    "sudoku": "digit after digit, in every turn anew",
    "word_problems": "one answer, by simple rules of reading",
}
"""What the players of a game do."""
_BLIND_AGENT = (
    "; blind: an agent alone that says the same whatever the puzzle is, the best that a search on "
    "training puzzles finds"
)


def players_by_hand(reference: JsonObject) -> str:
    """What they do, in words; empty for a game that has none."""
    game = reference.get("game")
    return f"{_BY_HAND[game]}{_BLIND_AGENT}" if isinstance(game, str) and game in _BY_HAND else ""


def baselines_of(levels: Difficulty, instances: Sequence[Instance], seed: int) -> JsonObject:
    """Player → instances solved. Deterministic for a seed. The blind players are searched for on
    training puzzles of `levels`. Nobody plays where one of the levels has several boxes: the
    players of Sokoban know what to do with one."""
    solved = [_solved(one, seed) for one in instances]
    if not solved or not all(solved):
        return {}
    blind = blind_scores(drawn_puzzles(levels, Split.TRAIN, seed, PUZZLES), instances)
    return {**{name: sum(each[name] for each in solved) for name in solved[0]}, **blind}


def _solved(instance: Instance, seed: int) -> dict[str, bool]:
    """By player."""
    match instance:
        case PlanPathInstance():
            return {name: plays(one, instance, seed) for name, one in POLICIES.items()}
        case SudokuInstance():
            return {name: sudoku.fills(one, instance) for name, one in sudoku.PLAYERS.items()}
        case SokobanInstance():
            if len(instance.parsed[1].boxes) > 1:
                return {}
            return {name: sokoban.pushes_home(one, instance) for name, one in sokoban.PLAYERS}
        case WordProblemInstance():
            players = word_problems.PLAYERS.items()
            return {name: word_problems.answers(one, instance) for name, one in players}
