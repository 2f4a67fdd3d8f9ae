"""Games for training arms: parsable weak teams, ranked handwritten players, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import cast

import pytest

from loopline.agents.environments.game import Refusal
from loopline.agents.environments.marked_answers import read_calls, read_moves, read_rows
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.sokoban import SOKOBAN
from loopline.agents.environments.sokoban.instance import SokobanInstance, SokobanSetting
from loopline.agents.environments.sokoban.level import Play
from loopline.agents.environments.sudoku import SUDOKU
from loopline.agents.environments.sudoku.instance import SudokuInstance, SudokuSetting
from loopline.agents.environments.team_episode import AGENTS, PLAN, TOOL
from loopline.agents.environments.word_problem_team import WORD_PROBLEMS
from loopline.agents.environments.word_problem_team.generation import (
    Difficulty as WordProblemTeamDifficulty,
)
from loopline.agents.environments.word_problem_team.generation import stream
from loopline.agents.environments.word_problem_team.instance import (
    WordProblemInstance,
    split_of_wording,
)
from loopline.agents.environments.word_problem_team.lessons import WeakTeam
from loopline.agents.environments.word_problem_team.numbers import name_numbers
from loopline.agents.environments.word_problem_team.puzzle import WordProblemPuzzle, Working
from loopline.agents.environments.word_problems import schemes
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.arms.arm import train_arm
from loopline.trainers.grpo.arms.game import LearnedGame, Team, taught
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    CONTINUED,
    SINGLE,
    SINGLE_GRPO,
    WARM_START,
    ArmName,
)
from loopline.trainers.grpo.arms.models import write_initial_model
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.training import NetworkSize, Reinforced, Supervised
from loopline.trainers.grpo.vectorized_rollout import Prompter
from loopline.workers.engines.text.chat_prompt import TextCodec

from .tiny_puzzles import a_model

NAMES = ("sudoku", "sokoban", "word_problems")
KNOWING = {"sudoku": "naked singles", "sokoban": "push-greedy", "word_problems": "cue words"}
SINGLES: tuple[Team, ...] = ((TOOL,), (PLAN,))
TEAMS: tuple[Team, ...] = (AGENTS, *SINGLES)


def silent(event: JobLine) -> None:
    """A watch that ignores everything."""


def codec_of(pieces: Sequence[str], folder: Path) -> TextCodec:
    size = NetworkSize(hidden=32, feed_forward=32, layers=1)
    write_initial_model(size, pieces, 1, folder / "model")
    return load_base(str(folder / "model")).codec


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_weak_team_s_answers_can_always_be_parsed(name: str, team: Team) -> None:
    for _, text in islice(LearnedGame.of(name).demonstrations(5, team), 100):
        read = (read_calls(text, 3), read_rows(text), read_moves(text, 9))
        assert [result for result in read if not isinstance(result, Refusal)], text


@pytest.mark.parametrize("name", NAMES)
def test_handwritten_players_rank_by_what_they_know(name: str) -> None:
    """The tool by itself leaves work for the team, and the weak team leaves room to learn."""
    solved = LearnedGame.of(name).baselines(seed=7, count=60)
    knowing = solved[KNOWING[name]]
    assert solved["random"] < knowing <= solved["oracle"] == 60
    assert 60 * 0.1 <= solved["weak team"] <= 60 * 0.45


@pytest.mark.parametrize("name", taught())
@pytest.mark.parametrize("split", [Split.VALIDATION, Split.TEST])
def test_the_puzzles_for_measurement_are_all_different(name: str, split: Split) -> None:
    game = LearnedGame.of(name)
    instances = [table.instance for table in game.tables(split, 2027, 300)]
    assert len(instances) == len(set(instances)) == 300
    assert instances[:100] == [table.instance for table in game.tables(split, 2027, 100)]


@pytest.mark.parametrize("name", NAMES)
def test_every_piece_is_one_token_and_texts_take_few_tokens(name: str, tmp_path: Path) -> None:
    game = LearnedGame.of(name)
    write_initial_model(
        NetworkSize(hidden=32, feed_forward=32, layers=1), game.pieces, 1, tmp_path / "m"
    )
    codec = load_base(str(tmp_path / "m")).codec
    assert {piece: len(codec.encode(piece)) for piece in game.pieces} == dict.fromkeys(
        game.pieces, 1
    )
    for observation, _ in islice(game.demonstrations(3), 200):
        assert len(codec.encode(observation)) < len(observation) / 3


def failing_sudoku(writes: str) -> str:
    game = LearnedGame.of("sudoku")
    grid = ((1, 2, 3, 4), (3, 4, 1, 2), (2, 1, 4, 3), (0, 0, 0, 0))
    setting = SudokuSetting(turns=1, team=(PLAN,))
    instance = SudokuInstance(givens=grid, setting=setting)
    episode = SUDOKU.reset(instance.model_dump(mode="json"))
    applied = episode.apply(PLAN, f"#### [{writes}]")
    return game.failure(episode, int(bool(applied.observation.refusals)))


@pytest.mark.parametrize(
    ("writes", "kind"),
    [("(4, 1, 4), (4, 2, 4)", "contradiction"), ("(4, 1, 4), (4, 2, 3)", "out of turns"),
     ("(1, 1, 4)", "refused")],
)  # fmt: skip
def test_a_failed_sudoku_is_classified_by_its_grid(writes: str, kind: str) -> None:
    assert failing_sudoku(writes) == kind


def test_a_wrong_digit_without_a_contradiction_counts_as_guessed() -> None:
    givens = ((1, 0, 0, 0), (0, 0, 0, 2), (0, 3, 0, 0), (0, 0, 4, 0))
    instance = SudokuInstance(givens=givens, setting=SudokuSetting(turns=1, team=(PLAN,)))
    episode = SUDOKU.reset(instance.model_dump(mode="json"))
    episode.apply(PLAN, "#### [(1, 2, 4)]")
    assert LearnedGame.of("sudoku").failure(episode, 0) == "guessed"


@pytest.mark.parametrize(
    ("moves", "kind"),
    [("D", "untouched"), ("R, D", "out of turns"), ("U", "refused"),
     ("R, D, D", "dead")],
)  # fmt: skip
def test_a_failed_sokoban_is_classified_by_its_box(moves: str, kind: str) -> None:
    level = ("######", "#@   #", "# $  #", "#  . #", "#    #", "######")
    setting = SokobanSetting(turns=1, team=(PLAN,))
    instance = SokobanInstance(level=level, setting=setting)
    episode = SOKOBAN.reset(instance.model_dump(mode="json"))
    applied = episode.apply(PLAN, f"#### [{moves}]")
    assert (
        LearnedGame.of("sokoban").failure(episode, int(bool(applied.observation.refusals))) == kind
    )
    assert isinstance(episode.state, Play)


@pytest.mark.parametrize(
    ("proposed", "text", "kind"),
    [
        ("add(n1, n2)", "answer(r1)", "wrong operator"),
        ("mul(n1, n3)", "keep(r1)", "wrong operands"),
        ("mul(n1, n2)", "answer(r1)", "answered too early"),
        ("mul(n1, n2)", "keep(r1)", "out of turns"),
        ("div(n3, n1)", "answer(r1)", "refused"),
        ("div(n3, n1)", "answer(9)", "wrong answer"),
    ],
)
def test_a_failed_word_problem_is_classified_by_its_calculations(
    proposed: str, text: str, kind: str
) -> None:
    instance = WordProblemInstance.model_validate(
        {
            "text": "Ada has 6 boxes of 12 nuts. She eats 7. How many nuts are left?",
            "solution": [
                {"left": 6, "operator": "*", "right": 12, "result": 72},
                {"left": 72, "operator": "-", "right": 7, "result": 65},
            ],
            "setting": {"turns": 1, "named": True},
        }
    )
    episode = WORD_PROBLEMS.reset(instance.model_dump(mode="json"))
    episode.apply(TOOL, f"#### [{proposed}]")
    applied = episode.apply(PLAN, f"#### [{text}]")
    refused = int(bool(applied.observation.refusals))
    assert LearnedGame.of("word_problems").failure(episode, refused) == kind


def told(game: LearnedGame, split: Split, count: int) -> set[str]:
    """The wordings of a split's puzzles as arms receive them."""
    wordings: set[str] = set()
    for table in game.tables(split, 11, count):
        puzzle = cast("Working", table.episode).puzzle
        wordings.update(cast("WordProblemPuzzle", puzzle).instance.wordings)
    return wordings


def test_arms_never_learn_from_a_wording_of_a_test_problem() -> None:
    game = LearnedGame.of("word_problems")
    tested, learned = told(game, Split.TEST, 400), told(game, Split.TRAIN, 400)
    assert tested
    assert not tested & learned
    assert not tested & told(game, Split.VALIDATION, 400)
    assert not learned & told(game, Split.VALIDATION, 400)


def test_demonstrations_cover_few_wordings_and_rewards_cover_all() -> None:
    game = LearnedGame.of("word_problems")
    every = [w for scheme in schemes() if not scheme.held_out for w in scheme.wordings]
    training = [w for w in every if split_of_wording(w) is Split.TRAIN]
    team = cast("WeakTeam", game.weak_team)
    wording_ids = {wording.id for wording in training if team.demonstrates(wording)}
    assert 0.08 < len(wording_ids) / len(training) < 0.17
    assert not told(game, Split.TRAIN, 200) <= wording_ids
    instances = list(
        islice(
            stream(
                Split.TRAIN, 3, cast("WordProblemTeamDifficulty", game.puzzle), team.demonstrates
            ),
            60,
        )
    )
    assert {wording for instance in instances for wording in instance.wordings} <= wording_ids
    demonstrated = [name_numbers(instance.text) for instance in instances]
    for observation, _ in islice(game.demonstrations(3), 60):
        assert any(text in observation for text in demonstrated)
    whole = WeakTeam(wordings=1)
    assert all(whole.demonstrates(wording) for wording in training)


@pytest.mark.parametrize("name", NAMES)
def test_arms_of_every_kind_can_be_trained_on_each_game(name: str, tmp_path: Path) -> None:
    """The settings are so small that nothing is learned."""
    entry = LearnedGame.of(name)
    settings = ArmSettings(
        game=entry,
        seeds=(1,),
        network=NetworkSize(hidden=32, feed_forward=32, layers=1, context=384),
        supervised=Supervised(steps=2, batch=4, warmup=1),
        reinforced=Reinforced(
            steps=1, episodes=2, candidates=3, limit=8, minibatch=4, scheme="progress"
        ),
        held_out=4, looks=1, looked_at=2, checkpoint_every=1,
    )  # fmt: skip
    kinds: tuple[ArmName, ...] = (WARM_START, AT_GRPO, CONTINUED, SINGLE, SINGLE_GRPO)
    for kind in kinds:
        result = train_arm(Arm(kind=kind, seed=1), tmp_path, settings, silent)
        assert len(result.outcomes) == 4
        assert sum(result.failures.values()) == result.outcomes.count("0")


@pytest.mark.parametrize("name", taught())
class TestGame:
    """Every game satisfies the protocol."""

    def test_the_same_seed_gives_the_same_puzzles_and_texts(self, name: str) -> None:
        game = LearnedGame.of(name)
        for team in (None, *SINGLES):
            first, again = (
                [
                    table.episode.observe(table.episode.agent)
                    for table in game.tables(Split.TEST, 3, 4, team)
                ]
                for _ in range(2)
            )
            assert first == again
            rows, same_rows = (
                [row for row, _ in zip(game.demonstrations(3, team), range(8), strict=False)]
                for _ in range(2)
            )
            assert rows == same_rows

    def test_a_team_of_one_acts_alone(self, name: str) -> None:
        game = LearnedGame.of(name)
        for team in SINGLES:
            assert game.tables(Split.TEST, 3, 1, team)[0].episode.agents == team
        assert game.tables(Split.TEST, 3, 1)[0].episode.agents == AGENTS

    def test_the_weak_team_s_answers_fit_its_limits(self, name: str, tmp_path: Path) -> None:
        entry = LearnedGame.of(name)
        loaded = a_model(tmp_path / "model", game=entry)
        prompter = Prompter(loaded)
        for _, (observation, answer) in zip(range(40), entry.demonstrations(1), strict=False):
            ids = loaded.codec.encode(answer)
            # One more ends the turn.
            assert len(ids) < entry.training.reinforced.limit
            assert loaded.codec.decode(ids) == answer
            assert len(prompter.ids(observation)) + len(ids) < entry.training.network.context

    def test_its_oracle_solves_everything_and_chance_does_not(self, name: str) -> None:
        solved = LearnedGame.of(name).baselines(5, 12)
        assert all(0 <= count <= 12 for count in solved.values())
        assert solved["random"] < solved["oracle"] == 12
