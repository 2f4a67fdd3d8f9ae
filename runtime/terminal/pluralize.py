"""Plurals for the messages of several programs."""

from __future__ import annotations


def format_count(number: int, noun: str) -> str:
    """Format a count: `1 step`, `2 steps`, `1,319 questions`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
