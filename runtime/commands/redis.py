"""`runtime redis acl`: users for your own Redis."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="A Redis of your own.")
    app.add_typer(group, name="redis")
    group.command("acl")(acl)


def acl(
    prefix: Annotated[
        str, typer.Option(help="The deployment's bus.prefix.", metavar="PREFIX")
    ] = "loopline",
    commands: Annotated[
        bool, typer.Option("--commands", help="Print commands for redis-cli, not an ACL file.")
    ] = False,
) -> None:
    """Print Redis users with minimal rights for each kind of process.

    Standard output is an access list with hashed passwords: append it to the file that the server's
    `aclfile` names and run `redis-cli ACL LOAD`, or pipe the --commands into redis-cli. The new
    passwords are printed once, on standard error: give each machine's workers their own URL as
    bus.redis_url. `role` is for planner, slm and expert, `client` for ask, bench and train. Then
    give the user `default` its own password, or turn it off.
    """
    from pydantic import ValidationError

    from loopline.bus.settings import BusSettings
    from loopline.runtime.redis.users import KINDS, rules, user_name

    try:
        BusSettings(prefix=prefix)
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"], param_hint="--prefix") from None
    verb = "ACL SETUSER" if commands else "user"
    for kind in KINDS:
        user, password = user_name(prefix, kind), secrets.token_hex(24)
        typer.echo(f"{verb} {user} {rules(prefix, kind, password)}")
        typer.echo(f"{kind}: rediss://{user}:{password}@HOST:6379/0", err=True)
