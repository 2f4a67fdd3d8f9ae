"""`runtime effects ls|resolve`: tool calls whose effect is unknown."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl

if TYPE_CHECKING:
    from loopline.bus import Bus
    from loopline.bus.effects import Resolution, UnfinishedCall
    from loopline.workers.tool import CallNote


@dataclass(frozen=True)
class _Listed:
    call: UnfinishedCall
    note: CallNote

    @property
    def state(self) -> str:
        if self.call.in_hand and not self.note.why:
            return "running"
        if self.note.waits_for_person:
            return "unknown, its run waits"
        if self.note.late_answer is not None:
            return "answered late"
        return "unknown" if self.note.why else "unknown, not taken over yet"


def register(app: typer.Typer) -> None:
    effects = typer.Typer(
        no_args_is_help=True, help="Tool calls that may or may not have taken effect."
    )
    app.add_typer(effects, name="effects")
    effects.command("ls")(ls)
    effects.command("resolve")(resolve)


def ls(
    running: Annotated[
        bool, typer.Option("--running", help="List calls in progress, too.")
    ] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """List calls whose outcome is unknown, oldest first.

    Exit code 1 if a call's note can't be read; its key is printed, and the call can be resolved.
    """
    from datetime import UTC, datetime

    from loopline.runtime.on_bus import query_bus
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns
    from loopline.runtime.terminal.unreadable import report_unreadable

    all_calls, unreadable = query_bus(redis_url, _all_calls)
    calls = [call for call in all_calls if running or call.state != "running"]
    if as_json:
        notes = (call.note.model_dump(mode="json") | {"state": call.state} for call in calls)
        typer.echo(json.dumps([*notes]))
        report_unreadable(unreadable)
        return
    rows = [
        (
            call.note.key,
            call.state,
            sanitize(call.note.tool),
            sanitize(json.dumps(call.note.arguments)[:60]),
            datetime.fromtimestamp(call.note.began, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            sanitize(call.note.why[:60]) or "-",
        )
        for call in calls
    ]
    lines = align_columns(("call", "state", "tool", "arguments", "began (UTC)", "why"), rows)
    typer.echo("\n".join(lines) if rows else "no call has an unknown outcome")
    report_unreadable(unreadable)


def resolve(
    key: Annotated[
        str, typer.Argument(metavar="CALL", help="Call, as `runtime effects ls` prints it.")
    ],
    result: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="It took effect, and this is the tool's answer."),
    ] = None,
    failed: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="It failed; the model reads this as its error."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="It never took effect: make the call again.")
    ] = False,
    redis_url: RedisUrl = None,
) -> None:
    """Settle the outcome of a call. A run that waits for it continues.

    Be sure before you use --again: a worker that was only paused may still execute the call.
    """
    from loopline.bus.effects import Resolution
    from loopline.runtime.errors import InputError
    from loopline.runtime.on_bus import query_bus

    if sum((result is not None, failed is not None, again)) != 1:
        raise InputError("give one of --result, --failed and --again")
    reply = None if again else _reply(result, failed)
    resolution = query_bus(redis_url, _resolving(key, reply))
    match resolution:
        case Resolution.WAITING:
            typer.echo("resolved; its run continues")
        case Resolution.SETTLED:
            typer.echo("removed from the list; its run had continued without an outcome")
        case Resolution.BUSY:
            raise InputError(
                f"a worker is making the call {key}",
                hint="wait until it ends, or until `runtime effects ls` lists it",
            )
        case Resolution.MISSING:
            raise InputError(
                f"no call {key!r} has an unknown outcome",
                hint="`runtime effects ls` lists those that have",
            )


def _reply(result: str | None, failed: str | None) -> bytes:
    """Build the call's result. Raises `InputError`."""
    from loopline.agents.tools.json_arguments import parse_arguments
    from loopline.runtime.errors import InputError
    from loopline.workers.messages import tool_result

    if failed is not None:
        return tool_result.dump_json({"error": failed})
    assert result is not None
    value, problem = parse_arguments(result)
    if value is None:
        raise InputError(
            f"--result: {problem}".replace("the arguments", "it"),
            hint="""for example --result '{"result": "ordered, number 17"}'""",
        )
    return tool_result.dump_json(value)


async def _all_calls(bus: Bus) -> tuple[list[_Listed], list[str]]:
    """Return the calls by start time, and the reasons why others can't be read."""
    from pydantic import ValidationError

    from loopline.bus import effects
    from loopline.runtime.terminal.unreadable import why_unreadable
    from loopline.workers.tool import CallNote

    listed: list[_Listed] = []
    unreadable: list[str] = []
    async for call in effects.unfinished(bus):
        try:
            listed.append(_Listed(call, CallNote.model_validate_json(call.note)))
        except ValidationError as error:
            unreadable.append(why_unreadable(f"the note of the call {call.key}", error))
    return sorted(listed, key=lambda call: call.note.began), unreadable


def _resolving(key: str, reply: bytes | None) -> Callable[[Bus], Awaitable[Resolution]]:
    async def resolve(bus: Bus) -> Resolution:
        from loopline.bus import effects
        from loopline.bus.effects import Resolution

        async for call in effects.unfinished(bus):
            if call.key == key:
                return await effects.resolve(bus, call, reply)
        return Resolution.MISSING

    return resolve
