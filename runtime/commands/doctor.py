"""`runtime doctor`: is everything there that a profile needs, and what will it cost?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from runtime.commands.options import AsJson, Profile, RedisUrl, Set

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "missing": ("✗", "red")}


def register(app: typer.Typer) -> None:
    @app.command("doctor")
    def doctor(  # pyright: ignore[reportUnusedFunction]
        profile: Profile = None,
        redis_url: RedisUrl = None,
        overrides: Set = None,
        online: Annotated[
            bool,
            typer.Option("--online", help="Ask endpoints and tool sources too, free of charge."),
        ] = False,
        as_json: AsJson = False,
    ) -> None:
        """Check Python, Redis, disk, models, tools, GPU, keys and cost; exit code 1 if something is
        missing."""
        from runtime.config import load
        from runtime.doctor import examine
        from runtime.errors import EXIT_FAILED
        from runtime.secrets import Redactor, secret_values
        from runtime.state import StateDirectory

        settings = load(profile, overrides=overrides or (), redis_url=redis_url)
        findings = examine(settings, StateDirectory.from_environment(), online=online)
        redactor = Redactor(secret_values(settings.bus.redis_url, settings.secret_variables))
        missing = sum(finding.level == "missing" for finding in findings)
        if as_json:
            shown = [redactor.value(finding.as_json()) for finding in findings]
            typer.echo(json.dumps({"ok": not missing, "findings": shown}))
        else:
            for finding in findings:
                mark, colour = MARKS[finding.level]
                typer.secho(f"{mark} ", fg=colour, nl=False)
                typer.echo(f"{finding.subject:<12} {redactor.text(finding.says)}")
                if finding.do:
                    typer.echo(f"{'':<15}→ {finding.do}")
            if missing:
                typer.echo(f"\n{missing} missing: mend these before `runtime up`.")
        if missing:
            raise typer.Exit(EXIT_FAILED)
