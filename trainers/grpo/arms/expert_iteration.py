"""Expert iteration (Anthony et al. 2017, arXiv:1705.08439) with the best of K candidates as the
expert, also called best-of-K imitation: the candidate that the search executed becomes more
probable, regardless of how much better it was or how bad the others were."""

from __future__ import annotations

from statistics import fmean

from loopline.trainers.grpo.arms.supervised import Answer, imitate_all
from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.stream import StepBatch


def imitate_best(
    policies: Policies, batch: StepBatch, rate: float = 1.0
) -> tuple[int, dict[str, float]]:
    """Updates by the best candidate of each group at `rate` times the learning rate, with the same
    number of groups per update as GRPO; returns the tokens that went through the model, and curves.

    Raises `NotFinite`, with weights and moments as they were, for a loss or a gradient that is not
    finite.
    """
    settings = policies.settings
    answers = [best_answer(group) for group in batch.groups]
    size = settings.minibatch or len(answers)
    parts = [answers[at : at + size] for at in range(0, len(answers), size)]
    learning_rate = rate * settings.learning_rate
    imitations = imitate_all(policies, parts, learning_rate, f"version {batch.version}")
    return sum(imitation.tokens for imitation in imitations), {
        "loss": fmean(imitation.loss for imitation in imitations)
    }


def best_answer(group: Group) -> Answer:
    """The prompt of a group of single completions, and the candidate that was executed: the first
    of the best."""
    best = max(group.members, key=lambda member: member.reward)
    (sequence,) = best.sequences
    begin = sequence.learned.index(True)
    return sequence.ids[:begin], sequence.ids[begin:]
