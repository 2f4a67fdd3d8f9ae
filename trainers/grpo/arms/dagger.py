"""One step of DAgger (Ross, Gordon and Bagnell 2011, arXiv:1011.0686): the team plays, and in every
state that it reaches it imitates the answer of a player that knows the solution.

Imitation of that player's own games would teach nothing about the states into which only the team's
mistakes lead. There is no memory of earlier steps' answers: every step plays other puzzles, and
their number has no end.
"""

from __future__ import annotations

import random
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.steps import StepFacts
from loopline.trainers.grpo.arms.supervised import Answer, imitate
from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.sampling import Completion, Sampler
from loopline.trainers.grpo.settings import SHARED, Schedule
from loopline.trainers.grpo.vectorized_rollout import TEMPERATURE, Prompter, turns

if TYPE_CHECKING:
    import torch

_SEEDS = 1_000_037
"""Factor of the seed, different from that of other arms: their puzzles coincide only by chance."""
_SORTED = 4
"""Batches that are filled together, sorted by length: less of them is padding."""


class Lesson(NamedTuple):
    """The expert's answers in the states of some puzzles."""

    answers: list[Answer]
    solved: int
    """Puzzles that the team solved."""


class DaggerSteps:
    """Steps that are determined only by the weights, the settings, the seed and the step's
    number."""

    def __init__(
        self,
        settings: ArmSettings,
        seed: int,
        policies: Policies,
        prompter: Prompter,
        sampler: Sampler,
    ) -> None:
        self._settings = settings
        self._seed = seed
        self._policies = policies
        self._prompter = prompter
        self._sampler = sampler
        self._end = min(prompter.loaded.end_ids)

    def step(self, number: int, done: float) -> StepFacts:
        """The step after `number` others. Raises `NotFinite`, with the weights as they were."""
        training, read = self._settings.dagger, self._sampler.tokens
        lesson = self.play(number)
        schedule = Schedule(shape="linear", warmup=training.warmup)
        rate = training.learning_rate * schedule.factor(number + 1, training.steps)
        before = self._policies.copied()
        batches = self.batches(lesson.answers, number)
        try:
            updates = [
                imitate(self._policies, batch, rate, f"step {number + 1}, batch {at}")
                for at, batch in enumerate(batches, 1)
            ]
        except NotFinite:
            self._policies.restore(before)
            raise
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

    def play(self, number: int) -> Lesson:
        """Play the puzzles of a step with the present weights, and note the expert's answer in each
        state. In the first steps the expert acts: the states of random weights are those of players
        that do nothing. Later steps alternate between greedy play, which is what counts, and
        samples, which reach more states."""
        import torch

        training, codec = self._settings.dagger, self._prompter.loaded.codec
        seed, answers, solved = self.puzzle_seed(number), list[Answer](), 0
        generator = torch.Generator().manual_seed(seed)
        playing = dict(enumerate(self._settings.game.expert_tables(seed, training.episodes)))
        for agent, at, prompts in turns(playing, self._prompter, lambda _: self._activate()):
            texts = [playing[index].answer() for index in at]
            answers += [
                (prompt, [*codec.encode(text), self._end])
                for prompt, text in zip(prompts, texts, strict=True)
            ]
            if number >= training.led:
                texts = [
                    self._prompter.text(completion)
                    for completion in self._complete(prompts, number, generator)
                ]
            for index, text in zip(at, texts, strict=True):
                episode = playing[index].episode
                episode.apply(agent, text)
                if episode.done:
                    solved += episode.verify().solved
                    del playing[index]
        return Lesson(answers, solved)

    def _activate(self) -> object:
        return self._policies.activate(SHARED)

    def _complete(
        self, prompts: list[list[int]], number: int, generator: torch.Generator
    ) -> list[Completion]:
        limit = self._settings.reinforced.limit
        if number % 2 == 0:
            return self._sampler.greedy(prompts, limit=limit)
        sampled = self._sampler.sample(
            prompts, count=1, limit=limit, temperature=TEMPERATURE, generator=generator
        )
        return [completion for (completion,) in sampled]

    def batches(self, answers: list[Answer], number: int) -> list[list[Answer]]:
        """Every answer as often as the settings say, in random batches of similar length."""
        training = self._settings.dagger
        rng = random.Random(f"batches:{self.puzzle_seed(number)}")
        size, batches = training.batch, list[list[Answer]]()
        for _ in range(training.passes):
            mixed = rng.sample(answers, len(answers))
            for at in range(0, len(mixed), _SORTED * size):
                together = sorted(
                    mixed[at : at + _SORTED * size], key=lambda answer: sum(map(len, answer))
                )
                batches += [together[n : n + size] for n in range(0, len(together), size)]
        rng.shuffle(batches)
        return batches
