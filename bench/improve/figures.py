"""Results of streams: dollars, accuracy and the small model's gain, each with its bar."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from loopline.agents.records import Record
from loopline.bench.improve.settings import Prices
from loopline.bench.improve.stream import StreamResult
from loopline.trainers.core.paired_statistics import bootstrap_difference, wilson

DOLLARS_BAR = 0.5
ACCURACY_BAR = -1.0
GAIN_BAR = 20.0
"""Bars: the first is a ratio, the others are percentage points."""


class Bounds(Record):
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float


class Stretch(Record):
    """A part of a stream, or the same part of several streams."""

    questions: int
    right: int
    accepted: int
    """Number of small-model answers that became the run's answer."""
    served_usd: float
    """US dollars paid for the answers of both models."""
    learning_usd: float
    """US dollars paid for trainings and comparisons of the rounds in this part."""

    @property
    def dollars(self) -> float:
        """US dollars per question, including the cost of learning."""
        return (self.served_usd + self.learning_usd) / max(1, self.questions)

    @property
    def accuracy(self) -> float:
        return self.right / max(1, self.questions)


def total(parts: Iterable[Stretch]) -> Stretch:
    """Sum of all parts."""
    listed = [*parts]
    return Stretch.model_validate(
        {name: sum(getattr(part, name) for part in listed) for name in Stretch.model_fields}
    )


class Asked(Protocol):
    """Result of a question."""

    @property
    def right(self) -> bool: ...
    @property
    def accepted(self) -> bool: ...
    @property
    def micro_dollars(self) -> int: ...


class Round(Protocol):
    """Result of a candidate."""

    @property
    def promoted(self) -> bool: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def micro_dollars(self) -> int: ...


class Sizes(Protocol):
    """Sizes of a stream."""

    @property
    def seed(self) -> int: ...
    @property
    def questions(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def quarter(self) -> int: ...
    @property
    def prices(self) -> Prices: ...


class Streamed(Protocol):
    """A stream of any kind of questions."""

    @property
    def settings(self) -> Sizes: ...
    @property
    def questions(self) -> Sequence[Asked]: ...
    @property
    def rounds(self) -> Sequence[tuple[int, Round]]: ...
    @property
    def poisoned(self) -> Round | None: ...
    @property
    def attacks(self) -> Mapping[str, int]: ...
    @property
    def lost(self) -> int: ...
    @property
    def altered(self) -> int: ...
    @property
    def cpu_seconds(self) -> float: ...


class LoopReport(Record, ABC):
    """Figures shared by streams of all kinds of questions."""

    @property
    @abstractmethod
    def streams(self) -> Sequence[Streamed]:
        """Results of all seeds."""

    @property
    def quarters(self) -> tuple[Stretch, ...]:
        """Quarters of the stream, summed over all seeds."""
        parts = [quarters_of(result) for result in self.streams]
        return tuple(total(same) for same in zip(*parts, strict=True))

    @property
    def dollars_ratio(self) -> float:
        """Dollars per question in the last quarter, divided by those in the first."""
        first, *_, last = self.quarters
        return last.dollars / first.dollars if first.dollars else math.inf

    @property
    def accuracy_change(self) -> Bounds:
        """Change in accuracy from the first quarter to the last, in points."""
        first, *_, last = self.quarters
        return difference(last.right, last.questions, first.right, first.questions)

    @property
    def lost(self) -> int:
        return sum(result.lost for result in self.streams)

    @property
    def altered(self) -> int:
        return sum(result.altered for result in self.streams)

    @property
    def attacks(self) -> Counter[str]:
        """Number of attacks by name."""
        return sum((Counter(result.attacks) for result in self.streams), Counter[str]())

    @property
    def poison_caught(self) -> bool | None:
        """Whether no poisoned batch was promoted; None if no batch was poisoned."""
        poisoned = [result.poisoned for result in self.streams if result.poisoned is not None]
        return not any(decision.promoted for decision in poisoned) if poisoned else None

    @property
    @abstractmethod
    def bars(self) -> dict[str, bool]:
        """Whether each bar is met, by name."""

    @property
    def passed(self) -> bool:
        return all(self.bars.values())

    @property
    def common_json(self) -> dict[str, Any]:
        """Return the shared part of the `--json` line."""
        return {
            "dollars_ratio": self.dollars_ratio,
            "accuracy_change": self.accuracy_change.estimate,
            "accuracy_change_low": self.accuracy_change.low,
            "lost": self.lost,
            "altered": self.altered,
            "attacks": self.attacks,
            "poison_caught": self.poison_caught,
            "passed": self.passed,
            "bars": self.bars,
            "quarters": [
                {**quarter.model_dump(), "usd_per_question": quarter.dollars}
                for quarter in self.quarters
            ],
        }


class ImproveReport(LoopReport):
    """All figures of a stream of word problems."""

    results: tuple[StreamResult, ...]

    @property
    def streams(self) -> tuple[StreamResult, ...]:
        return self.results

    @property
    def small_model_gain(self) -> Bounds:
        """Paired gain on the held-out questions, in points."""
        return paired_change(
            [right for result in self.results for right in result.before],
            [right for result in self.results for right in result.after],
        )

    @property
    def bars(self) -> dict[str, bool]:
        """Whether each bar is met, by name."""
        return {
            "dollars_ratio": self.dollars_ratio <= DOLLARS_BAR,
            "accuracy_change_low": self.accuracy_change.low >= ACCURACY_BAR,
            "small_model_gain_low": self.small_model_gain.low >= GAIN_BAR,
            "lost": self.lost == 0,
            "altered": self.altered == 0,
            "poison_caught": self.poison_caught is not False,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the `--json` line."""
        gain = self.small_model_gain
        return {
            **self.common_json,
            "small_model_gain": gain.estimate,
            "small_model_gain_low": gain.low,
            "seeds": [seed_facts(result) for result in self.results],
        }


def seed_facts(result: StreamResult) -> dict[str, Any]:
    """Summary of one seed."""
    return {
        **common_seed_facts(result),
        "small_before": sum(result.before) / len(result.before),
        "small_after": sum(result.after) / len(result.after),
        "promoted": [decision.promoted for _, decision in result.rounds],
        "settings": result.settings.model_dump(mode="json"),
    }


def common_seed_facts(result: Streamed) -> dict[str, Any]:
    """Summary of one seed, shared by streams of all kinds of questions."""
    first, *_, last = quarters = quarters_of(result)
    return {
        "seed": result.settings.seed,
        "dollars_ratio": last.dollars / first.dollars if first.dollars else math.inf,
        "accuracy": [quarter.accuracy for quarter in quarters],
        "accepted": [quarter.accepted / quarter.questions for quarter in quarters],
        "attacks": result.attacks,
        "cpu_minutes": result.cpu_seconds / 60,
    }


def quarters_of(result: Streamed) -> tuple[Stretch, ...]:
    size = result.settings.quarter
    return tuple(stretch(result, at * size, (at + 1) * size) for at in range(4))


def stretch(result: Streamed, begin: int, end: int) -> Stretch:
    """Return the stretch of the questions from `begin` to before `end`, with their rounds."""
    part = result.questions[begin:end]
    gpu_second = result.settings.prices.gpu_second
    learning = [
        decision.cpu_seconds * gpu_second + decision.micro_dollars / 1e6
        for at, decision in result.rounds
        if begin < at <= end
    ]
    return Stretch(
        questions=len(part),
        right=sum(entry.right for entry in part),
        accepted=sum(entry.accepted for entry in part),
        served_usd=sum(entry.micro_dollars for entry in part) / 1e6,
        learning_usd=math.fsum(learning),
    )


def difference(right: int, count: int, other_right: int, other_count: int) -> Bounds:
    """Difference of two shares over different questions, in points, with Newcombe's interval (1998,
    method 10) from both shares' Wilson intervals."""
    first, second = wilson(right, count), wilson(other_right, other_count)
    gap = first.estimate - second.estimate
    below = math.hypot(first.estimate - first.low, second.high - second.estimate)
    above = math.hypot(first.high - first.estimate, second.estimate - second.low)
    return Bounds(estimate=gap * 100, low=(gap - below) * 100, high=(gap + above) * 100)


def paired_change(before: Sequence[bool], after: Sequence[bool]) -> Bounds:
    """Paired change on the same questions, in points."""
    gap = bootstrap_difference([float(right) for right in after], [float(r) for r in before])
    return Bounds(estimate=gap.estimate * 100, low=gap.low * 100, high=gap.high * 100)


def batches_of(results: Sequence[Streamed]) -> list[Stretch]:
    """Stretches summed over all seeds, batch by batch."""
    settings = results[0].settings
    parts: list[Stretch] = []
    for begin in range(0, settings.questions, settings.batch):
        end = min(begin + settings.batch, settings.questions)
        same = [stretch(result, begin, end) for result in results]
        parts.append(total(same))
    return parts
