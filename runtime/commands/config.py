"""`runtime config`: the resolved configuration, secrets hidden."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer

from loopline.runtime.commands.options import AsJson, Profile, RedisUrl, Set


def register(app: typer.Typer) -> None:
    @app.command("config")
    def config(  # pyright: ignore[reportUnusedFunction]
        profile: Profile = None,
        redis_url: RedisUrl = None,
        overrides: Set = None,
        as_json: AsJson = False,
        keys: Annotated[bool, typer.Option("--keys", help="List every key and its type.")] = False,
    ) -> None:
        """Print the configuration that `runtime up` would run with."""
        if keys:
            _print_keys()
            return
        from loopline.runtime.config.secrets import Redactor, secret_values
        from loopline.runtime.config.settings import load

        settings = load(profile, overrides=overrides or (), redis_url=redis_url)
        redactor = Redactor(secret_values(settings.bus.redis_url, settings.secret_variables))
        shown: dict[str, Any] = redactor.value(settings.model_dump(mode="json"))
        if settings.own_redis:
            shown["bus"]["redis_url"] = None
        if as_json:
            typer.echo(json.dumps(shown))
            return
        for line in _toml(shown, ()):
            typer.echo(line)


def _toml(table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    """TOML again, so that the output can be saved as a profile."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines: list[str] = []
    if plain and path:
        lines.append(f"\n[{'.'.join(map(_key, path))}]")
    for key, value in plain.items():
        shown = f"{_key(key)} = {json.dumps(value)}"
        lines.append(f"# {key}: not set" if value is None else shown)
    for key, value in table.items():
        if isinstance(value, dict):
            lines.extend(_toml(value, (*path, key)))
    return lines


def _key(name: str) -> str:
    """A name as TOML writes it: with a dot in it, it must be quoted."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _print_keys() -> None:
    from loopline.runtime.config.settings import Settings
    from loopline.runtime.config.sources import key_descriptions

    for key, kind, description in key_descriptions(Settings):
        typer.echo(f"{key}  ({kind})")
        if description:
            typer.echo(f"    {description}")
