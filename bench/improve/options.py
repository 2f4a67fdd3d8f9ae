"""What `bench improve` is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from loopline.bench.improve.settings import Prices, StreamSettings
from loopline.runtime.config.options import Argument, Option
from loopline.trainers.core.command_options import JsonOptions

_STREAM = StreamSettings()
_PRICES = Prices()


class StreamPriceOptions(JsonOptions):
    """What both models cost."""

    panel: ClassVar[str] = "Prices"

    big_prompt_usd: float = Field(default=_PRICES.big_prompt, gt=0, le=1e6)
    """US dollars per million tokens that the big model reads."""
    big_completion_usd: float = Field(default=_PRICES.big_completion, gt=0, le=1e6)
    """US dollars per million tokens that the big model writes."""
    gpu_hour_usd: float = Field(default=_PRICES.gpu_hour, gt=0, le=1e6)
    """US dollars of an hour of the GPU that serves and trains the small model."""
    prompt_speed: float = Field(default=_PRICES.prompt_speed, gt=0)
    """Tokens that it reads in a second, all requests together."""
    completion_speed: float = Field(default=_PRICES.completion_speed, gt=0)
    """Tokens that it writes in a second, all requests together."""

    @property
    def prices(self) -> Prices:
        return Prices(
            big_prompt=self.big_prompt_usd,
            big_completion=self.big_completion_usd,
            gpu_hour=self.gpu_hour_usd,
            prompt_speed=self.prompt_speed,
            completion_speed=self.completion_speed,
        )


class ImproveOptions(StreamPriceOptions):
    """A stream and its loop."""

    panel: ClassVar[str] = "Stream"

    output: Annotated[Path, Argument()]
    """Folder of the streams and the report."""
    seeds: str = "1,2,3"
    """Seeds, comma-separated: a stream each."""
    questions: int = Field(default=_STREAM.questions, ge=8, le=100_000)
    """Questions of a stream."""
    batch: int = Field(default=_STREAM.batch, ge=1)
    """Questions between two looks whether a round is due."""
    held_out: int = Field(default=_STREAM.held_out, ge=1, le=100_000)
    """Questions, never served, that the small model alone is measured on."""
    accuracy: float = Field(default=_STREAM.accuracy, ge=0, le=1)
    """Share of the questions that the big model answers rightly."""
    attack_every: int = Field(default=_STREAM.attack_every, ge=0, le=100_000)
    """Steps between two attacks on the deployment, on average; 0 attacks nothing."""
    poison: Annotated[bool, Option("poison/--no-poison")] = True
    """Whether a batch with turned labels follows upon the stream."""
    model: str = _STREAM.loop.training.model
    """Small model: a folder, a hub id or a micro model."""
    every: int = Field(default=_STREAM.loop.every, ge=1)
    """New escalations that begin a round."""
    tokens: Annotated[int | None, Option(default="eight epochs")] = Field(default=None, ge=1)
    """Tokens that go through the model in one round."""
    alpha: float = Field(default=_STREAM.loop.alpha, gt=0, lt=1)
    """Bound of the share of all questions whose small answer is accepted and wrong."""

    @model_validator(mode="after")
    def _has_seeds(self) -> Self:
        if self.batch > self.questions:
            raise ValueError(f"--batch {self.batch} is more than --questions {self.questions}")
        if len(set(self.seed_numbers)) != len(self.seed_numbers):
            raise ValueError(f"--seeds {self.seeds}: a seed stands there twice")
        return self

    @property
    def seed_numbers(self) -> list[int]:
        """Raises ValueError."""
        try:
            return [int(seed) for seed in self.seeds.split(",")]
        except ValueError:
            raise ValueError(f"--seeds {self.seeds}: whole numbers, comma-separated") from None

    def stream(self, seed: int) -> StreamSettings:
        loop = _STREAM.loop
        training = loop.training.model_copy(update={"model": self.model, "tokens": self.tokens})
        changes = {"every": self.every, "alpha": self.alpha, "training": training}
        return _STREAM.model_copy(
            update={
                "seed": seed,
                "prices": self.prices,
                "loop": loop.model_copy(update=changes),
                **{
                    name: getattr(self, name)
                    for name in ("questions", "batch", "held_out", "accuracy", "attack_every", "poison")
                },
            }
        )
