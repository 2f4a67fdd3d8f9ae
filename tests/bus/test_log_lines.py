"""What a handler logs says of which run it is."""

from __future__ import annotations

import structlog
from structlog.testing import LogCapture

from loopline.bus import Bus, Delivery
from tests.bus.payloads import admit
from tests.bus.serving import ended, finishing, serving


async def test_a_line_that_a_handler_logs_carries_the_id_of_its_run(bus: Bus) -> None:
    lines = LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, lines])

    async def logging(delivery: Delivery) -> None:
        structlog.get_logger().info("at work")
        await finishing(delivery)

    async with serving(bus, ["planner"], logging):
        runs = [await admit(bus), await admit(bus)]
        for run_id in runs:
            await ended(bus, run_id)
    at_work = [line for line in lines.entries if line["event"] == "at work"]
    assert {line.get("run_id") for line in at_work} == set(runs)
