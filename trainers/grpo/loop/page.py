"""A loop as curves: `OUTPUT/report.html`."""

from __future__ import annotations

from runtime.words import counted
from trainers.grpo.loop.report import LoopReport
from trainers.grpo.page import policy_table, step_plots
from trainers.grpo.report import summaries
from trainers.report_page import Plot, over_steps, share, training_page
from workers.engines.local.model_files import model_name


def render(report: LoopReport) -> str:
    """The whole page."""
    rounds, found = report.rounds, summaries(report.steps)
    subject, grpo = report.settings.subject, report.settings.grpo
    runs = sum(each.runs for each in rounds)
    about = (
        f"{', '.join(found) or 'no policy'} of {model_name(grpo.base)} on {subject}: "
        f"{counted(len(rounds), 'round')}, {counted(runs, 'run')} on the bus, "
        f"{report.trained_parameters:,} of {report.parameters:,} parameters, "
        f"{report.peak_memory_mb:,.0f} MB, {report.seconds.total / 60:.1f} minutes"
    )
    solved = Plot(
        "Solved",
        "Share of a round's runs, in which the best candidate of each turn was executed.",
        [over_steps("runs", [(each.round, each.success) for each in rounds])],
        share, 0.0, 1.0,
    )  # fmt: skip
    agreed = Plot(
        "Agreement",
        "How often the plan agent did exactly what was proposed to it, of the times that something "
        "was. One that always agrees adds nothing.",
        [over_steps("runs", [(r.round, r.agreement) for r in rounds if r.agreement is not None])],
        share, 0.0, 1.0,
    )  # fmt: skip
    return training_page(
        f"AT-GRPO as a loop: {subject}",
        about,
        [solved, agreed, *step_plots(report.steps, grpo.clip)],
        {"Policies": policy_table(found)},
        report.seconds.model_dump(),
        report.settings,
    )
