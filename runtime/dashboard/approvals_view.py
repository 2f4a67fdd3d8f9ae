"""Requests that wait for a person's approval, and the forms that decide on them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.runtime.client.waiting import ApprovalConflict, PendingApproval
from loopline.runtime.dashboard.frame import Frame
from loopline.runtime.dashboard.sign_in import Viewer, require_change
from loopline.runtime.errors import InputError

_TIME = "%Y-%m-%d %H:%M"


@dataclass(frozen=True)
class ApprovalRow:
    """A request as shown on the page."""

    id: str
    run_id: str
    agent: str
    kind: str
    name: str
    arguments: str
    digest: str
    since: str
    expires: str


class ApprovalsView:
    """Pages below `/dashboard/approvals`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def routes(self) -> list[Route]:
        page, form = self._frame.page, self._frame.form
        return [
            Route("/approvals", page(self._page), methods=["GET"]),
            Route("/approvals/rows", page(self._rows), methods=["GET"]),
            Route("/approvals/decide", form(self._decide), methods=["POST"]),
        ]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        return self._frame.render(
            request, viewer, "approvals.html.j2", title="Approvals", rows=await self._table()
        )

    async def _rows(self, request: Request, viewer: Viewer) -> Response:
        return self._frame.fragment(
            "approval_rows.html.j2", rows=await self._table(), viewer=viewer
        )

    async def _table(self) -> list[ApprovalRow]:
        return [approval_row(approval) for approval in await self._frame.client.approvals()]

    async def _decide(self, request: Request, viewer: Viewer, form: dict[str, str]) -> Response:
        """Decide on the request that the page showed, identified by its digest."""
        require_change(viewer)
        decision = {"approve": "approved", "deny": "denied"}.get(form.get("decision", ""))
        if decision is None:
            raise InputError("approve or deny")
        approval = await self._frame.client.approval(form.get("id", ""))
        if approval.request.digest != form.get("digest", ""):
            raise ApprovalConflict(
                f"{approval.id} has changed since this page was loaded: reload it"
            )
        name, key = viewer.key.name, viewer.key.id
        await self._frame.client.decide(
            approval,
            "approved" if decision == "approved" else "denied",
            by=f"{name} ({key})" if name else key,
            reason=form.get("reason", "").strip(),
        )
        # Return to the page with the form: the list, or the run's page.
        is_of_run = form.get("place") == "run"
        return self._frame.go_to(f"/runs/{approval.waiting.run_id}" if is_of_run else "/approvals")


def approval_row(approval: PendingApproval) -> ApprovalRow:
    """Return the page's row for an approval."""
    request, wait = approval.request, approval.waiting.wait
    return ApprovalRow(
        id=approval.id,
        run_id=approval.waiting.run_id,
        agent=request.agent,
        kind=request.kind,
        name=request.name,
        arguments=json.dumps(request.arguments, indent=2, ensure_ascii=False),
        digest=request.digest,
        since=time.strftime(_TIME, time.gmtime(wait.since)),
        expires=time.strftime(_TIME, time.gmtime(wait.expires)),
    )
