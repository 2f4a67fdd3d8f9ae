"""Sampling of a team's completions."""

from __future__ import annotations

from loopline.agents.errors import InvalidOptions
from loopline.agents.records import JsonObject
from loopline.agents.workflows import workflows
from loopline.bench.errors import UsageError

MAX_ATTEMPTS = 256
"""Maximum number of attempts at one instance."""
MAX_RUNS = 100_000
"""Maximum number of runs of one arm."""


def sampling(
    greedy: bool | None, candidates: int | None, temperature: float | None, attempts: int | None
) -> JsonObject:
    """Return the options of `pair` for drawing completions. Raises UsageError."""
    drawn = {"--candidates": candidates, "--temperature": temperature, "--attempts": attempts}
    option_names = [name for name, value in drawn.items() if value is not None]
    if greedy and option_names:
        raise UsageError(
            f"--greedy samples nothing, so {option_names[0]} has no effect: leave one out"
        )
    if greedy or (greedy is None and not option_names):
        return {"greedy": True}
    options: JsonObject = {
        "greedy": False,
        "candidates": 1 if candidates is None else candidates,
        "temperature": 1.0 if temperature is None else temperature,
        # A profile's value may be for training, where more answers are drawn until one is right.
        "adaptive": None,
    }
    try:
        workflows.get("pair").check_options(options)
    except InvalidOptions as error:
        raise UsageError(str(error)) from error
    return options
