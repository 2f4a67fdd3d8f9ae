"""`runtime dashboard`: a link that signs in to the live page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from loopline.bus import Bus


def register(app: typer.Typer) -> None:
    app.command("dashboard")(dashboard)


def dashboard(
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the link in this machine's browser.")
    ] = False,
) -> None:
    """Print a link to the live page: runs, workers, policies. Valid once, for a minute.

    The gateways of this state directory's deployment serve the page.
    """
    import webbrowser

    from loopline.runtime.client.deployment import find
    from loopline.runtime.dashboard.frame import PATH
    from loopline.runtime.dashboard.sign_in import key_digest_of, make_ticket
    from loopline.runtime.errors import InputError
    from loopline.runtime.gateway.api_keys import key_file
    from loopline.runtime.on_bus import query_bus

    deployment = find()
    if deployment.run is None or deployment.run.gateway is None:
        raise InputError(
            "no gateway of this state directory serves the page",
            hint="`runtime up --set workers.gateway.count=1` starts one.",
        )
    key = key_file(deployment.state)

    async def ticket(bus: Bus) -> str:
        return await make_ticket(bus, key_digest_of(key))

    base = deployment.run.gateway.removesuffix("/v1")
    link = f"{base}{PATH}/sign-in?ticket={query_bus(None, ticket)}"
    typer.echo(link)
    if open_browser:
        webbrowser.open(link)
