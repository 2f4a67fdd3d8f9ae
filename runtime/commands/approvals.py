"""`runtime approvals ls|approve|deny`: calls and answers that need a person's approval."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl
from loopline.runtime.on_bus import run_with_client

if TYPE_CHECKING:
    from loopline.runtime.client.client import Client
    from loopline.runtime.client.deployment import Deployment
    from loopline.runtime.client.waiting import Approvals, PendingApproval

ApprovalId = Annotated[
    str, typer.Argument(metavar="ID", help="Its id, as `runtime approvals ls` prints it.")
]
Digest = Annotated[
    str | None,
    typer.Option(help="Digest of the request that you reviewed; refuse to decide any other."),
]


def register(app: typer.Typer) -> None:
    approvals = typer.Typer(
        no_args_is_help=True, help="Calls and answers that wait for a person's approval."
    )
    app.add_typer(approvals, name="approvals")
    approvals.command("ls")(ls)
    approvals.command("approve")(approve)
    approvals.command("deny")(deny)


def ls(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List the requests that wait for approval, oldest first.

    Exit code 1 if a request can't be read; its id is printed.
    """
    from datetime import UTC, datetime

    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns
    from loopline.runtime.terminal.unreadable import report_unreadable

    async def listed(client: Client, _: Deployment) -> Approvals:
        return await client.all_approvals()

    approvals = run_with_client(redis_url, listed)
    pending = approvals.pending
    if as_json:
        typer.echo(json.dumps([approval.as_json() for approval in pending]))
        report_unreadable(approvals.unreadable)
        return
    rows = [
        (
            approval.id,
            approval.request.agent,
            approval.request.name,
            sanitize(json.dumps(approval.request.arguments, ensure_ascii=False)),
            datetime.fromtimestamp(approval.waiting.wait.expires, UTC).strftime("%Y-%m-%d %H:%M"),
            approval.request.digest[:12],
        )
        for approval in pending
    ]
    head = ("id", "agent", "wants", "arguments", "until (UTC)", "digest")
    lines = align_columns(head, rows)
    typer.echo("\n".join(lines) if rows else "nothing waits for approval")
    report_unreadable(approvals.unreadable)


def approve(
    approval_id: ApprovalId,
    digest: Digest = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Approve exactly this request, once. Its run continues."""
    _decide(redis_url, approval_id, "approved", digest, "", as_json=as_json)


def deny(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Reason; the model reads it.")] = "",
    digest: Digest = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Deny this request. Its run continues, and its model reads that it was refused."""
    _decide(redis_url, approval_id, "denied", digest, reason, as_json=as_json)


def _decide(
    redis_url: str | None,
    approval_id: str,
    decision: Literal["approved", "denied"],
    digest: str | None,
    reason: str,
    *,
    as_json: bool,
) -> None:
    """Raises `UserError` for a request that does not wait, or not with this digest."""
    import getpass

    from loopline.runtime.client.waiting import ApprovalConflict
    from loopline.runtime.terminal.safe_text import sanitize

    async def decide(client: Client, _: Deployment) -> PendingApproval:
        approval = await client.approval(approval_id)
        if digest is not None and (
            len(digest) < 12 or not approval.request.digest.startswith(digest)
        ):
            raise ApprovalConflict(
                f"{approval_id} waits with the digest {approval.request.digest[:12]}, not with "
                f"{digest[:64]}",
                hint="`runtime approvals ls` shows what it wants now.",
            )
        await client.decide(approval, decision, by=getpass.getuser(), reason=reason)
        return approval

    approval = run_with_client(redis_url, decide)
    if as_json:
        typer.echo(json.dumps({**approval.as_json(), "decision": decision}))
        return
    arguments = sanitize(json.dumps(approval.request.arguments, ensure_ascii=False))
    typer.echo(f"{decision}: {approval.request.name} {arguments}")
