"""`runtime scale slm=4 gpu=2`: change the number of workers while everything runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    @app.command("scale")
    def scale(  # pyright: ignore[reportUnusedFunction]
        wanted: Annotated[
            list[str],
            typer.Argument(
                metavar="KIND=N...", help="Worker kind and number of workers, as in slm=4."
            ),
        ],
    ) -> None:
        """Start or drain workers of a kind until that many run.

        A worker that was given up as broken is tried again.
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


def _parse_target(word: str) -> tuple[str, int]:
    from loopline.runtime.errors import InputError

    kind, equals, number = word.partition("=")
    if not equals or not kind or not number.isdecimal():
        raise InputError(f"{word!r} is not KIND=N", hint="as in `runtime scale slm=4`.")
    return kind, int(number)
