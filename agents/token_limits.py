"""Limits of the tokens that a completion may have."""

from __future__ import annotations

from loopline.agents.records import SamplingParams

NO_LIMIT = 131_072
"""`max_tokens` of a completion without a limit, and the greatest that can be chosen. An endpoint is
not told it and applies its own limit; a model on this machine ends at the end of its context."""
DEFAULT: int = SamplingParams.model_fields["max_tokens"].default
"""Limit of a completion whose role wants a limit, unless somebody has chosen another one."""
IN_BUDGETS = (4_096, DEFAULT)
"""Limits of a completion without one where a budget limits the run: the most that a call can cost
is reserved, so there must be a most. The first that the budget has room for is applied."""
