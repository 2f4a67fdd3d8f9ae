"""How the completions of a team are drawn, and options that are named on a command line."""

from __future__ import annotations

from agents.errors import InvalidOptions
from agents.records import JsonObject
from agents.workflows import workflows
from bench.errors import UsageError
from runtime.config import option_value

MAX_ATTEMPTS = 256
"""Of one instance."""
MAX_RUNS = 100_000
"""Of one arm."""


def sampling(
    greedy: bool | None, candidates: int | None, temperature: float | None, attempts: int | None
) -> JsonObject:
    """The options of `pair` that say how completions are drawn. Raises UsageError."""
    drawn = {"--candidates": candidates, "--temperature": temperature, "--attempts": attempts}
    given = [name for name, value in drawn.items() if value is not None]
    if greedy and given:
        raise UsageError(f"--greedy draws nothing, so {given[0]} has no meaning: leave one away")
    if greedy or (greedy is None and not given):
        return {"greedy": True}
    options: JsonObject = {
        "greedy": False,
        "candidates": 1 if candidates is None else candidates,
        "temperature": 1.0 if temperature is None else temperature,
    }
    try:
        workflows.get("pair").check_options(options)
    except InvalidOptions as error:
        raise UsageError(str(error)) from error
    return options


def named_values(option: str, words: list[str]) -> JsonObject:
    """`NAME=VALUE`; a value is JSON (`4`, `true`) or else text. Raises UsageError."""
    found: JsonObject = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise UsageError(f"{option}: {word!r} is not NAME=VALUE, as in turns=40")
        found[name] = option_value(value)
    return found
