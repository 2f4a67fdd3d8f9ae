"""Options that several commands share, defined and explained once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopline.runtime.config import profile_names

if TYPE_CHECKING:
    from loopline.agents.records import Budget

_PROFILES = f"{', '.join(profile_names())}, or the path of a .toml file."


def _profile(without: str) -> Any:
    return typer.Option(
        "--profile", "-p", help=_PROFILES, envvar="LOOPLINE_PROFILE", show_default=without
    )


Profile = Annotated[str | None, _profile("micro")]
OfRunning = Annotated[str | None, _profile("the running deployment's, else micro")]
"""Profile option of commands about the running deployment."""
RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        help="Join the bus at this URL. Better in LOOPLINE_BUS__REDIS_URL: a command line is"
        " visible to every user of the machine.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key; may be repeated."),
]
BudgetUsd = Annotated[
    float | None, typer.Option(min=0.000001, help="Maximum US dollars that a run may spend.")
]
BudgetTokens = Annotated[int | None, typer.Option(min=1, help="Maximum tokens that a run may use.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
UnsafeExec = Annotated[
    bool,
    typer.Option(
        "--unsafe-exec",
        help="Run generated programs even without bubblewrap: they can read your files and use"
        " the network.",
    ),
]


def budget_of(seconds: float, tokens: int | None, dollars: float | None) -> Budget:
    """Return a run's budget from the options."""
    from loopline.agents.records import Budget

    micro_dollars = None if dollars is None else max(1, round(dollars * 1e6))
    return Budget(seconds=seconds, tokens=tokens, micro_dollars=micro_dollars)
