"""Options of `bench improve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from loopline.agents.records import Record
from loopline.bench.improve.settings import Prices, StreamSettings
from loopline.bench.improve.worlds.settings import WorldsSettings
from loopline.runtime.config.options import Argument, OnlyWith, Option
from loopline.trainers.core.command_options import JsonOptions

_STREAM = StreamSettings()
_WORLDS = WorldsSettings()
_PRICES = Prices()


def _asks_word_problems(options: Any) -> bool:
    return not options.worlds


def _asks_instructions(options: Any) -> bool:
    return options.worlds


def _by_stream(problems: object, worlds: object) -> Option:
    return Option(default=f"{problems}; with --worlds {worlds}")


class StreamPriceOptions(JsonOptions):
    """Options for the prices of both models."""

    panel: ClassVar[str] = "Prices"

    big_prompt_usd: float = Field(default=_PRICES.big_prompt, gt=0, le=1e6)
    """US dollars per million prompt tokens of the big model."""
    big_completion_usd: float = Field(default=_PRICES.big_completion, gt=0, le=1e6)
    """US dollars per million completion tokens of the big model."""
    gpu_hour_usd: float = Field(default=_PRICES.gpu_hour, gt=0, le=1e6)
    """US dollars per hour of the GPU that serves and trains the small model."""
    prompt_speed: float = Field(default=_PRICES.prompt_speed, gt=0)
    """Prompt tokens per second that this GPU reads, over all requests."""
    completion_speed: float = Field(default=_PRICES.completion_speed, gt=0)
    """Completion tokens per second that this GPU writes, over all requests."""

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
    """Folder for the streams and the report."""
    worlds: bool = False
    """Give the team umi instructions in simulated worlds, not word problems."""
    seeds: str = "1,2,3"
    """Seeds, comma-separated; one stream each."""
    questions: Annotated[int | None, _by_stream(_STREAM.questions, _WORLDS.questions)] = Field(
        default=None, ge=8, le=100_000
    )
    """Questions per stream."""
    batch: Annotated[int | None, _by_stream(_STREAM.batch, _WORLDS.batch)] = Field(
        default=None, ge=1
    )
    """Questions between two checks whether a round is due."""
    held_out: Annotated[int | None, _by_stream(_STREAM.held_out, _WORLDS.held_out)] = Field(
        default=None, ge=1, le=100_000
    )
    """Held-out questions, on which the small model alone is measured."""
    accuracy: float = Field(default=_STREAM.accuracy, ge=0, le=1)
    """Share of questions that the big model answers correctly."""
    attack_every: Annotated[int | None, _by_stream(_STREAM.attack_every, _WORLDS.attack_every)] = (
        Field(default=None, ge=0, le=100_000)
    )
    """Mean steps between two attacks on the deployment; 0 for no attacks."""
    poison: Annotated[bool, Option("poison/--no-poison")] = True
    """Whether a batch with swapped labels follows the stream."""
    model: Annotated[str | None, _by_stream(_STREAM.loop.training.model, _WORLDS.loop.model)] = None
    """Small model: a folder, a hub id or a micro model."""
    every: Annotated[int | None, _by_stream(_STREAM.loop.every, _WORLDS.loop.every)] = Field(
        default=None, ge=1
    )
    """New escalations, or solved runs, that start a round."""
    tokens: Annotated[int | None, _by_stream("eight epochs", f"{_WORLDS.loop.tokens:,}")] = Field(
        default=None, ge=1
    )
    """Training tokens per round."""
    rehearsal: Annotated[int, OnlyWith("--worlds", _asks_instructions)] = Field(
        default=_WORLDS.rehearsal, ge=0, le=100_000
    )
    """Instructions from the team's first training that each round rehearses."""
    alpha: Annotated[float, OnlyWith("word problems, not with --worlds", _asks_word_problems)] = (
        Field(default=_STREAM.loop.alpha, gt=0, lt=1)
    )
    """Bound on the share of questions whose small answer is accepted and wrong."""

    @model_validator(mode="after")
    def _has_seeds(self) -> Self:
        stream = _WORLDS if self.worlds else _STREAM
        questions, batch = self.questions or stream.questions, self.batch or stream.batch
        if batch > questions:
            raise ValueError(f"--batch {batch} is more than --questions {questions}")
        if len(set(self.seed_numbers)) != len(self.seed_numbers):
            raise ValueError(f"--seeds {self.seeds}: a seed is listed twice")
        return self

    @property
    def seed_numbers(self) -> list[int]:
        """The seeds as numbers. Raises ValueError."""
        try:
            return [int(seed) for seed in self.seeds.split(",")]
        except ValueError:
            raise ValueError(f"--seeds {self.seeds}: expected integers, comma-separated") from None

    def stream(self, seed: int) -> StreamSettings:
        """Settings of a stream of word problems."""
        loop = _STREAM.loop
        training = loop.training.model_copy(update=self._values_of("model", "tokens"))
        changes = {**self._values_of("every", "alpha"), "training": training}
        return _STREAM.model_copy(update=self._common(seed, loop.model_copy(update=changes)))

    def worlds_stream(self, seed: int) -> WorldsSettings:
        """Settings of a stream of instructions."""
        loop = _WORLDS.loop.model_copy(update=self._values_of("model", "tokens", "every"))
        changes = {**self._common(seed, loop), "rehearsal": self.rehearsal}
        return _WORLDS.model_copy(update=changes)

    def _common(self, seed: int, loop: Record) -> dict[str, Any]:
        names = ("questions", "batch", "held_out", "accuracy", "attack_every", "poison")
        return {"seed": seed, "prices": self.prices, "loop": loop, **self._values_of(*names)}

    def _values_of(self, *names: str) -> dict[str, Any]:
        """Return the options with a value; the stream's settings have the others."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}
