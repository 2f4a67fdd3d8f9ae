"""DAgger imitates an expert in the states that the team reaches by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from loopline.agents.environments.plan_path.generation import Difficulty
from loopline.agents.environments.plan_path.instance import PlanPathSetting
from loopline.agents.environments.registry import find
from loopline.agents.errors import InvalidOptions
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.grpo.arms.arm import train_arm
from loopline.trainers.grpo.arms.dagger import DaggerSteps
from loopline.trainers.grpo.arms.game import LearnedGame
from loopline.trainers.grpo.arms.kinds import DAGGER
from loopline.trainers.grpo.arms.models import Playing, untrained_policies
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.training import Dagger
from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.policies import Weights

from .tiny_puzzles import TINY

ARM = Arm(kind=DAGGER, seed=1)


def silent(event: JobLine) -> None:
    """A watch that ignores everything."""


def settings(**changes: object) -> ArmSettings:
    dagger = Dagger(steps=3, episodes=4, batch=8).model_copy(update=changes)
    return TINY.model_copy(update={"dagger": dagger})


def weights_of(playing: Playing) -> Weights:
    return {
        name: parameter.detach().clone() for name, parameter in playing.policies.network.trained()
    }


def begun(folder: Path, arms: ArmSettings) -> tuple[DaggerSteps, Playing]:
    playing = untrained_policies(ARM, folder, arms)
    return DaggerSteps(arms, 1, playing), playing


def prompts(answers: Sequence[tuple[Sequence[int], Sequence[int]]]) -> set[tuple[int, ...]]:
    return {tuple(prompt) for prompt, _ in answers}


def test_the_expert_acts_in_all_states_at_first_then_in_fewer_and_at_last_in_none(
    tmp_path: Path,
) -> None:
    arms = settings(episodes=16)
    steps, playing = begun(tmp_path, arms)
    of_expert: set[tuple[int, ...]] = set()
    firsts: set[tuple[int, ...]] = set()
    for episode, answer in arms.game.expert_tables(steps.puzzle_seed(2), 16):
        firsts.add(tuple(playing.prompter.ids(episode.observe(episode.agent))))
        while not episode.done:
            of_expert.add(tuple(playing.prompter.ids(episode.observe(episode.agent))))
            episode.apply(episode.agent, answer() or "")
    assert (led := steps.play(2, 0.0)).solved == 16
    assert prompts(led.answers) == of_expert
    mixed = prompts(steps.play(2, 0.25).answers)
    assert firsts < mixed & of_expert < of_expert
    alone = steps.play(2, 0.5)
    assert alone.solved < 16
    # Both see the same first observation of each puzzle; random weights lead elsewhere from there.
    assert prompts(alone.answers) & of_expert == firsts


@pytest.mark.parametrize("number", [1, 2], ids=["sampled", "greedy"])
def test_a_step_is_determined_by_the_weights_and_its_number(tmp_path: Path, number: int) -> None:
    weights: list[Weights] = []
    for _ in range(2):
        steps, playing = begun(tmp_path, settings())
        facts = steps.step(number, 0.5)
        assert facts.tokens > facts.samples > 0
        weights.append(weights_of(playing))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_every_answer_is_imitated_as_often_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, _ = begun(tmp_path, settings(passes=3, batch=5))
    lesson = steps.play(0, 0.0)
    batches = steps.batches(lesson.answers, 0)
    assert sum(map(len, batches)) == 3 * len(lesson.answers)
    assert max(map(len, batches)) == 5
    imitated = [answer for batch in batches for answer in batch]
    assert all(imitated.count(answer) % 3 == 0 for answer in lesson.answers)


def batches_of_words(folder: Path, **changes: object) -> tuple[list[str], list[list[int]], Playing]:
    """The texts of some prompts in order, and the prompts as they are imitated."""
    words = settings(passes=1, **changes).model_copy(
        update={"game": LearnedGame.of("word_problems")}
    )
    steps, playing = begun(folder, words)
    answers = steps.play(0, 0.0).answers
    decode = playing.prompter.loaded.codec.decode
    imitated = [[*prompt] for batch in steps.batches(answers, 0) for prompt, _ in batch]
    return sorted(decode([*prompt]) for prompt, _ in answers), imitated, playing


def test_spelling_replaces_words_by_their_letters_and_leaves_the_text_as_it_is(
    tmp_path: Path,
) -> None:
    texts, imitated, playing = batches_of_words(tmp_path, spelled=1.0, unchanged=0.5)
    codec = playing.prompter.loaded.codec
    assert sorted(map(codec.decode, imitated)) == texts
    spelled = [prompt for prompt in imitated if prompt != codec.encode(codec.decode(prompt))]
    assert 0 < len(spelled) < len(imitated)


def test_left_out_words_are_missing_and_everything_else_stays(tmp_path: Path) -> None:
    texts, imitated, playing = batches_of_words(tmp_path, dropped=1.0, unchanged=0.0)
    decode = playing.prompter.loaded.codec.decode
    without_words = sorted(re.sub(r" [A-Za-z]+", "", text) for text in texts)
    remaining = sorted(re.sub(r" [A-Za-z]+", "", decode(prompt)) for prompt in imitated)
    assert remaining == without_words
    assert sum(map(len, map(decode, imitated))) < sum(map(len, texts)) * 0.8


def test_a_loss_that_is_not_finite_changes_no_weights(tmp_path: Path) -> None:
    steps, playing = begun(tmp_path, settings(learning_rate=1e30, warmup=0, batch=64))
    before = weights_of(playing)
    with pytest.raises(NotFinite, match="step 1, minibatch 2"):
        steps.step(0, 0.0)
    after = weights_of(playing)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_small_network_learns_a_game_from_its_expert(tmp_path: Path) -> None:
    puzzle = Difficulty(
        rows=5,
        columns=5,
        setting=PlanPathSetting(turns=4, calls=2, brief=True, listed=True, marks=True),
    )
    game = LearnedGame.of("plan_path").model_copy(update={"puzzle": puzzle})
    arms = settings(steps=25, episodes=32, batch=16, learning_rate=5e-3).model_copy(
        update={"game": game, "held_out": 40, "looked_at": 40}
    )
    result = train_arm(ARM, tmp_path, arms, silent)
    assert result.steps == 25
    assert result.success > result.curve[0].success + 0.3


def test_a_game_without_an_expert_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = find("sudoku")
    assert environment.lessons is not None
    without = replace(environment.lessons, expert=None)
    monkeypatch.setattr(LearnedGame, "lessons", property(lambda self: without))
    with pytest.raises(InvalidOptions, match="sudoku has no expert"):
        LearnedGame.of("sudoku").expert_tables(1, 1)
