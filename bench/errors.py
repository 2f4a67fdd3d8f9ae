"""Errors that belong to the user of the bench: one message, one exit code."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
"""What was asked for could not be done, or every run of an arm ended in an error or at its
deadline: its figures say nothing of its models."""
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class BenchError(Exception):
    """Something the user can mend. The message says what was wrong, where, and what to do."""

    exit_code = EXIT_FAILED


class UsageError(BenchError):
    """The command line asks for something that cannot be."""

    exit_code = EXIT_USAGE


class DataError(BenchError):
    """Data are missing or not what they should be."""


class OutputError(BenchError):
    """An output directory is not what it should be."""
