"""Measurements in separate processes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context

import structlog


@contextmanager
def isolated_worker(tasks: int | None = 1) -> Generator[Executor]:
    """Yield an executor with a new process for each task, or after that many tasks (None: never),
    so that leftovers in memory and in thread pools, above all a second OpenMP pool, do not affect
    the next measurement. An interruption also ends the task."""
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=tasks) as executor:
        try:
            yield executor
        except KeyboardInterrupt:
            # Otherwise the executor would wait for a measurement that is no longer wanted.
            for process in active_children():
                process.kill()
            raise


def redirect_logs() -> None:
    """Reserve standard output for the parent; warnings go to standard error."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
