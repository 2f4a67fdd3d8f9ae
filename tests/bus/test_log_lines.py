"""A handler's log lines identify their run."""

from __future__ import annotations

import structlog
from structlog.testing import LogCapture

from loopline.bus import Bus, Delivery, trace_id_of
from tests.bus.payloads import admit
from tests.bus.serving import ended, finishing, serving


async def test_a_handler_s_log_lines_carry_the_id_of_its_run(bus: Bus) -> None:
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
    assert {line.get("trace_id") for line in at_work} == {trace_id_of(run) for run in runs}


def test_a_run_uses_its_client_s_trace_or_one_derived_from_its_id() -> None:
    run_id = "01a0c450-6c78-762c-82ca-3decceec41a1"
    brought = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert trace_id_of(run_id) == "01a0c4506c78762c82ca3decceec41a1"
    assert trace_id_of(run_id, brought) == "4bf92f3577b34da6a3ce929d0e0e4736"
    for nonsense in ("", "00-xyz", brought.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)):
        assert trace_id_of(run_id, nonsense) == "01a0c4506c78762c82ca3decceec41a1"
    assert trace_id_of("no run") == ""
