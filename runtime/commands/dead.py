"""`runtime dead ls|show|replay|purge`: messages that failed after all retries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl

if TYPE_CHECKING:
    from loopline.bus import Bus, DeadLetter

LetterId = Annotated[
    str, typer.Argument(metavar="ID", help="ID of the letter, as `runtime dead ls` prints it.")
]


def register(app: typer.Typer) -> None:
    dead = typer.Typer(
        no_args_is_help=True, help="Messages that were given up, kept with the reason."
    )
    app.add_typer(dead, name="dead")
    dead.command("ls")(ls)
    dead.command("show")(show)
    dead.command("replay")(replay)
    dead.command("purge")(purge)


def ls(
    redis_url: RedisUrl = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum letters to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    from loopline.bus import dead_letters
    from loopline.runtime.on_bus import query_bus
    from loopline.runtime.terminal.tables import align_columns

    async def first(bus: Bus) -> list[DeadLetter]:
        selection: list[DeadLetter] = []
        async for letter in dead_letters.ls(bus):
            selection.append(letter)
            if len(selection) == limit:
                break
        return selection

    letters = query_bus(redis_url, first)
    if as_json:
        typer.echo(json.dumps([_as_json(letter) for letter in letters]))
        return
    rows = [
        (
            dead_letter.id,
            dead_letter.stream,
            dead_letter.run_id or "-",
            _shorten_reason(dead_letter.reason),
        )
        for dead_letter in letters
    ]
    lines = align_columns(("letter", "stream", "run", "reason"), rows)
    typer.echo("\n".join(lines) if rows else "no dead letters")


def show(letter_id: LetterId, redis_url: RedisUrl = None) -> None:
    """Show one dead letter in full: reason, traceback, envelope."""
    from loopline.bus import dead_letters
    from loopline.runtime.on_bus import query_bus
    from loopline.runtime.terminal.safe_text import sanitize

    letter = query_bus(redis_url, lambda bus: dead_letters.show(bus, letter_id))
    typer.echo(sanitize(json.dumps(_as_json(letter), indent=2, ensure_ascii=False)))


def replay(letter_id: LetterId, redis_url: RedisUrl = None) -> None:
    """Send a dead letter back to its stream and wake its run. Fix its cause first."""
    from loopline.bus import dead_letters
    from loopline.runtime.on_bus import query_bus

    stream = query_bus(redis_url, lambda bus: dead_letters.replay(bus, letter_id))
    typer.echo(f"sent to {stream}")


def purge(
    letter_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="ID of the letter to delete.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all dead letters.")] = False,
    redis_url: RedisUrl = None,
) -> None:
    """Delete one dead letter, or all of them."""
    from loopline.bus import dead_letters
    from loopline.runtime.errors import InputError
    from loopline.runtime.on_bus import query_bus

    if (letter_id is None) == (not everything):
        raise InputError("give the ID of a letter, or --all")
    gone = query_bus(redis_url, lambda bus: dead_letters.purge(bus, letter_id))
    typer.echo(f"{gone} purged")


def _as_json(letter: DeadLetter) -> dict[str, object]:
    from dataclasses import asdict

    try:
        envelope = json.loads(letter.envelope)
    except (ValueError, RecursionError):
        envelope = letter.envelope.decode("utf-8", "replace")
    return {**asdict(letter), "envelope": envelope}


def _shorten_reason(reason: str) -> str:
    """Shorten a reason to one safe line: it may contain text from a server."""
    from loopline.runtime.terminal.safe_text import sanitize

    return sanitize((reason.splitlines() or [""])[0][:100])
