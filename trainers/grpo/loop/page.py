"""A loop as curves: `OUTPUT/report.html`."""

from __future__ import annotations

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.report_page import Plot, share, step_curve, training_page
from loopline.trainers.grpo.learnable import TRUNCATED
from loopline.trainers.grpo.loop.levels import LevelFacts
from loopline.trainers.grpo.loop.report import LoopReport
from loopline.trainers.grpo.page import base_names, left_out_table, policy_table, step_plots
from loopline.trainers.grpo.report import summaries


def render(report: LoopReport) -> str:
    """The whole page."""
    rounds, policy_summaries = report.rounds, summaries(report.steps)
    subject, grpo = report.settings.subject, report.settings.grpo
    bases = base_names(grpo, policy_summaries)
    broke = f" ({report.broken:,} aborted)" if report.broken else ""
    about = (
        f"{', '.join(policy_summaries) or 'no policy'} of {bases} on {subject}: "
        f"{format_count(len(rounds), 'round')}, "
        f"{format_count(report.runs, 'run')} on the bus{broke}, "
        f"{report.trained_parameters:,} of {report.parameters:,} parameters, "
        f"{report.peak_memory_mb:,.0f} MB, {report.seconds.total / 60:.1f} minutes"
    )
    solved = Plot(
        "Solved",
        "Share of all of a round's runs, in which the best candidate of each turn was executed; a "
        "run that was aborted, by an error or its deadline, is not solved.",
        [step_curve("runs", [(round_facts.round, round_facts.success) for round_facts in rounds])],
        share, 0.0, 1.0,
    )  # fmt: skip
    agreed = Plot(
        "Agreement",
        "Share of the proposals that the plan agent carried out unchanged. An agent that always "
        "agrees adds nothing.",
        [step_curve("runs", [(r.round, r.agreement) for r in rounds if r.agreement is not None])],
        share, 0.0, 1.0,
    )  # fmt: skip
    by_level = [
        Plot(
            title, about_it,
            [
                step_curve(
                    name, [(r.round, value(r.levels[name])) for r in rounds if name in r.levels]
                )
                for name in dict.fromkeys(name for r in rounds for name in r.levels)
            ],
            share, 0.0, 1.0,
        )
        for title, about_it, value in (
            ("Solved by level", "Share of each level's runs.", _success),
            ("Puzzles by level", "Each level's share of a round's puzzles.", _share),
        )
        if any(r.levels for r in rounds)
    ]  # fmt: skip
    return training_page(
        f"AT-GRPO as a loop: {subject}",
        about,
        [solved, agreed, *by_level, *step_plots(report.steps, grpo.clip)],
        {
            "Policies": policy_table(policy_summaries),
            "Left out": left_out_table(_exclusion_counts(report)),
        },
        report.seconds.model_dump(),
        report.settings,
    )


def _success(facts: LevelFacts) -> float:
    return facts.success


def _share(facts: LevelFacts) -> float:
    return facts.share


def _exclusion_counts(report: LoopReport) -> dict[str, int]:
    """Counts of exclusions, by reason: samples that were not sealed, including runs that broke off,
    and groups that were sealed but not learned from."""
    groups = {
        TRUNCATED: sum(round_facts.truncated for round_facts in report.rounds),
        "group that was too old": sum(round_facts.stale for round_facts in report.rounds),
        "group sampled by weights that the loop has not published": sum(
            round_facts.foreign for round_facts in report.rounds
        ),
        "group of a policy whose turn it was not": sum(
            round_facts.frozen for round_facts in report.rounds
        ),
    }
    return {**report.left_out, **{why: count for why, count in groups.items() if count}}
