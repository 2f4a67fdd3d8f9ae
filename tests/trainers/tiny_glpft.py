"""A data set and a model so small that a stage of GLPFT takes a second."""

from __future__ import annotations

from loopline.agents.roles.umi.settings import UmiOptions
from loopline.trainers.data.datasets import build
from loopline.trainers.data.sources import from_worlds
from loopline.trainers.glpft.settings import GlpftSettings, Size

SIZE = Size(hidden=32, layers=1, heads=2, feed_forward=64, vocabulary=600)
DATA = build([from_worlds("train", 16, 1)], UmiOptions(tool_style="signatures"))
SETTINGS = GlpftSettings(
    data_sha256=DATA.card.sha256, size=SIZE, tokens=120_000, batch=8, validation=0.2
)


def changed(**changes: object) -> GlpftSettings:
    """The settings with some of them replaced."""
    return GlpftSettings.model_validate({**SETTINGS.model_dump(), **changes})
