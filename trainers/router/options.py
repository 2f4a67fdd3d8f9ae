"""Options of `train router`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from loopline.runtime.config.options import Argument, Option
from loopline.trainers.core.command_options import ChosenTrackingOptions, JsonOptions
from loopline.trainers.data.data_files import DataFile
from loopline.trainers.router.prices import PriceOptions


class RouterOptions(PriceOptions, ChosenTrackingOptions, JsonOptions):
    """A router's labels and its bound."""

    panel: ClassVar[str] = "Labels and bound"

    output: Annotated[Path, Argument()]
    """Router file to write, as JSON; curves go into the folder `curves` next to it."""
    data: Annotated[DataFile | None, Option(metavar="FILE")] = None
    """JSON lines with id, question, small {text, right} and big {text, right}; a local file or
    hf://OWNER/NAME/FILE."""
    from_store: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """Store of recorded runs in which both models answered the questions."""
    alpha: float = Field(default=0.1, gt=0, lt=1)
    """Highest share of all questions for which a wrong small answer is accepted."""
    delta: float = Field(default=0.05, gt=0, lt=1)
    """Probability that the bound does not hold."""
    seed: int = Field(default=123, ge=0, lt=2**32)
    """Seed of the choice of calibration questions."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.from_store is None):
            raise ValueError("give either --data FILE or --from-store FOLDER")
        return self


class WatchRouterOptions(JsonOptions):
    """A router in use, and the runs that show how well it works."""

    router: Annotated[Path, Argument()]
    """Router file, which is tightened when the bound is broken."""
    from_store: Annotated[Path, Option(metavar="FOLDER")]
    """Store of recorded runs, some of them audited (option `audit` of the workflow cascade)."""
    follow: Annotated[float | None, Option(default="check once")] = Field(
        default=None, ge=0.1, le=86_400
    )
    """Check again after this many seconds, until Ctrl-C."""
