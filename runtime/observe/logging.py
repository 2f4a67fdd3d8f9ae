"""Log lines of every process: structlog, one JSON object per line, or columns for people.

Every line that is written during work on a run contains the ids of the run and its trace: the bus's
consumer binds them to the context, which tasks inherit. Any other line with a run's id gets the
trace id that follows from it. Secrets are hidden last, after everything else has been formatted
into the line. Lines of the standard library's logging (from Redis, httpx, transformers …) take the
same path.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any, TextIO

import structlog

from loopline.bus.trace_context import trace_id_of
from loopline.runtime.config.secrets import Redactor
from loopline.runtime.terminal.safe_text import sanitize, unwrap_stream

EventDict = MutableMapping[str, Any]

QUIET = dict.fromkeys(("httpx", "httpx2", "httpcore", "asyncio", "urllib3"), "WARNING")
"""Libraries that log each request at INFO."""


def configure(
    *,
    level: str = "info",
    form: str = "json",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
    **fields: str,
) -> None:
    """Set up this process's logging. Every line contains `fields` (the worker's name, its kind)."""
    out = unwrap_stream(sys.stderr) if stream is None else stream
    redactor = Redactor(secrets)

    def redact(_logger: object, _method: str, event: EventDict) -> EventDict:
        # Our timestamp is not a secret, but resembles one enough for each pattern to be tried.
        return {
            key: value if key == "timestamp" else redactor.value(value, key)
            for key, value in event.items()
        }

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _add_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Any]
    if form == "json":
        last = [
            structlog.processors.format_exc_info,
            _as_text,
            redact,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    else:
        colours = out.isatty()
        last = [
            structlog.processors.format_exc_info,
            redact,
            _sanitize_event,
            structlog.dev.ConsoleRenderer(
                colors=colours, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**fields)
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, quiet in QUIET.items():
        logging.getLogger(name).setLevel(max(quiet_level(quiet), root.level))
    logging.captureWarnings(True)


def log_to_stderr() -> None:
    """Send the log lines of a command without configured logging to stderr: stdout is for
    results."""
    if not structlog.is_configured():
        # Looked up for every line: code that runs a command in its own process may replace stderr.
        structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def quiet_level(name: str) -> int:
    return logging.getLevelNamesMapping()[name]


def _add_trace(_logger: object, _method: str, event: EventDict) -> EventDict:
    run_id = event.get("run_id")
    if isinstance(run_id, str) and "trace_id" not in event and (trace := trace_id_of(run_id)):
        event["trace_id"] = trace
    return event


def _sanitize_event(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Sanitize an event for a terminal, so that foreign text can't control it. JSON escapes such
    text itself."""
    return {key: sanitize(v) if isinstance(v, str) else v for key, v in event.items()}


def _as_text(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Convert values that JSON can't represent (an exception, a path) to text, so that no log call
    fails because of its values."""
    plain = (str, int, float, bool, type(None), list, dict, tuple)
    return {key: value if isinstance(value, plain) else str(value) for key, value in event.items()}
