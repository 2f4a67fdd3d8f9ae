"""Settings of a stream."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import Record
from loopline.trainers.improve.settings import LoopSettings, TrainingSettings

MICRO_TRAINING = TrainingSettings(
    model="micro:llm", weights="full", schedules="micro", rate=0.3, batch=16
)


class Prices(Record):
    """Prices in US dollars. The big model is paid per token, like GPT-4o. The small model is paid
    per second of a rented GPU at a stated speed, and so are trainings: a CPU second counts as a GPU
    second."""

    big_prompt: float = 2.50
    """US dollars per million prompt tokens of the big model."""
    big_completion: float = 10.00
    gpu_hour: float = 2.50
    """US dollars per hour of a rented H100."""
    prompt_speed: float = 20_000.0
    """Prompt tokens that the GPU reads per second."""
    completion_speed: float = 2_000.0
    """Completion tokens that the GPU writes per second."""

    @property
    def gpu_second(self) -> float:
        return self.gpu_hour / 3600

    @property
    def small_prompt(self) -> float:
        """US dollars per million prompt tokens of the small model."""
        return self.gpu_second / self.prompt_speed * 1e6

    @property
    def small_completion(self) -> float:
        """US dollars per million completion tokens of the small model."""
        return self.gpu_second / self.completion_speed * 1e6


class StreamSettings(Record):
    """One stream with one seed."""

    seed: int = 1
    questions: int = Field(default=1_200, ge=8)
    batch: int = Field(default=100, ge=1)
    """Questions between two checks whether a round is due."""
    held_out: int = Field(default=150, ge=1)
    """Questions of the same kinds, never served, on which the small model alone is measured."""
    accuracy: float = Field(default=0.9, ge=0, le=1)
    """Share of questions that the big model answers correctly."""
    early_audit: float = Field(default=0.4, ge=0, le=1)
    """Share of runs that are audited while the router accepts nothing, when an audit costs
    nothing."""
    audit: float = Field(default=0.1, ge=0, le=1)
    """The same share while the router accepts everything; in between, the share is interpolated
    linearly."""
    attack_every: int = Field(default=50, ge=0)
    """Mean steps between two attacks on the deployment while it serves; 0 for none."""
    poison: bool = True
    """Whether a batch with swapped labels follows the stream."""
    prices: Prices = Prices()
    loop: LoopSettings = LoopSettings(training=MICRO_TRAINING, every=150, margin=0.05, alpha=0.05)

    @property
    def quarter(self) -> int:
        return self.questions // 4
