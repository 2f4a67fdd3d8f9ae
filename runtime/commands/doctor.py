"""`runtime doctor`: does this machine have what a profile needs, and what will it cost?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from loopline.runtime.commands.options import AsJson, OfRunning, RedisUrl, Set

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "missing": ("✗", "red")}


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    profile: OfRunning = None,
    redis_url: RedisUrl = None,
    overrides: Set = None,
    online: Annotated[
        bool,
        typer.Option("--online", help="Ask endpoints and tool sources too, free of charge."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine has what a profile needs. Checks Python, Redis, disk, models,
    tools, GPU, keys and cost; exit code 1 if something is missing.

    Checks the running deployment as it was started. Checks a profile instead with --profile, --set
    or --redis-url, or if no deployment runs.
    """
    from loopline.runtime.config.secrets import Redactor, secret_values
    from loopline.runtime.config.settings import DEFAULT_PROFILE, load, load_resolved_file
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.errors import EXIT_FAILED
    from loopline.runtime.observe.doctor import examine

    state = StateDirectory.from_environment()
    run = None if profile or overrides or redis_url else state.running()
    if run is None:
        settings = load(profile, overrides=overrides or (), redis_url=redis_url)
    else:
        settings = load_resolved_file(state.resolved)
    named = run.profile if run else profile or DEFAULT_PROFILE
    findings = examine(settings, state, online=online)
    redactor = Redactor(secret_values(settings.bus.redis_url, settings.secret_variables))
    missing = sum(finding.level == "missing" for finding in findings)
    if as_json:
        documents = [redactor.value(finding.as_json()) for finding in findings]
        typer.echo(json.dumps({"ok": not missing, "profile": named, "findings": documents}))
    else:
        typer.echo(f"profile {named}")
        for finding in findings:
            mark, colour = MARKS[finding.level]
            typer.secho(f"{mark} ", fg=colour, nl=False)
            typer.echo(f"{finding.subject:<12} {redactor.text(finding.says)}")
            if finding.do:
                typer.echo(f"{'':<15}→ {finding.do}")
        if missing:
            then = ", then `runtime down` and `runtime up`" if run else " before `runtime up`"
            typer.echo(f"\n{missing} missing: fix these{then}.")
    if missing:
        raise typer.Exit(EXIT_FAILED)
