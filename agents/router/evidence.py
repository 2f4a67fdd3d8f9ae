"""Evidence about an answer of the small model, before anyone pays for the big one."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVIDENCE_CHARS = 20_000
"""Of a question, an answer or a sample that are read for features; the rest is left unread."""
MAX_SAMPLES = 64
_HEAD_CHARS = 12_000


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """One question, the small model's answer, and further data from its engine."""

    question: str
    text: str
    """The answer, whole, with its working."""
    logprobs: tuple[float, ...] = ()
    """Natural log-probability of each token of the answer; empty where nobody gave them."""
    samples: tuple[str, ...] = ()
    """Further answers of the same model to the same question; empty where none were drawn."""


def clip(text: str) -> str:
    """What is read of a text. Of a long one its beginning and its end, where its answer stands."""
    if len(text) <= MAX_EVIDENCE_CHARS:
        return text
    tail = MAX_EVIDENCE_CHARS - _HEAD_CHARS - 1
    return f"{text[:_HEAD_CHARS]}\n{text[-tail:]}"
