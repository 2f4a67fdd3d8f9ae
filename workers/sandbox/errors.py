"""What the sandbox refuses. Whatever a program does is a `Result`, never an exception."""

from __future__ import annotations


class SandboxUnavailable(RuntimeError):
    """Nothing can be run isolated here; the message says what is missing and what to do."""

    def __init__(self, trouble: str, remedy: str = "") -> None:
        super().__init__(f"{trouble}: {remedy}" if remedy else trouble)
        self.trouble = trouble
        self.remedy = remedy
