"""Why a completion ended, in any server's words."""

from __future__ import annotations

import re
from collections.abc import Callable

from loopline.agents.records import FinishReason
from loopline.workers.engines.protocol import EngineError

_WORDS: tuple[tuple[re.Pattern[str], FinishReason | None], ...] = (
    # The order matters: "content_filter_error" belongs to a filter, "tool_call_error" is an error,
    # as is Gemini's "function_call_filter: MALFORMED_FUNCTION_CALL".
    (re.compile(r"malformed|unexpected|^function_call_filter"), None),
    (re.compile(
        r"filter|safety|recitation|blocklist|prohibited|spii|refus|guardrail|sensitive|toxic"
        r"|moderat|policy|violation|blocked|^language$"), "content_filter"),
    (re.compile(r"error_limit|length|max_?(output_|new_|completion_)?tokens|token_?limit|truncat"
                r"|context_window|incomplete|continuation|compaction"), "length"),
    # The answer is not finished: the server failed.
    (re.compile(
        r"error|abort|fail|cancel|time_?out|timed_out|resource|network|overload|unavailable"
        r"|interrupt|disconnect|preempt|killed"), None),
    (re.compile(r"tool|function"), "tool_calls"),
    (re.compile(r"stop|^eos|eos_token|end_turn|^end|complete|finish|^done|normal|success"), "stop"),
)  # fmt: skip


def read_finish(
    reason: str,
    endpoint: str,
    *,
    has_calls: bool,
    has_text: bool,
    unknown: Callable[[str], object],
) -> FinishReason:
    """Map a finish reason to one of ours.

    An unknown word after a non-empty answer is a good end, and is reported to `unknown`. A missing
    word at the end of a complete answer is a good end, too. Raises EngineError: retryable
    `unavailable` for reasons that are server failures, `garbage` for an unknown word after an empty
    answer, retryable `garbage` for a call that the server has lost.
    """
    ended = _known_reason(reason.lower())
    if ended is None and reason:
        if any(pattern.search(reason.lower()) for pattern, ends in _WORDS if ends is None):
            raise EngineError(
                f"{endpoint} aborted a completion with finish_reason {reason!r}",
                kind="unavailable",
                retryable=True,
            )
        if not (has_calls or has_text):
            raise EngineError(
                f"{endpoint} ended a completion without text or call, with the unknown "
                f"finish_reason {reason!r}",
                kind="garbage",
            )
        unknown(reason)
    if ended in ("length", "content_filter"):
        return ended
    if ended == "tool_calls" and not (has_calls or has_text):
        raise EngineError(
            f"{endpoint} ended a completion with finish_reason {reason!r}, but without any call",
            kind="garbage",
            retryable=True,
        )
    return "tool_calls" if has_calls else "stop"


def _known_reason(reason: str) -> FinishReason | None:
    for pattern, ended in _WORDS:
        if pattern.search(reason):
            return ended
    return None
