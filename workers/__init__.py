"""Processes that connect the agents to the bus."""

from loopline import require_full_name

require_full_name(__name__)
