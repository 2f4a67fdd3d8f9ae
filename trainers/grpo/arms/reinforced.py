"""One step of GRPO, or of expert iteration: the present weights play puzzles of the training split,
and are updated by the resulting groups."""

from __future__ import annotations

from typing import NamedTuple

from loopline.agents.environments.game import Agent
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.records import PolicyRef
from loopline.trainers.grpo.advantages import has_signal
from loopline.trainers.grpo.arms.expert_iteration import imitate_best
from loopline.trainers.grpo.arms.kinds import ArmKind
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.steps import StepFacts
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.losses import Correction
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.sampling import Sampler
from loopline.trainers.grpo.settings import LORA_RATE, GrpoSettings, Schedule
from loopline.trainers.grpo.stream import StepBatch
from loopline.trainers.grpo.vectorized_rollout import Prompter, RolloutResult, Rules, roll_out
from loopline.trainers.grpo.whole_runs import roll_out_runs

_PIECE_TOKENS = 8_192
SCHEDULE_PARTS = 1_000
"""Number of parts of a training, each with its own learning rate. An arm with a budget does not
know its number of steps."""
_SEEDS = 1_000_033
"""Factor of the seed, different from the demonstrations': puzzles of both coincide only by
chance."""


class Batch(NamedTuple):
    """Puzzles that were played and not yet learned from."""

    played: RolloutResult
    tokens: int
    """Tokens that went through the model to play them."""


def grpo_settings(
    settings: ArmSettings,
    kind: ArmKind,
    base_sha256: str,
    seed: int,
    *,
    correction: Correction = "token",
) -> GrpoSettings:
    """Settings of the updates."""
    training = settings.reinforced
    whole_runs = kind.grouping == "trajectory"
    lora = kind.weights == "lora"
    return GrpoSettings.model_validate(
        {
            "base": "model",
            "base_sha256": base_sha256,
            "data_sha256": "",
            "grouping": kind.grouping,
            "group_size": training.candidates,
            # So that an update has the same number of completions: a run has one for each of its
            # turns.
            "minibatch": max(1, training.minibatch // (settings.game.turns if whole_runs else 1)),
            # An answer that never ends is a bad one here, and must not be left out.
            "truncated": "keep",
            "policies": kind.policies,
            "weights": kind.weights,
            "rank": training.rank,
            "learning_rate": training.learning_rate * (LORA_RATE if lora else 1.0),
            "objective": {"entropy": training.entropy, "correction": correction},
            "micro_batch_tokens": _PIECE_TOKENS,
            "seed": seed,
        }
    )


class ReinforcedSteps:
    """Steps that are determined only by the weights, the settings, the seed and the step's
    number."""

    def __init__(
        self,
        settings: ArmSettings,
        kind: ArmKind,
        seed: int,
        policies: Policies,
        prompter: Prompter,
        sampler: Sampler,
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._seed = seed
        self._policies = policies
        self._learner = Learner(policies)
        self._prompter = prompter
        self._sampler = sampler

    def step(self, number: int, done: float) -> StepFacts:
        """The step after `number` others: version `number` plays, and the next version is made."""
        schedule = Schedule(shape=self._settings.reinforced.schedule)
        rate = schedule.factor(1 + int(SCHEDULE_PARTS * done), SCHEDULE_PARTS)
        return self.learn(self.play(number, number), number, rate)

    def play(self, number: int, version: int) -> Batch:
        """Play the puzzles of batch `number` with the present weights, which are `version`."""
        import torch

        training, grpo = self._settings.reinforced, self._policies.settings
        seed = self._seed * _SEEDS + number
        before = self._sampler.tokens

        def policy(agent: Agent) -> PolicyRef:
            return PolicyRef(name=grpo.policy_of(agent), base=grpo.base, version=version)

        play = roll_out if grpo.grouping == "at-grpo" else roll_out_runs
        played = play(
            self._settings.game.tables(Split.TRAIN, seed, training.episodes, self._kind.team),
            self._prompter,
            self._sampler,
            Rules(training.candidates, training.limit, scheme=training.scheme),
            policy,
            lambda agent: self._policies.activate(grpo.policy_of(agent)),
            torch.Generator().manual_seed(seed),
            run=f"batch {number}",
        )
        return Batch(played, self._sampler.tokens - before)

    def learn(self, batch: Batch, version: int, rate: float = 1.0) -> StepFacts:
        """Update the present weights, which are `version`, from a batch, whichever version played
        it, at `rate` times the learning rate. Raises `NotFinite`, with the weights unchanged."""
        played = batch.played
        learned = tuple(group for group in played.groups if has_signal(group.rewards))
        zero_variance = tuple(group for group in played.groups if not has_signal(group.rewards))
        share = played.solved / played.episodes
        curves = {
            "rollouts solved": share,
            "zero-variance share": len(zero_variance) / len(played.groups),
        }
        trained = 0
        if learned:
            part = StepBatch(version, learned, zero_variance, 0)
            if self._kind.loss == "cross-entropy":
                trained, more = imitate_best(self._policies, part, rate)
            else:
                trained, more = self._update_by_advantages(part, rate)
            curves |= more
        message = f"rollouts solved {share:.0%}, groups {len(learned)} of {len(played.groups)}"
        return StepFacts(batch.tokens + trained, played.samples, curves, message)

    def _update_by_advantages(self, batch: StepBatch, rate: float) -> tuple[int, dict[str, float]]:
        """Updates by every candidate's advantage; returns the tokens that went through the model,
        and curves."""
        policy_steps = self._learner.step(batch, rate)
        curves = {
            f"{name}/{key}": value
            for name, policy_step in policy_steps.items()
            for key, value in policy_step.curves().items()
        }
        return sum(policy_step.tokens for policy_step in policy_steps.values()), curves
