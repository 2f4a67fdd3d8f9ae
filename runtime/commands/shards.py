"""`runtime shards N`: spread a running deployment over another number of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import RedisUrl

if TYPE_CHECKING:
    from loopline.bus import Bus


def register(app: typer.Typer) -> None:
    @app.command("shards")
    def shards(  # pyright: ignore[reportUnusedFunction]
        number: Annotated[
            int, typer.Argument(min=1, max=256, help="Number of shards from now on.")
        ],
        redis_url: RedisUrl = None,
        wait: Annotated[
            float, typer.Option(min=0, help="Seconds to wait for runs in flight.")
        ] = 600.0,
    ) -> None:
        """Change the number of shards. New runs are refused until all that is in flight is done.

        Workers join again by themselves; other clients are told to start again.
        """
        from loopline.runtime.config.shards import change_shards
        from loopline.runtime.on_bus import query_bus

        async def change(bus: Bus) -> tuple[int, int]:
            return await change_shards(
                bus, number, wait=wait, say=lambda words: typer.echo(words, err=True)
            )

        before, after = query_bus(redis_url, change)
        typer.echo(f"shards: {before} → {after}")
