"""Limits of the tokens that a completion may have."""

from __future__ import annotations

from loopline.agents.records import GenerationOptions, SamplingParams

NO_LIMIT = 131_072
"""`max_tokens` of a completion without a limit, and the greatest that can be chosen. An endpoint is
not told it and applies its own limit; a model on this machine ends at the end of its context."""
WHOLE = GenerationOptions(max_tokens=NO_LIMIT)
"""Options of an agent whose answers are not cut off, unless its caller or its pool sets a limit."""
DEFAULT = SamplingParams.model_fields["max_tokens"].default
"""Limit of other agents' completions, unless their author, their caller or their pool sets one."""
IN_BUDGETS = (4_096, DEFAULT)
"""Limits of a completion without one where a budget limits the run: the most that a call can cost
is reserved, so there must be a most. The first that the budget has room for is applied."""


def whole(options: GenerationOptions | None) -> GenerationOptions:
    """Return the options of an agent's author, without a limit unless they have one."""
    if options is None:
        return WHOLE
    if options.max_tokens is not None:
        return options
    return options.model_copy(update={"max_tokens": NO_LIMIT})
