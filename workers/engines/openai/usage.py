"""The usage that an endpoint reports for an answer, in any server's format.

Nothing is estimated: each number was written by the endpoint, or is the difference of two. Where
servers disagree about what a number includes, `total_tokens` decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import cast

from loopline.agents.records import Usage

MAX_TOKENS = 2**40
"""Limit of a call's tokens: a larger report is nonsense, and sums stay within 64 bits."""

RawUsage = dict[str, object]


class UnreadableUsage(Exception):
    """The numbers contradict each other or are not numbers."""


def usage_in(payload: Mapping[str, object]) -> RawUsage | None:
    """Return the usage in an answer; None if there is none. Servers put it next to the choices,
    within one of them (Moonshot) or in a separate field (Groq's streams)."""
    places: list[object] = [payload.get("usage")]
    extension = payload.get("x_groq")
    if isinstance(extension, dict):
        places.append(cast(RawUsage, extension).get("usage"))
    choices = payload.get("choices")
    if isinstance(choices, list):
        for choice in cast(list[object], choices):
            if isinstance(choice, dict):
                places.append(cast(RawUsage, choice).get("usage"))
    for place in places:
        if isinstance(place, dict) and place:
            return cast(RawUsage, place)
    return None


def merge_usage(previous: RawUsage | None, new: RawUsage) -> RawUsage:
    """The usage that a stream has reported so far. A later number replaces an earlier one; a zero
    or null after a number is ignored."""
    result = dict(previous or {})
    for name, value in new.items():
        if value or name not in result:
            result[name] = value
    return result


def read_usage(raw: RawUsage) -> Usage | None:
    """The token counts; None if the endpoint counted nothing (no field, or only zeros).

    Servers count reasoning as a part of the completion (OpenAI, vLLM) or in addition to it (xAI,
    Gemini), and tokens that a cache has or gets as a part of the prompt or in addition to it
    (Anthropic's count). The first reading that fits `total_tokens` is used; if none fits, a part
    that exceeds its whole is counted in addition. Any rest of the total was generated unseen, like
    Gemini's thoughts. Raises UnreadableUsage.
    """
    prompt = _number(raw, "prompt_tokens", "input_tokens")
    completion = _number(raw, "completion_tokens", "output_tokens")
    total = _number(raw, "total_tokens")
    cached = _largest(
        _number(_details(raw, "prompt_tokens_details", "input_tokens_details"), "cached_tokens"),
        _number(raw, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"),
    )
    reasoning = _largest(
        _number(
            _details(raw, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens"
        ),
        _number(raw, "reasoning_tokens"),
    )
    if total is not None and prompt is not None and completion is None and total >= prompt:
        completion = total - prompt
    if total is not None and completion is not None and prompt is None and total >= completion:
        prompt = total - completion
    if prompt is None or completion is None:
        if not any((prompt, completion, total)):
            return None
        missing = "prompt_tokens" if prompt is None else "completion_tokens"
        raise UnreadableUsage(f"it has neither {missing} nor total_tokens")
    if not (prompt or completion or total):
        return None
    written = _number(raw, "cache_creation_input_tokens") or 0
    whole_prompt, whole_completion = _normalize_counts(
        prompt, completion, cached + written, reasoning, total
    )
    unseen = max(0, (total or 0) - whole_prompt - whole_completion)
    return Usage(
        prompt=whole_prompt,
        cached=cached,
        completion=whole_completion + unseen,
        reasoning=reasoning or unseen,
        source="provider",
    )


def _normalize_counts(
    prompt: int, completion: int, cached: int, reasoning: int, total: int | None
) -> tuple[int, int]:
    """Return (prompt with its cached tokens, completion with its reasoning)."""
    possible = [
        (prompt + cached * excludes_cached, completion + reasoning * excludes_reasoning)
        for excludes_cached, excludes_reasoning in product((False, True), repeat=2)
        if (excludes_cached or cached <= prompt) and (excludes_reasoning or reasoning <= completion)
    ]
    fitting = [reading for reading in possible if sum(reading) == total]
    return (fitting or possible)[0]


def _details(raw: RawUsage, *names: str) -> RawUsage:
    for name in names:
        value = raw.get(name)
        if isinstance(value, dict):
            return cast(RawUsage, value)
    return {}


def _largest(*numbers: int | None) -> int:
    """A gateway writes 0 into the standard field and passes the provider's own field on."""
    return max((number for number in numbers if number is not None), default=0)


def _number(raw: RawUsage, *names: str) -> int | None:
    """The first number that is present. Some servers write 8.0 or "8"."""
    for name in names:
        value = raw.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            value = int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else -1
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnreadableUsage(f"{name} is not a number")
        if not 0 <= value <= MAX_TOKENS or value != int(value):
            raise UnreadableUsage(f"{name} is not a count of tokens")
        return int(value)
    return None
