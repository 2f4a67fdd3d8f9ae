"""What can go wrong with a tool source before any of its tools is called."""

from __future__ import annotations


class SourceUnavailable(Exception):
    """A source that can't be used now; the message says why and what to do."""


class ToolRefused(ValueError):
    """A tool of a source that is not offered, and why."""
