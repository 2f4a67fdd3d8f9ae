"""Facts about a training: each step, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.grpo.ratios import QUANTILES
from loopline.trainers.grpo.settings import GrpoSettings

REPORT = "report.json"


class PolicyStep(Record):
    """One step of one policy."""

    groups: int
    """Groups that the policy learned from."""
    zero_variance: int
    """Groups that were skipped since all rewards are equal."""
    reward: float
    """Mean reward of all samples of the learned groups."""
    loss: float
    """Mean loss over the updates."""
    gradient_norm: float
    """Norm of the gradient before clipping; mean over the updates."""
    divergence: float | None
    """Divergence from the reference, nats per token; None if it is not computed."""
    entropy: float
    """Entropy, nats per token."""
    clipped: float
    """Share of the learned tokens that get no gradient: they are clipped, or their weight is 0."""
    effective_samples: float
    """Effective sample size under π_prox/π_behav, as a share of the tokens: 1 on policy."""
    ratios: tuple[float, ...]
    """Quantiles of π_prox/π_behav: 1, 5, 50, 95 and 99 %."""
    kl_to_sampler: float
    """KL(π_behav ‖ π_prox), nats per token: 0 on policy except for the two programs' rounding."""
    ages: dict[int, int]
    """Groups by their age in versions."""
    truncated: float
    """Share of the sequences that reached their token limit."""
    learned: int
    """Tokens in the loss."""
    tokens: int
    """Tokens of one pass over the step's rows, padding included, without passes that only score."""
    seconds: float

    def curves(self) -> dict[str, float]:
        """Values by the name of their curve."""
        age = sum(age * count for age, count in self.ages.items()) / self.groups
        drawn = {
            "loss": self.loss,
            "reward": self.reward,
            "gradient norm": self.gradient_norm,
            "entropy": self.entropy,
            "clipped share": self.clipped,
            "effective sample size": self.effective_samples,
            "KL of sampler to trainer": self.kl_to_sampler,
            "zero-variance share": self.zero_variance / (self.zero_variance + self.groups),
            "truncated share": self.truncated,
            "age": age,
            "tokens per second": self.tokens / max(self.seconds, 1e-9),
        }
        for quantile, value in zip(QUANTILES, self.ratios, strict=True):
            drawn[f"ratio/{quantile:.0%}"] = value
        if self.divergence is not None:
            drawn["KL to reference"] = self.divergence
        return drawn


class StepFacts(Record):
    """One step of all policies."""

    version: int
    """Version of the weights at the start of the step."""
    stale: int
    """Groups that were too old to learn from."""
    truncated: int = 0
    """Groups that were skipped since all completions reached their token limit."""
    zero_variance: dict[str, int] = Field(default_factory=dict[str, int])
    """Groups of each policy that were skipped since all rewards are equal; nothing else is recorded
    for a policy that learned nothing. Empty for steps that were recorded without this field."""
    policies: dict[str, PolicyStep]
    """Steps of the policies that learned something."""

    def zero_variance_of(self, policy: str) -> int:
        policy_step = self.policies.get(policy)
        return self.zero_variance.get(
            policy, 0 if policy_step is None else policy_step.zero_variance
        )

    @property
    def zero_variance_shares(self) -> dict[str, float]:
        """Share of groups whose rewards are all equal, for each policy that had any group."""
        shares: dict[str, float] = {}
        for name in dict.fromkeys([*self.policies, *self.zero_variance]):
            policy_step, zero_variance = self.policies.get(name), self.zero_variance_of(name)
            shares[name] = zero_variance / (
                zero_variance + (0 if policy_step is None else policy_step.groups)
            )
        return shares

    def curves(self) -> dict[str, dict[str, float]]:
        """Values of each policy by the name of their curve."""
        return {
            name: {"zero-variance share": share}
            if (policy_step := self.policies.get(name)) is None
            else policy_step.curves()
            for name, share in self.zero_variance_shares.items()
        }


class Report(Record):
    """A finished training."""

    settings: GrpoSettings
    version: int
    """Version of the policies at the end of the training."""
    runs: int
    groups: int
    """Number of sealed groups."""
    zero_variance: int
    """Sealed groups whose rewards are all equal."""
    truncated: int = 0
    """Other groups whose completions all reached their token limit, if these are masked."""
    stale: int
    """Groups left out because they were too old, over all epochs, including those after the last
    step."""
    skipped: dict[str, int]
    """Number of samples that could not be learned from, by reason."""
    seconds: float
    peak_memory_mb: float
    parameters: int
    """Parameters of all bases."""
    trained_parameters: int
    """Trained parameters of each policy; if they have several bases, of the policy with the
    most."""
    steps: tuple[StepFacts, ...]


class PolicySummary(Record):
    """Results of one policy, as a row of a table."""

    steps: int
    groups: int
    """Groups that the policy learned from."""
    zero_variance_share: float
    learned_tokens: int
    first_loss: float
    last_loss: float
    first_reward: float
    last_reward: float
    least_effective_samples: float
    clipped_share: float
    oldest: int
    """Age of the oldest group in versions."""
    tokens_per_second: float


def summaries(steps: Sequence[StepFacts]) -> dict[str, PolicySummary]:
    """Summary of each policy that learned something."""
    summary_by_policy: dict[str, PolicySummary] = {}
    for name in dict.fromkeys(name for step in steps for name in step.policies):
        policy_steps = [step.policies[name] for step in steps if name in step.policies]
        groups, learned = (
            sum(policy_step.groups for policy_step in policy_steps),
            sum(policy_step.learned for policy_step in policy_steps),
        )
        zero_variance = sum(step.zero_variance_of(name) for step in steps)
        summary_by_policy[name] = PolicySummary(
            steps=len(policy_steps),
            groups=groups,
            zero_variance_share=zero_variance / (zero_variance + groups),
            learned_tokens=learned,
            first_loss=policy_steps[0].loss,
            last_loss=policy_steps[-1].loss,
            first_reward=policy_steps[0].reward,
            last_reward=policy_steps[-1].reward,
            least_effective_samples=min(
                policy_step.effective_samples for policy_step in policy_steps
            ),
            clipped_share=sum(
                policy_step.clipped * policy_step.learned for policy_step in policy_steps
            )
            / max(learned, 1),
            oldest=max(max(policy_step.ages) for policy_step in policy_steps),
            tokens_per_second=sum(policy_step.tokens for policy_step in policy_steps)
            / max(sum(policy_step.seconds for policy_step in policy_steps), 1e-9),
        )
    return summary_by_policy


def read_report(folder: Path) -> Report | None:
    """Report of a finished training; None for an unfinished one. Raises `UnreadableModel`."""
    return find_record(folder / REPORT, Report)
