"""The table of `runtime status`, which includes text that others wrote."""

from __future__ import annotations

import io

from rich.console import Console

from loopline.runtime.observe.status import Status, WorkerStatus
from loopline.runtime.observe.status_view import render_status


def test_texts_of_workers_are_shown_literally_and_control_nothing() -> None:
    judge = WorkerStatus(
        name="judge-1", kind="judge", state="ready", details={"refuses": ["pip install '.[bench]'"]}
    )
    tool = WorkerStatus(
        name="tool-1", kind="tool", state="ready",
        details={"sources": {"town": {"trouble": "[/red] \x1b[2J gone", "tools": 0}}},
    )  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=200).print(render_status(Status(phase="ready", workers=[judge, tool])))
    assert "refuses: pip install '.[bench]'" in out.getvalue()
    assert "town: [/red] \\u001b[2J gone" in out.getvalue()


def test_a_machine_with_a_wrong_clock_is_reported_once() -> None:
    workers = [
        WorkerStatus(name=f"slm-{n}", kind="slm", state="ready", host="far", skew_seconds=7200.4)
        for n in range(2)
    ]
    fine = WorkerStatus(name="gpu-0", kind="gpu", state="ready", host="near", skew_seconds=0.1)
    out = io.StringIO()
    Console(file=out, width=200).print(
        render_status(Status(phase="ready", workers=[*workers, fine]))
    )
    output = out.getvalue()
    assert output.count("its clock is 2.0 h ahead of the bus's; synchronize it by NTP") == 1
    assert "near:" not in output


def test_workers_of_different_builds_are_listed_by_build() -> None:
    workers = [
        WorkerStatus(name="slm-0", kind="slm", state="ready", build="loopline 1.0 (commit aaa)"),
        WorkerStatus(
            name="slm-1", kind="slm", state="ready", build="loopline 1.0 (commit bbb, modified)"
        ),
    ]
    builds = {worker.build: [worker.name] for worker in workers}
    out = io.StringIO()
    status = Status(phase="ready", workers=workers, builds=builds)
    Console(file=out, width=200).print(render_status(status))
    assert "1.0 aaa " in out.getvalue()
    assert "1.0 bbb+" in out.getvalue()
    assert "loopline 1.0 (commit aaa): slm-0" in out.getvalue()
    assert "loopline 1.0 (commit bbb, modified): slm-1" in out.getvalue()


def test_an_open_breaker_and_a_breaker_that_is_not_shared_are_reported() -> None:
    alone = WorkerStatus(
        name="gpu-1", kind="gpu", state="ready",
        details={"breakers": {"llm": {"open": False, "failures": 1, "trouble": "no answer"}}},
    )  # fmt: skip
    out = io.StringIO()
    status = Status(phase="ready", workers=[alone], breakers={"llm": 5})
    Console(file=out, width=200).print(render_status(status))
    assert "llm: its endpoint is paused after 5 failed requests in a row" in out.getvalue()
    assert "gpu-1: the breaker of llm is not shared: no answer" in out.getvalue()
