"""Evidence about an answer of the small model, before anyone pays for the big one."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVIDENCE_CHARS = 20_000
"""Most characters of a question, an answer or a sample that are read for features; the rest is
ignored."""
MAX_SAMPLES = 64
_HEAD_CHARS = 12_000


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """One question, the small model's answer, and further data from its engine."""

    question: str
    text: str
    """Whole answer with its working."""
    logprobs: tuple[float, ...] = ()
    """Natural log-probability of each token of the answer; empty where the engine gave none."""
    samples: tuple[str, ...] = ()
    """Further answers of the same model to the same question; empty where none were drawn."""


def clip(text: str) -> str:
    """The part of a text that is read: of a long one its beginning and its end, which holds its
    answer."""
    if len(text) <= MAX_EVIDENCE_CHARS:
        return text
    tail = MAX_EVIDENCE_CHARS - _HEAD_CHARS - 1
    return f"{text[:_HEAD_CHARS]}\n{text[-tail:]}"
