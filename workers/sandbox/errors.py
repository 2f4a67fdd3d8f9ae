"""What the sandbox refuses. Whatever a program does is a `Result`, never an exception."""

from __future__ import annotations


class SandboxUnavailable(RuntimeError):
    """Nothing can be run isolated here; the message says what is missing and what to do."""
