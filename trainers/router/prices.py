"""Prices of tokens for answers without a stated cost: list prices, which options may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from loopline.agents.records import Usage
from loopline.runtime.config.options import Options


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of an endpoint, US dollars per million tokens."""

    prompt: float
    completion: float

    def cost(self, question: str, text: str) -> float:
        """Cost of one answer in US dollars, with its tokens estimated as a quarter of its
        characters."""
        return (len(question) * self.prompt + len(text) * self.completion) / 4e6

    def of_tokens(self, usage: Usage) -> float:
        """Cost of counted tokens in US dollars."""
        return (usage.prompt * self.prompt + usage.completion * self.completion) / 1e6


SMALL_PRICES = Prices(0.15, 0.60)
BIG_PRICES = Prices(2.50, 10.00)
"""The list prices of GPT-4o mini and of GPT-4o."""


class PriceOptions(Options):
    """Prices of both models."""

    panel: ClassVar[str] = "Prices"

    small_prompt_usd: float = Field(default=SMALL_PRICES.prompt, ge=0, le=1e6)
    """US dollars per million tokens that the small model reads, if no cost is stated."""
    small_completion_usd: float = Field(default=SMALL_PRICES.completion, ge=0, le=1e6)
    """US dollars per million tokens that the small model writes, if no cost is stated."""
    big_prompt_usd: float = Field(default=BIG_PRICES.prompt, ge=0, le=1e6)
    """US dollars per million tokens that the big model reads, if no cost is stated."""
    big_completion_usd: float = Field(default=BIG_PRICES.completion, ge=0, le=1e6)
    """US dollars per million tokens that the big model writes, if no cost is stated."""

    @property
    def small_prices(self) -> Prices:
        """Prices of the small model."""
        return Prices(self.small_prompt_usd, self.small_completion_usd)

    @property
    def big_prices(self) -> Prices:
        """Prices of the big model."""
        return Prices(self.big_prompt_usd, self.big_completion_usd)
