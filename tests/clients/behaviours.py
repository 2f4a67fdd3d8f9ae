"""The behaviours that every client must show, as far as it can express them, with their checks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

COUNTED = "one two three four five six seven eight nine"
SLOWLY_COUNTED = f"{COUNTED}, and once more: one two three four five"
UNICODE = "Zażółć 25 °C ~ 漢字 👩🏽‍🚀\n\n  naïve – „Anführung“\ttab"
OSLO = ["weather", {"city": "Oslo"}]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Check = Callable[[Any], bool]


@dataclass(frozen=True)
class Behaviour:
    """One thing that a client relies on."""

    name: str
    """The name of a function in each client's program."""
    sentence: str
    holds: Check
    """Whether the program's output is right."""


def names(calls: list[tuple[str, Any]]) -> list[str]:
    """Names of the tools that were called."""
    return [name for name, _ in calls]


def _total_tokens(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"]


BEHAVIOURS = (
    Behaviour("plain_question", "a question is answered", lambda out: "89" in out),
    Behaviour("system_message", "a system message reaches the model", lambda out: out == "Squawk!"),
    Behaviour(
        "developer_message", "a developer message reaches the model", lambda out: out == "Squawk!"
    ),
    Behaviour("history", "earlier turns reach the model", lambda out: out == "Your name is Ada."),
    Behaviour(
        "streaming",
        "a stream comes in pieces that make up the whole text",
        lambda out: len(out) > 3 and "".join(out) == SLOWLY_COUNTED,
    ),
    Behaviour(
        "stream_usage",
        "a stream ends with the usage that the whole answer has",
        lambda out: _total_tokens(out[0]) == _total_tokens(out[1]) and out[0]["prompt_tokens"],
    ),
    Behaviour(
        "tool_round_trip",
        "a tool is called, and its result is answered",
        lambda out: out == [{"city": "Oslo"}, "It rains in Oslo."],
    ),
    Behaviour("streamed_tool_call", "a call is put together from a stream", lambda s: s == [OSLO]),
    Behaviour("tool_choice_none", "tools are held back", lambda out: out == []),
    Behaviour(
        "tool_choice_required",
        "some tool is called",
        lambda out: names(out) == ["weather"],
    ),
    Behaviour("tool_choice_named", "the named tool is called", lambda out: names(out) == ["now"]),
    Behaviour(
        "parallel_tool_calls",
        "several calls come in one turn, or one where no more are allowed",
        lambda out: out == [[OSLO, ["weather", {"city": "Rome"}]], [OSLO]],
    ),
    Behaviour("structured_output", "an answer keeps to a schema", lambda out: out == {"sum": 5}),
    Behaviour("several_choices", "n answers come", lambda out: out == ["apple", "pear"]),
    Behaviour("seed", "a seed repeats", lambda out: len(out) == 3 and len(set(out)) == 1),
    Behaviour("stop", "a stop string ends the text", lambda out: out == "one two three"),
    Behaviour("length", "a limit ends the text", lambda out: out == ["length", "one two t"]),
    Behaviour(
        "logprobs",
        "each token has its log-probability",
        lambda out: out[0] == COUNTED and all(value <= 0 for value in out[1]),
    ),
    Behaviour(
        "unknown_model",
        "an unknown model is a 404 that names it",
        lambda out: out["status"] == 404 and "nobody" in out["message"],
    ),
    Behaviour(
        "policy",
        "a policy answers by its name, and by its version in use",
        lambda out: len(out) == 2 and all("89" in text for text in out),
    ),
    Behaviour(
        "other_version",
        "another version is a 404 that names the one in use",
        lambda out: out["status"] == 404 and "version 0 is" in out["message"],
    ),
    Behaviour(
        "embeddings",
        "embeddings are a 404 that says there are none",
        lambda out: out["status"] == 404 and "computes embeddings" in out["message"],
    ),
    Behaviour("wrong_key", "a wrong key is a 401", lambda out: out["status"] == 401),
    Behaviour(
        "invalid_field",
        "a value out of bounds is a 400 that names its field",
        lambda out: out["status"] == 400 and "temperature" in (out["param"] or out["message"]),
    ),
    Behaviour("overload", "a 429 is retried after the time it says", lambda out: "89" in out),
    Behaviour(
        "timeout",
        "the client's own time limit ends the call",
        lambda out: "timeout" in out["class"].lower() or "timed out" in out["message"].lower(),
    ),
    Behaviour(
        "request_id",
        "a response has a request id",
        lambda out: bool(UUID.fullmatch(out[1])) and out[0].endswith(out[1]),
    ),
    Behaviour("models", "the models are listed", lambda out: {"llm", "workflow/solo"} <= set(out)),
    Behaviour("session", "a session's calls are one sample", lambda out: out[0] != out[1]),
    Behaviour("idempotency_key", "a repeated request is one run", lambda out: out[0] == out[1]),
    Behaviour("workflow", "a team answers as a model", lambda out: out == "89"),
    Behaviour("unicode", "no character is lost or changed", lambda out: out == UNICODE),
    Behaviour("abandoned_stream", "a stream that is left cancels its run", lambda out: bool(out)),
)
