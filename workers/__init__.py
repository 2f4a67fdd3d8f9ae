"""Processes that join the bus and the agents."""

from loopline import require_full_name

require_full_name(__name__)
