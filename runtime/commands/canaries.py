"""`runtime policies canary` and `runtime policies log`: trials of a version, and all changes."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopline.bus import Bus, Policy


def register_canaries(policies: typer.Typer) -> None:
    policies.command("canary")(canary)
    policies.command("log")(log)


def canary(
    name: Annotated[
        str,
        typer.Argument(
            metavar="POLICY[@VERSION]",
            help="Version to try (slm/a@7); without one, show the policy's canary.",
        ),
    ],
    share: Annotated[
        str | None, typer.Option(help="Share of the runs that it answers: 10%, or 0.1.")
    ] = None,
    shadow: Annotated[
        bool,
        typer.Option(help="Repeat those runs with it; callers do not get its answers."),
    ] = False,
    margin: Annotated[
        float, typer.Option(help="How much worse it may be, on scores from 0 to 1.")
    ] = 0.02,
    delta: Annotated[float, typer.Option(help="Probability of a wrong decision.")] = 0.05,
    runs: Annotated[
        int, typer.Option(help="Maximum comparisons; if undecided, roll back.")
    ] = 5_000,
    stop: Annotated[bool, typer.Option(help="End the trial; nothing is promoted.")] = False,
    redis_url: RedisUrl = None,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait until the policy's workers serve it.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Try a version on some runs, then promote it or roll it back.

    The recorder compares it with the version in use by rewards, outcomes, or the verdicts of a
    cascade. The version is promoted if it is at most --margin worse, and cheaper or better. It is
    rolled back if it is worse, or undecided after --runs comparisons. `runtime policies log` shows
    the evidence.
    """
    from loopline.bus.policies import split_pin
    from loopline.runtime.client.policy_changes import change_and_report
    from loopline.runtime.errors import InputError

    policy_name, version = split_pin(name)
    if stop:
        if version is not None or share is not None:
            raise InputError(
                "--stop takes no version: it ends the policy's canary",
                hint=f"runtime policies canary {policy_name} --stop",
            )
        change_and_report(policy_name, redis_url, wait, lambda policy: policy.without_canary())
    elif version is None:
        if share is not None or shadow:
            raise InputError(
                f"name the version of {name!r} to try",
                hint=f"for example {name}@7; `runtime policies ls --json` has them.",
            )
        _show(policy_name, redis_url, as_json)
    else:
        begin = _beginning(version, share, shadow, margin, delta, runs)
        _require_recorder(redis_url)
        change_and_report(policy_name, redis_url, wait, begin)


def log(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[POLICY]", help="Show the changes of this policy."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Latest changes to show.")] = 50,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """List changes of policies, newest first, with author and reason."""
    from loopline.bus.policy_log import read_log
    from loopline.runtime.client.policy_changes import describe_entry
    from loopline.runtime.on_bus import query_bus
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns

    entries = query_bus(redis_url, lambda bus: read_log(bus, name, count))
    if as_json:
        typer.echo(json.dumps([entry.model_dump(mode="json") for entry in entries]))
    elif entries:
        rows = [tuple(map(sanitize, describe_entry(entry))) for entry in entries]
        heads = ("when (UTC)", "policy", "change", "by", "why")
        typer.echo("\n".join(align_columns(heads, rows)))
    else:
        typer.echo("no policy was changed")


def share_of(text: str) -> float:
    """Parse a share, `10%` or `0.1`. Raises `InputError` unless it is above 0 and at most 1."""
    from loopline.runtime.errors import InputError

    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(
            f"{text[:40]!r} is not a share of the runs",
            hint="more than 0 and at most 1: --share 10%",
        )
    return share


def _beginning(
    version: int, share: str | None, shadow: bool, margin: float, delta: float, runs: int
) -> Callable[[Policy], Policy]:
    """Return the policy change that starts the trial of a version. Raises `InputError`."""
    import getpass

    from pydantic import ValidationError

    from loopline.bus.canaries import Canary
    from loopline.runtime.errors import InputError

    if share is None:
        raise InputError("a canary needs a share of the runs", hint="for example --share 10%")
    try:
        canary = Canary(
            version=version,
            against=0,
            mode="shadow" if shadow else "share",
            share=share_of(share),
            margin=margin,
            delta=delta,
            runs=runs,
            by=getpass.getuser(),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"--{where}: {first['msg']}") from None
    return lambda policy: policy.with_canary(canary)


def _require_recorder(redis_url: str | None) -> None:
    from loopline.runtime.client.deployment import find
    from loopline.runtime.errors import InputError

    if "recorder" not in find(redis_url=redis_url).settings.workers:
        raise InputError(
            "this deployment has no recorder, which judges canaries",
            hint="add [workers.recorder] to the profile.",
        )


def _show(name: str, redis_url: str | None, as_json: bool) -> None:
    from loopline.bus import live_workers
    from loopline.bus.policies import load_policy
    from loopline.runtime.client.policy_changes import (
        NOT_EVALUATED,
        comparisons_of,
        describe_canary,
    )
    from loopline.runtime.errors import InputError
    from loopline.runtime.on_bus import query_bus

    async def question(bus: Bus) -> tuple[Policy | None, dict[str, Any]]:
        return await load_policy(bus, name), comparisons_of(await live_workers(bus))

    policy, evidence = query_bus(redis_url, question)
    if policy is None or policy.canary is None:
        raise InputError(
            f"policy {name!r} has no canary",
            hint=f"`runtime policies log {name}` says how the last one ended.",
        )
    state = {"canary": policy.canary.model_dump(), "comparison": evidence.get(name, {})}
    if as_json:
        typer.echo(json.dumps(state))
        return
    canary = policy.canary
    typer.echo(f"{name}: version {canary.version} {describe_canary(canary)}")
    words = evidence.get(name, {}).get("in_words", NOT_EVALUATED)
    typer.echo(f"  {words}")
