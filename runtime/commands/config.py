"""`runtime config`: the resolved configuration, secrets hidden."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from loopline.runtime.commands.options import AsJson, Profile, RedisUrl, Set


def register(app: typer.Typer) -> None:
    app.command("config")(config)


def config(
    profile: Profile = None,
    redis_url: RedisUrl = None,
    overrides: Set = None,
    as_json: AsJson = False,
    keys: Annotated[bool, typer.Option("--keys", help="List every key and its type.")] = False,
) -> None:
    """Print the configuration that `runtime up` would use."""
    if keys:
        _print_keys()
        return
    from loopline.runtime.config.secrets import Redactor, secret_values
    from loopline.runtime.config.settings import load
    from loopline.runtime.config.sources import toml_lines

    settings = load(profile, overrides=overrides or (), redis_url=redis_url)
    redactor = Redactor(secret_values(settings.bus.redis_url, settings.secret_variables))
    document: dict[str, Any] = redactor.value(settings.model_dump(mode="json"))
    if settings.own_redis:
        document["bus"]["redis_url"] = None
    if as_json:
        typer.echo(json.dumps(document))
        return
    for line in toml_lines(document):
        typer.echo(line)


def _print_keys() -> None:
    from loopline.runtime.config.settings import Settings
    from loopline.runtime.config.sources import key_descriptions

    for key, kind, description in key_descriptions(Settings):
        typer.echo(f"{key}  ({kind})")
        if description:
            typer.echo(f"    {description}")
