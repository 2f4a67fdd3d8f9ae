"""One step of DAgger (Ross, Gordon and Bagnell 2011, arXiv:1011.0686): the team plays, and in every
state that it reaches it imitates the answer of a player that knows the solution.

Imitation of that player's own games would teach nothing about the states into which only the team's
mistakes lead. There is no memory of earlier steps' answers: every step plays other puzzles, and
their number has no end.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from loopline.trainers.grpo.arms.models import Playing
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.steps import StepFacts
from loopline.trainers.grpo.arms.supervised import Answer, imitate_all
from loopline.trainers.grpo.settings import SHARED, Schedule
from loopline.trainers.grpo.vectorized_rollout import TEMPERATURE, turns
from loopline.workers.engines.text.chat_prompt import TextCodec

if TYPE_CHECKING:
    import torch

_SEEDS = 1_000_037
"""Factor of the seed, different from that of other arms: their puzzles coincide only by chance."""
_SORTED = 4
"""Batches that are filled together, sorted by length: less of them is padding."""
_WORD = re.compile(" [A-Za-z]+")


class Lesson(NamedTuple):
    """The expert's answers in the states of some puzzles."""

    answers: list[Answer]
    solved: int
    """Puzzles that the team solved."""


class DaggerSteps:
    """Steps that are determined only by the weights, the settings, the seed and the step's
    number."""

    def __init__(self, settings: ArmSettings, seed: int, playing: Playing) -> None:
        self._settings = settings
        self._seed = seed
        self._policies = playing.policies
        self._prompter = playing.prompter
        self._sampler = playing.sampler
        self._end = min(playing.prompter.loaded.end_ids)
        self._letters = letters_of_words(settings.game.pieces, playing.prompter.loaded.codec)

    def step(self, number: int, done: float) -> StepFacts:
        """The step after `number` others. Raises `NotFinite`, with the weights as they were."""
        training, read = self._settings.dagger, self._sampler.tokens
        lesson = self.play(number, done)
        schedule = Schedule(shape="linear", warmup=training.warmup)
        rate = training.learning_rate * schedule.factor(number + 1, training.steps)
        batches = self.batches(lesson.answers, number)
        updates = imitate_all(
            self._policies, batches, rate, f"step {number + 1}", training.prompt_loss_weight
        )
        loss, share = fmean(update.loss for update in updates), lesson.solved / training.episodes
        return StepFacts(
            self._sampler.tokens - read + sum(update.tokens for update in updates),
            len(lesson.answers),
            {"loss": loss, "rollouts solved": share},
            f"rollouts solved {share:.0%}, loss {loss:.3f}",
        )

    def puzzle_seed(self, number: int) -> int:
        """Seed of the puzzles of a step."""
        return self._seed * _SEEDS + number

    def play(self, number: int, done: float) -> Lesson:
        """Play the puzzles of a step with the present weights, and note the expert's answer in each
        state. An episode ends when the expert has none.

        In a part of the states, which falls as the training goes on, the expert acts: mistakes of
        a team that has learned little would lead to nothing but hopeless states. Steps alternate
        between greedy play, which is what counts, and samples, which reach more states.
        """
        import torch

        training, codec = self._settings.dagger, self._prompter.loaded.codec
        seed, answers, solved = self.puzzle_seed(number), list[Answer](), 0
        expert_share = 1 - done / training.mixed if done < training.mixed else 0.0
        rng, generator = random.Random(f"acts:{seed}"), torch.Generator().manual_seed(seed)
        playing = dict(enumerate(self._settings.game.expert_tables(seed, training.episodes)))
        for agent, at, prompts in turns(playing, self._prompter, lambda _: self._activate()):
            states: list[tuple[int, list[int], str]] = []
            for index, prompt in zip(at, prompts, strict=True):
                text = playing[index].answer()
                if text is None:
                    del playing[index]
                else:
                    states.append((index, prompt, text))
            answers += [(prompt, [*codec.encode(text), self._end]) for _, prompt, text in states]
            by_expert = [rng.random() < expert_share for _ in states]
            others = [
                prompt for (_, prompt, _), acts in zip(states, by_expert, strict=True) if not acts
            ]
            team_texts = self._complete(others, number, generator)
            for (index, _, text), acts in zip(states, by_expert, strict=True):
                episode = playing[index].episode
                episode.apply(agent, text if acts else next(team_texts))
                if episode.done:
                    solved += episode.verify().solved
                    del playing[index]
        return Lesson(answers, solved)

    def batches(self, answers: Sequence[Answer], number: int) -> list[list[Answer]]:
        """Every answer as often as the settings say, in random batches of similar length."""
        training = self._settings.dagger
        rng = random.Random(f"batches:{self.puzzle_seed(number)}")
        size, batches = training.batch, list[list[Answer]]()
        for _ in range(training.passes):
            mixed = [
                (self._blur(prompt, rng), answer)
                for prompt, answer in rng.sample(answers, len(answers))
            ]
            for at in range(0, len(mixed), _SORTED * size):
                together = sorted(
                    mixed[at : at + _SORTED * size], key=lambda answer: sum(map(len, answer))
                )
                batches += [together[n : n + size] for n in range(0, len(together), size)]
        rng.shuffle(batches)
        return batches

    def _blur(self, prompt: Sequence[int], rng: random.Random) -> Sequence[int]:
        """Spell some words, and leave some out."""
        training, ids = self._settings.dagger, list[int]()
        if rng.random() < training.unchanged:
            return prompt
        for token in prompt:
            letters, drawn = self._letters.get(token), rng.random()
            if letters is None or drawn >= training.spelled + training.dropped:
                ids.append(token)
            elif drawn < training.spelled:
                ids += letters
        return ids

    def _activate(self) -> object:
        return self._policies.activate(SHARED)

    def _complete(
        self, prompts: Sequence[Sequence[int]], number: int, generator: torch.Generator
    ) -> Iterator[str]:
        """The team's own texts."""
        limit = self._settings.reinforced.limit
        if not prompts:
            return iter(())
        if number % 2 == 0:
            return map(self._prompter.text, self._sampler.greedy(prompts, limit=limit))
        sampled = self._sampler.sample(
            prompts, count=1, limit=limit, temperature=TEMPERATURE, generator=generator
        )
        return (self._prompter.text(completion) for (completion,) in sampled)


def letters_of_words(pieces: Iterable[str], codec: TextCodec) -> dict[int, tuple[int, ...]]:
    """The tokens of a word's letters by the word's token, for all pieces that are words."""
    letters: dict[int, tuple[int, ...]] = {}
    for piece in pieces:
        ids = codec.encode(piece)
        if _WORD.fullmatch(piece) and len(ids) == 1:
            letters[ids[0]] = tuple(token for letter in piece for token in codec.encode(letter))
    return letters
