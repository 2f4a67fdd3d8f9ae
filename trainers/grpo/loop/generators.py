"""Options for a loop's generated questions: the generator, its split and its domains."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from loopline.runtime.config.options import OnlyWith, Option, Options
from loopline.trainers.data.held_out import TRAIN
from loopline.trainers.data.questions import SPLITS, Dataset, require_domains
from loopline.trainers.errors import TrainingError

PAIR = "pair"

QuestionEnvironment = Literal["api_worlds", "word_problems"]
DATASETS: dict[QuestionEnvironment, Dataset] = {
    "api_worlds": "worlds",
    "word_problems": "wordproblems",
}


def dataset_of(source: str) -> Dataset:
    """Dataset of the generator named `source`. Raises `KeyError`."""
    return DATASETS[cast(QuestionEnvironment, source)]


def _asks(options: Any) -> bool:
    return options.workflow != PAIR


def _generates(options: Any) -> bool:
    return options.env is not None


ASKED = OnlyWith("--workflow NAME other than pair", _asks)
_GENERATED = OnlyWith("--env", _generates)


class GeneratorOptions(Options):
    """Questions of a generator."""

    panel: ClassVar[str] = "Rollouts"

    env: Annotated[QuestionEnvironment | None, ASKED] = None
    """Generator of questions for a workflow other than pair."""
    split: Annotated[str, _GENERATED, Option(metavar="NAME")] = TRAIN
    """Split of the generator that rounds play, except a quarter for evaluation: `train`, which the
    micro models have learned, or one with statements or questions that are new to them."""
    domain: Annotated[
        tuple[str, ...], _GENERATED, Option(metavar="NAME", default="all", example="bank")
    ] = Field(default=())
    """Domain of all questions; may be repeated."""

    @model_validator(mode="after")
    def _has_questions(self) -> Self:
        if self.env is None:
            return self
        if self.split not in SPLITS[DATASETS[self.env]]:
            splits = ", ".join(SPLITS[DATASETS[self.env]])
            raise ValueError(
                f"--split {self.split}: {self.env} has no such split; splits: {splits}"
            )
        try:
            require_domains(DATASETS[self.env], self.split, self.domain)
        except TrainingError as error:
            raise ValueError(str(error)) from error
        return self
