"""Changes to a running deployment: `runtime scale slm=4 gpu=2` sets the number of workers, `runtime
shards N` the number of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopline.runtime.commands.options import RedisUrl

if TYPE_CHECKING:
    from loopline.bus import Bus


def register(app: typer.Typer) -> None:
    app.command("scale")(scale)
    app.command("shards")(shards)


def scale(
    wanted: Annotated[
        list[str],
        typer.Argument(metavar="KIND=N...", help="Worker kind and number of workers, as in slm=4."),
    ],
) -> None:
    """Start or drain workers of a kind until N of them run.

    A worker that was given up as broken is started again.
    """
    from loopline.runtime.client.deployment import local_run_file
    from loopline.runtime.supervise.control import ask_supervisor

    counts = [_parse_target(word) for word in wanted]
    control = local_run_file().control
    for kind, count in counts:
        answer: dict[str, Any] = ask_supervisor(
            control, {"do": "scale", "kind": kind, "count": count}
        )
        typer.echo(f"{kind}: {answer['before']} → {answer['after']}")


def shards(
    number: Annotated[int, typer.Argument(min=1, max=256, help="Number of shards from now on.")],
    redis_url: RedisUrl = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for runs in flight.")] = 600.0,
) -> None:
    """Change the number of shards. New runs are refused until nothing is in flight.

    Workers rejoin by themselves; other clients are told to restart.
    """
    from loopline.runtime.config.shards import change_shards
    from loopline.runtime.on_bus import query_bus

    async def change(bus: Bus) -> tuple[int, int]:
        return await change_shards(
            bus, number, wait=wait, say=lambda words: typer.echo(words, err=True)
        )

    before, after = query_bus(redis_url, change)
    typer.echo(f"shards: {before} → {after}")


def _parse_target(word: str) -> tuple[str, int]:
    from loopline.runtime.errors import InputError

    kind, equals, number = word.partition("=")
    if not equals or not kind or not number.isdecimal():
        raise InputError(f"{word!r} is not KIND=N", hint="as in `runtime scale slm=4`.")
    return kind, int(number)
