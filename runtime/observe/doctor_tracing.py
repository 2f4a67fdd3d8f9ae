"""The doctor's check of the trace collector. Only with `online`, the doctor sends a request without
spans, which shows whether address and key are right and stores nothing there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from importlib.util import find_spec

from loopline.runtime.config.settings import Settings
from loopline.runtime.observe.check_results import Finding
from loopline.workers.installation import install_hint
from loopline.workers.settings import TracingSettings

SUBJECT = "tracing"


def tracing_findings(settings: Settings, *, online: bool) -> Iterator[Finding]:
    """Yield findings about tracing; none if it is off."""
    tracing = settings.tracing
    if tracing.endpoint is None:
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
        says = "opentelemetry-proto is missing, and no recorder starts without it"
        yield Finding("missing", SUBJECT, says, install_hint("otel"))
        return
    variables = tracing.headers_env.values()
    if unset := [variable for variable in variables if not os.environ.get(variable)]:
        yield Finding(
            "warn",
            SUBJECT,
            f"needs the environment variable {', '.join(unset)}, which is not set",
            f"export {unset[0]}=… before `runtime up`; the recorder reads it there.",
        )
    elif not online:
        yield Finding("warn", SUBJECT, f"{tracing.endpoint}: not tried", "--online asks it.")
    else:
        yield asyncio.run(_try_collector(tracing, tracing.endpoint))


async def _try_collector(tracing: TracingSettings, endpoint: str) -> Finding:
    from loopline.workers.tracing.otlp import Collector
    from loopline.workers.tracing.spans import CollectorUnavailable, SpansRefused

    headers = {name: os.environ[variable] for name, variable in tracing.headers_env.items()}
    async with Collector(endpoint, headers, tracing.timeout_seconds) as collector:
        try:
            await collector.send([], "")
        except (CollectorUnavailable, SpansRefused) as error:
            return Finding(
                "warn",
                SUBJECT,
                f"{collector.url}: {error}",
                "check tracing.endpoint and its key; runs continue, and their traces wait.",
            )
        return Finding("ok", SUBJECT, f"{collector.url}: takes spans")
