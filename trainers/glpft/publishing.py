"""Maps the adapters, or the models, of a finished training to policies of a deployment."""

from __future__ import annotations

from pathlib import Path

from loopline.trainers.core.publishing import Publication
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.report import Report
from loopline.trainers.glpft.settings import GlpftSettings
from loopline.trainers.glpft.stages import ROLES


def require_publishable(settings: GlpftSettings) -> None:
    """Raise `TrainingError` for results that the policies of one pool can't serve. Called before
    the training, which takes long."""
    if settings.method == "single" and not settings.agents:
        raise TrainingError(
            "--publish: a single model writes no turns of a planner, a caller or a summarizer; "
            "the workflow umi could not use it"
        )
    if settings.weights == "full" and settings.base is None:
        raise TrainingError(
            "--publish: a training from random weights has its own tokenizer, and no pool serves "
            "its initial model: name the pool's model with --base, or serve each folder in its "
            "own pool"
        )


def publications(report: Report, output: Path, pool: str) -> tuple[Publication, ...]:
    """The policies of the roles, or of the agents; a single model for all of them is published as
    each policy's adapter."""
    settings = report.settings
    by_stage = {facts.stage: facts for facts in report.stages}
    return tuple(
        Publication(
            f"{pool}/{role}",
            output / stage,
            by_stage[stage].base_sha256,
            # Prompts from recorded ids were not rendered by a template here.
            None if settings.agents else settings.template_options,
        )
        for role in settings.agents or ROLES
        for stage in (next(name for name in (role, "multitask", "single") if name in by_stage),)
    )
