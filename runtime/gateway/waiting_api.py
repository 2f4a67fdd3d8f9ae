"""`/v1/runs/{id}/signals` and `/v1/approvals`: signals and approvals over HTTP."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.runtime.client.run_records import RunUnknown, run_of
from loopline.runtime.client.waiting import ApprovalConflict
from loopline.runtime.gateway.api_keys import ApiKey
from loopline.runtime.gateway.errors import ApiError, validated
from loopline.runtime.gateway.http import Http, json_response
from loopline.runtime.gateway.service import Service
from loopline.runtime.gateway.wire_model import WireModel


class _Body(WireModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class SendSignal(_Body):
    """Body of `POST /v1/runs/{id}/signals/{name}`."""

    value: JsonValue = None
    """Value that the run receives."""
    id: str | None = Field(default=None, min_length=1, max_length=128)
    """Id of the signal; a signal that is sent again with the same id counts once."""


class DecideApproval(_Body):
    """Body of `POST /v1/approvals/{id}`."""

    decision: Literal["approve", "deny"]
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the request from `GET /v1/approvals`; only this request is approved."""
    reason: str = Field(default="", max_length=1_000)
    """Reason for the decision; the model reads it."""


class WaitingApi:
    """Handlers of the routes."""

    def __init__(self, service: Service, http: Http) -> None:
        self._client = service.client
        self._http = http

    def routes(self) -> list[Route]:
        return [
            Route("/v1/runs/{id}/signals/{name}", self.signal, methods=["POST"]),
            Route("/v1/approvals", self.list, methods=["GET"]),
            Route("/v1/approvals/{id}", self.decide, methods=["POST"]),
        ]

    async def signal(self, request: Request) -> Response:
        """Send a signal to a run of the caller."""
        caller = await self._http.caller(request)
        params = validated(SendSignal, await self._http.body(request))
        run_id, name = request.path_params["id"], request.path_params["name"]
        state = await self._client.bus.run_state(run_id)
        if state.state == "missing" or run_of(state).account != caller.id:
            raise RunUnknown(f"the bus has no run {run_id[:64]!r}")
        sent = await self._client.signal(
            run_id, name, params.value, signal_id=params.id, by=_label(caller)
        )
        return json_response({"object": "signal", "name": name, "status": sent.value}, 202)

    async def list(self, request: Request) -> Response:
        """Return all requests that wait for approval."""
        _require_approver(await self._http.caller(request))
        approvals = [approval.as_json() for approval in await self._client.approvals()]
        return json_response({"object": "list", "data": approvals})

    async def decide(self, request: Request) -> Response:
        caller = await self._http.caller(request)
        _require_approver(caller)
        params = validated(DecideApproval, await self._http.body(request))
        approval = await self._client.approval(request.path_params["id"])
        if approval.request.digest != params.digest:
            raise ApprovalConflict(
                f"{approval.id} waits with other arguments than those you decided on: review them"
            )
        decision = "approved" if params.decision == "approve" else "denied"
        await self._client.decide(approval, decision, by=_label(caller), reason=params.reason)
        return json_response({"object": "approval", "id": approval.id, "decision": decision})


def _label(caller: ApiKey) -> str:
    """Return the name of the caller in the journal."""
    return f"{caller.name} ({caller.id})" if caller.name else caller.id


def _require_approver(caller: ApiKey) -> None:
    """Check that the caller may approve. Raises `ApiError` 403."""
    if not caller.approves:
        raise ApiError(
            403,
            "This key may not approve: `runtime keys create NAME --approves` makes one that may.",
            code="approval_not_allowed",
        )
