"""Errors that belong to the user of the bench: one message, one exit code."""

from __future__ import annotations

from loopline.runtime.errors import EXIT_USAGE, FixableError


class BenchError(FixableError):
    """The request failed, or every run of an arm ended in an error or at its deadline, so that its
    figures show nothing about its models."""


class UsageError(BenchError):
    """The command line is invalid."""

    exit_code = EXIT_USAGE


class DataError(BenchError):
    """Data is missing or invalid."""


class OutputError(BenchError):
    """An output directory is invalid."""


class JudgingError(BenchError):
    """A user's scorer failed on an answer: a failure of the bench, not of the model."""
