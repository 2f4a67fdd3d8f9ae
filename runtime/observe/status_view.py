"""A deployment's status for people: rich tables in a terminal, plain text elsewhere."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from loopline.bus.clock import SKEW_SECONDS
from loopline.runtime.observe.status import Status, WorkerStatus
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.safe_text import sanitize
from loopline.runtime.terminal.tables import new_table
from loopline.workers.messages import BREAKERS

COLOURS = {
    "ready": "green",
    "starting": "yellow",
    "downloading": "yellow",
    "backoff": "yellow",
    "degraded": "red",
    "draining": "cyan",
    "silent": "red",
    "broken": "red",
}


PLAIN_WIDTH = 200
"""Columns if the output is not a terminal: a log or a pipe has no width."""


def console() -> Console:
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def render_status(status: Status) -> RenderableType:
    """Render the headline, the workers, the nonempty streams, and what needs attention."""
    parts: list[RenderableType] = [_head(status), _workers(status)]
    busy = [
        stream for stream in status.streams if stream.waiting or stream.leased or stream.delayed
    ]
    if busy:
        table = new_table("stream", "waiting", "leased", "delayed", words=("stream",))
        for stream in busy:
            table.add_row(stream.name, str(stream.waiting), str(stream.leased), str(stream.delayed))
        parts += [Text(), table]
    for worker in status.workers:
        if worker.reason:
            parts += [Text(), Text(sanitize(f"{worker.name}: {worker.reason}"), style="red")]
            parts += [Text(sanitize(f"    {line}"), style="dim") for line in worker.last_lines[-5:]]
    skewed = {
        worker.host: worker.skew_seconds
        for worker in status.workers
        if abs(worker.skew_seconds) > SKEW_SECONDS
    }
    for host, skew in skewed.items():
        way = "ahead of" if skew > 0 else "behind"
        words = f"{host}: its clock is {duration(abs(skew))} {way} the bus's; synchronize it by NTP"
        parts += [Text(), Text(sanitize(words), style="yellow")]
    if len(status.builds) > 1:
        parts.append(Text())
        for build, names in sorted(status.builds.items()):
            parts.append(Text(sanitize(f"{build}: {', '.join(names)}"), style="yellow"))
    parts += [part for line in _watched(status) for part in (Text(), line)]
    parts += [part for words in _breakers(status) for part in (Text(), Text(words, style="red"))]
    if status.dead_letters:
        parts += [
            Text(),
            Text(
                f"{format_count(status.dead_letters, 'dead letter')}: `runtime dead ls` shows why",
                style="red",
            ),
        ]
    if status.unserved:
        parts += [Text(), Text(sanitize(unserved_kinds(status)), style="red")]
    if status.supervisor_error:
        parts += [Text(), Text(sanitize(status.supervisor_error), style="red")]
    if trouble := status.redis.get("trouble"):
        parts += [Text(), Text(f"the bus: {sanitize(trouble)}", style="red")]
    if status.bus_error:
        parts += [
            Text(),
            Text(sanitize(f"the bus can't be read: {status.bus_error}"), style="red"),
        ]
    return Group(*parts)


def unserved_kinds(status: Status) -> str:
    """Describe the kinds without a ready worker."""
    return (
        f"no worker is ready for: {', '.join(status.unserved)}; their work waits"
        " (`runtime logs KIND` shows more)"
    )


def _head(status: Status) -> Text:
    head = Text()
    head.append(status.phase, style=f"bold {COLOURS.get(status.phase, 'white')}")
    if status.profile:
        head.append(f"  profile {sanitize(status.profile)}")
    server = status.redis.get("server")
    head.append(f"  bus {server + ' at ' if server else ''}{status.redis.get('url', '')}")
    if "memory_bytes" in status.redis:
        head.append(f", {_memory(status.redis)}")
    waits = f", {status.runs_queued} waiting for their turn" if status.runs_queued else ""
    waits += f", {format_count(status.waits, 'wait')}" if status.waits else ""
    head.append(
        f"\n{format_count(status.runs_in_flight, 'run')} in flight{waits},"
        f" {status.unrecorded} to be recorded,"
        f" {format_count(sum(stream.waiting for stream in status.streams), 'message')} waiting,"
        f" {sum(stream.leased for stream in status.streams)} leased\n"
    )
    return head


def _watched(status: Status) -> list[Text]:
    """Render the recorders' reports about canaries and cascade routers; alarms are red."""
    lines: list[Text] = []
    for worker in status.workers:
        for name, facts in worker.details.get("canaries", {}).items():
            words = f"canary {facts.get('version')} of {name}: {facts.get('in_words')}"
            lines.append(Text(sanitize(words)))
        for name, facts in worker.details.get("routers", {}).items():
            words = str(facts.get("error") or facts.get("in_words"))
            if facts.get("alarms"):
                words = (
                    f"ALARM, raised {format_count(facts['alarms'], 'time')}: it was tightened "
                    f"automatically; retrain it with `train router`. {words}"
                )
            style = "red" if facts.get("alarms") or facts.get("error") else ""
            lines.append(Text(sanitize(f"router {name}: {words}"), style=style))
    return lines


def _breakers(status: Status) -> list[str]:
    """List paused endpoints, and workers that can't share that state."""
    lines = [
        sanitize(
            f"{name}: its endpoint is paused after {format_count(failures, 'failed request')} in a"
            " row; its fallbacks answer"
        )
        for name, failures in status.breakers.items()
    ]
    for worker in status.workers:
        for name, state in worker.details.get(BREAKERS, {}).items():
            if trouble := state.get("trouble"):
                lines.append(
                    sanitize(f"{worker.name}: the breaker of {name} is not shared: {trouble}")
                )
    return lines


def _memory(redis: dict[str, Any]) -> str:
    used_bytes, limit = redis["memory_bytes"], redis["memory_limit_bytes"]
    return f"holds {used_bytes / 2**20:,.0f} MiB" + (f" of {limit / 2**20:,.0f}" if limit else "")


def _workers(status: Status) -> RenderableType:
    if not status.workers:
        return Text("no workers", style="red")
    table = new_table(
        *("worker", "state", "busy", "pid", "up", "restarts", "build", "does"),
        words=("worker", "state", "build", "does"),
    )
    for worker in status.workers:
        table.add_row(
            worker.name,
            Text(sanitize(worker.state), style=COLOURS.get(worker.state, "white")),
            f"{worker.busy}/{worker.concurrency}" if worker.concurrency else "",
            str(worker.pid or ""),
            duration(worker.up_seconds),
            str(worker.restarts or ""),
            Text(sanitize(_short_build(worker))),
            # Text from servers and models: without markup, and without control of the terminal.
            Text(sanitize(_worker_activity(worker))),
        )
    return table


def _short_build(worker: WorkerStatus) -> str:
    """Shorten the text of `loopline.build.describe` to the form `0.1.0 fb299d703a68`."""
    words = worker.build.removeprefix("loopline ")
    return words.replace("(commit ", "").replace(", modified", "+").replace(")", "") or (
        worker.version
    )


def _worker_activity(worker: WorkerStatus) -> str:
    models = worker.details.get("models")
    if isinstance(models, dict):
        return ", ".join(f"{pool}: {base}" for pool, base in models.items())
    if "rows" in worker.details:
        return f"{worker.details['rows']} rows written"
    if "refuses" in worker.details:
        refused = "; ".join(worker.details["refuses"])
        return f"refuses: {refused}" if refused else "judges programs and answers"
    sources = worker.details.get("sources")
    if isinstance(sources, dict):
        return ", ".join(f"{name}: {_source(state)}" for name, state in sources.items())
    return ""


def _source(state: dict[str, Any]) -> str:
    return str(state["trouble"] or f"{state['tools']} tools")


def duration(seconds: float) -> str:
    """Format a duration: `8 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6_000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"
