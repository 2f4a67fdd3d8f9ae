"""A training's stages as curves: `OUTPUT/report.html`."""

from __future__ import annotations

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.report_page import Plot, share, step_curve, training_page
from loopline.trainers.glpft.report import Report, StageFacts
from loopline.trainers.glpft.stage_training import REPORT_EVERY
from loopline.workers.engines.local.model_files import model_name

PAGE = "report.html"


def render(report: Report) -> str:
    """The whole page."""
    settings = report.settings
    begun = "random weights" if settings.base is None else model_name(settings.base)
    about = (
        f"{format_count(len(report.stages), 'stage')}, {report.tokens:,} tokens of a budget of "
        f"{report.budget:,}, {share(report.padding / max(report.tokens, 1))} padding, "
        f"{report.seconds / 60:.1f} minutes"
    )
    return training_page(
        f"{settings.method} from {begun}",
        about,
        [
            Plot(
                "Loss",
                "Nats per learned token: the mean of each stretch of steps, by stage.",
                [step_curve(stage.stage, _losses(stage)) for stage in report.stages],
            ),
            Plot(
                "Validation loss",
                "Nats per learned token on kept-out instructions, before and after each stage.",
                [
                    step_curve(
                        stage.stage,
                        [(0, stage.validation_before), (stage.steps, stage.validation_after)],
                    )
                    for stage in report.stages
                    if stage.validation_before is not None and stage.validation_after is not None
                ],
                least=0.0,
            ),
        ],
        {"Stages": (_HEAD, [_row(stage) for stage in report.stages])},
        {stage.stage: stage.seconds for stage in report.stages},
        settings,
    )


def _losses(stage: StageFacts) -> list[tuple[int, float]]:
    """Losses of each interval, with the step at its end."""
    return [
        (min(stage.steps, at * REPORT_EVERY), loss) for at, loss in enumerate(stage.losses, start=1)
    ]


_HEAD = [
    "stage", "rows", "steps", "tokens", "padding", "learned", "loss", "validation", "trained",
    "tokens/s", "peak MB so far",
]  # fmt: skip


def _row(stage: StageFacts) -> list[str]:
    losses = stage.losses
    before, after = stage.validation_before, stage.validation_after
    return [
        stage.stage,
        f"{stage.rows:,}",
        f"{stage.steps:,}",
        f"{stage.tokens:,}",
        share(stage.padding / max(stage.tokens, 1)),
        f"{stage.learned:,}",
        f"{losses[0]:.3f} → {losses[-1]:.3f}" if losses else "–",
        "–" if before is None or after is None else f"{before:.3f} → {after:.3f}",
        f"{stage.trained_parameters:,}",
        f"{stage.tokens / max(stage.seconds, 1e-9):,.0f}",
        f"{stage.peak_memory_mb:,.0f}",
    ]
