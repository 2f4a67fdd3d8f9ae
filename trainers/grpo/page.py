"""A training as curves: `OUTPUT/report.html`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from loopline.runtime.terminal.pages.curves import Curve, Point
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.report_page import Plot, share, step_curve, training_page
from loopline.trainers.grpo.learnable import TRUNCATED
from loopline.trainers.grpo.report import PolicyStep, PolicySummary, Report, StepFacts, summaries
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.workers.engines.local.model_files import model_name

PAGE = "report.html"
_LOW, _MIDDLE, _HIGH = 1, 2, 3
"""Indices of the 5, 50 and 95 % quantiles in `PolicyStep.ratios`."""


def base_names(settings: GrpoSettings, policies: Iterable[str]) -> str:
    """Names of these policies' models, as prose."""
    names = dict.fromkeys(model_name(settings.base_of(policy).model) for policy in policies)
    return " and ".join(names) or model_name(settings.base)


def render(report: Report) -> str:
    """The whole page."""
    policy_summaries = summaries(report.steps)
    names = ", ".join(policy_summaries) or "no policy"
    left_out = {**report.skipped, **({TRUNCATED: report.truncated} if report.truncated else {})}
    about = (
        f"{names}: version {report.settings.base_version} → {report.version} of "
        f"{base_names(report.settings, policy_summaries)} in "
        f"{format_count(len(report.steps), 'step')}; {format_count(report.groups, 'group')} of "
        f"{format_count(report.runs, 'run')}, {report.zero_variance:,} with equal rewards; "
        f"{report.trained_parameters:,} of {report.parameters:,} parameters, "
        f"{report.peak_memory_mb:,.0f} MB, {report.seconds / 60:.1f} minutes"
    )
    return training_page(
        f"AT-GRPO: {names}",
        about,
        step_plots(report.steps, report.settings.clip),
        {"Policies": policy_table(policy_summaries), "Left out": left_out_table(left_out)},
        _seconds(report),
        report.settings,
    )


def step_plots(steps: Sequence[StepFacts], clip: float) -> list[Plot]:
    """Plots of the steps of any training, offline or in a loop; `clip` is the largest norm of the
    gradient."""
    return [
        Plot(
            "Reward",
            "Mean over all samples that were drawn for the groups that were learned from. Groups "
            "whose rewards are all equal are excluded.",
            _by_policy(steps, lambda step: step.reward),
        ),
        Plot("Loss", "Mean over the updates of a step.", _by_policy(steps, lambda s: s.loss)),
        Plot(
            "Zero-variance groups",
            "Share of the groups whose rewards are all equal, from which nothing can be learned.",
            _zero_variance(steps),
            share, 0.0,
        ),
        Plot(
            "Effective sample size",
            "Share of the tokens that the importance ratios π_prox/π_behav leave: 100 % on policy.",
            _by_policy(steps, lambda step: step.effective_samples),
            share, None, 1.0,
        ),
        Plot(
            "Importance ratios",
            "Median of π_prox/π_behav over the learned tokens; the band is from the 5 % to the "
            "95 % quantile.",
            _ratios(steps),
        ),
        Plot(
            "Clipped tokens",
            "Share of the learned tokens without a gradient: the ratio is out of bounds, or the "
            "sequence was left out.",
            _by_policy(steps, lambda step: step.clipped),
            share, 0.0,
        ),
        Plot(
            "KL of sampler to trainer",
            "KL(π_behav ‖ π_prox), nats per token: 0 on policy, except for rounding differences "
            "between the two programs.",
            _by_policy(steps, lambda step: step.kl_to_sampler),
            least=0.0,
        ),
        Plot(
            "KL to the reference",
            "From the weights that the training started from, nats per token.",
            _by_policy(steps, lambda step: step.divergence),
            least=0.0,
        ),
        Plot(
            "Staleness",
            "Versions by which the groups are behind: the mean, with a band from the youngest to "
            "the oldest.",
            _ages(steps),
            least=0.0,
        ),
        Plot(
            "Groups too old",
            "Groups of all policies that are left out of a step because they are staler than "
            "allowed.",
            [step_curve("all", [(at, step.stale) for at, step in enumerate(steps, 1)])]
            if any(step.stale for step in steps)
            else [],
            least=0.0,
        ),
        Plot("Entropy", "Nats per token.", _by_policy(steps, lambda s: s.entropy), least=0.0),
        Plot(
            "Gradient norm",
            f"Before it is clipped to {clip:g}.",
            _by_policy(steps, lambda step: step.gradient_norm),
            least=0.0,
        ),
        Plot(
            "Truncated sequences",
            "Share of the sequences that reached their token limit.",
            _by_policy(steps, lambda step: step.truncated),
            share, 0.0,
        ),
        Plot(
            "Tokens per second",
            "Tokens that went through the model, padding included.",
            _by_policy(steps, lambda step: step.tokens / max(step.seconds, 1e-9)),
            least=0.0,
        ),
    ]  # fmt: skip


def _own_steps(steps: Sequence[StepFacts]) -> dict[str, list[tuple[int, PolicyStep]]]:
    """Steps of each policy, with their numbers."""
    steps_by_policy: dict[str, list[tuple[int, PolicyStep]]] = {}
    for at, step in enumerate(steps, start=1):
        for name, policy_step in step.policies.items():
            steps_by_policy.setdefault(name, []).append((at, policy_step))
    return steps_by_policy


def _by_policy(
    steps: Sequence[StepFacts], value: Callable[[PolicyStep], float | None]
) -> list[Curve]:
    curves: list[Curve] = []
    for name, policy_steps in _own_steps(steps).items():
        points = [
            (at, step_value) for at, step in policy_steps if (step_value := value(step)) is not None
        ]
        curves.append(step_curve(name, points))
    return curves


def _zero_variance(steps: Sequence[StepFacts]) -> list[Curve]:
    """Shares of groups without variance, including steps in which a policy learned nothing."""
    points_by_policy: dict[str, list[tuple[int, float]]] = {name: [] for name in _own_steps(steps)}
    for at, step in enumerate(steps, start=1):
        for name, value in step.zero_variance_shares.items():
            points_by_policy.setdefault(name, []).append((at, value))
    return [step_curve(name, values) for name, values in points_by_policy.items()]


def _ratios(steps: Sequence[StepFacts]) -> list[Curve]:
    return [
        Curve(
            name,
            [
                Point(float(at), step.ratios[_MIDDLE], step.ratios[_LOW], step.ratios[_HIGH])
                for at, step in policy_steps
            ],
        )
        for name, policy_steps in _own_steps(steps).items()
    ]


def _ages(steps: Sequence[StepFacts]) -> list[Curve]:
    return [
        Curve(
            name,
            [
                Point(
                    x=float(at),
                    y=sum(age * count for age, count in step.ages.items()) / step.groups,
                    low=float(min(step.ages)),
                    high=float(max(step.ages)),
                )
                for at, step in policy_steps
            ],
        )
        for name, policy_steps in _own_steps(steps).items()
    ]


def policy_table(policies: Mapping[str, PolicySummary]) -> tuple[list[str], list[list[str]]]:
    """Results of each policy, as a heading and rows."""
    head = [
        "policy", "steps", "groups", "zero-variance", "learned tokens", "loss", "reward",
        "ESS, least", "clipped", "oldest", "tokens/s",
    ]  # fmt: skip
    rows = [
        [
            name,
            f"{row.steps:,}",
            f"{row.groups:,}",
            share(row.zero_variance_share),
            f"{row.learned_tokens:,}",
            f"{row.first_loss:+.4f} → {row.last_loss:+.4f}".replace("-", "−"),
            f"{row.first_reward:.3f} → {row.last_reward:.3f}".replace("-", "−"),
            share(row.least_effective_samples),
            share(row.clipped_share),
            f"{row.oldest:,}",
            f"{row.tokens_per_second:,.0f}",
        ]
        for name, row in policies.items()
    ]
    return head, rows


def left_out_table(counts: Mapping[str, int]) -> tuple[list[str], list[list[str]]]:
    """Number of samples left out, by reason, as a heading and rows."""
    return ["why", "times"], [[why, f"{count:,}"] for why, count in counts.items()]


def _seconds(report: Report) -> dict[str, float]:
    """Seconds that each policy spent learning, and seconds between steps."""
    seconds_by_part = {
        f"learning of {name}": sum(step.seconds for _, step in steps)
        for name, steps in _own_steps(report.steps).items()
    }
    return {
        **seconds_by_part,
        "between steps": max(0.0, report.seconds - sum(seconds_by_part.values())),
    }
