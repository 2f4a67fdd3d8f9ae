"""`bench takeover`: kill -9 of a gpu worker with 16 streamed requests in flight."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("takeover")(takeover)


def takeover(
    model: Annotated[
        str,
        typer.Option(
            help="random-micro or random-100m (random weights: they do not end a text before its "
            "limit), or a folder of safetensors of a model as talkative."
        ),
    ] = "random-micro",
    only: Annotated[
        str, typer.Option(metavar="both|llama_cpp|torch", help="Which of our engines.")
    ] = "both",
    lease: Annotated[float, typer.Option(min=0.5, max=60, help="Seconds.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Kills per engine.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Kill a gpu worker amid 16 streams, and time the takeover. Another worker must have answered
    all of them within the lease + 2 s.

    Exit code 1 if it took longer, if an answer was billed twice, or if a follower saw a gap.
    """
    from importlib.util import find_spec

    from loopline.bench.errors import UsageError
    from loopline.bench.proofs.failover import MOST_OVER_LEASE, as_json_line, measure, said
    from loopline.runtime.errors import EXIT_FAILED
    from loopline.workers.installation import how_to_install

    if only not in ("both", "llama_cpp", "torch"):
        raise UsageError(f"--only {only!r}: choose one of both, llama_cpp, torch")
    if only != "torch" and find_spec("llama_cpp") is None:
        raise UsageError(
            f"llama-cpp-python is not installed; {how_to_install('gguf')}; or --only torch"
        )
    engines = ("torch", "llama_cpp") if only == "both" else (only,)
    found = measure(engines, model, lease_seconds=lease, rounds=rounds)
    limit = lease + MOST_OVER_LEASE
    for engine, measured in found.items():
        typer.echo(said(engine, measured, limit))
    if as_json:
        typer.echo(as_json_line(found, limit))
    if any(each.answered > limit for measured in found.values() for each in measured):
        raise typer.Exit(EXIT_FAILED)
