"""Policies in use: versions, the workers that serve them, canaries, and the log of all changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.bus import Policy, WorkerPresence, live_workers, policies, pool_of
from loopline.bus.policy_log import read_log
from loopline.runtime.client.policy_changes import (
    NOT_EVALUATED,
    change,
    comparisons_of,
    describe_canary,
    describe_entry,
    describe_state,
    routers_of,
)
from loopline.runtime.dashboard.frame import Frame, number_of
from loopline.runtime.dashboard.sign_in import Viewer, require_change
from loopline.runtime.errors import InputError

LOG_ROWS = 30
WAIT_SECONDS = 5.0
"""Seconds that the page waits for the workers' reports on a change; then it shows the reports that
it has."""


@dataclass(frozen=True)
class PolicyRow:
    """A policy with its workers' reports."""

    policy: Policy
    served_by: dict[str, str]
    trial: str
    """Description of the policy's canary and the canary's result so far; empty without a canary."""


class PoliciesView:
    """Pages below `/dashboard/policies`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def routes(self) -> list[Route]:
        page, form = self._frame.page, self._frame.form
        return [
            Route("/policies", page(self._page), methods=["GET"]),
            Route("/policies/rows", page(self._rows), methods=["GET"]),
            Route("/policies/change", form(self._change), methods=["POST"]),
        ]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        return self._frame.render(
            request,
            viewer,
            "policies.html.j2",
            title="Policies",
            **await self._content(),
            pools=list(self._frame.settings.models),
        )

    async def _rows(self, request: Request, viewer: Viewer) -> Response:
        return self._frame.fragment("policy_rows.html.j2", viewer=viewer, **await self._content())

    async def _content(self) -> dict[str, Any]:
        workers = await live_workers(self._frame.bus)
        return {
            "rows": await self._table(workers),
            "routers": routers_of(workers),
            "log": await self._log(),
        }

    async def _log(self) -> list[tuple[str, ...]]:
        return [describe_entry(entry) for entry in await read_log(self._frame.bus, count=LOG_ROWS)]

    async def _table(self, workers: list[WorkerPresence]) -> list[PolicyRow]:
        stored = await policies.load_policies(self._frame.bus)
        evidence = comparisons_of(workers)
        return [
            PolicyRow(
                policy,
                {
                    worker.name: describe_state(worker.details["policies"][policy.name])
                    for worker in workers
                    if policy.name in worker.details.get("policies", {})
                },
                ""
                if policy.canary is None
                else f"version {policy.canary.version} {describe_canary(policy.canary)}: "
                + evidence.get(policy.name, {}).get("in_words", NOT_EVALUATED),
            )
            for policy in stored.policies
        ]

    async def _change(self, request: Request, viewer: Viewer, form: dict[str, str]) -> Response:
        require_change(viewer)
        name = form.get("name", "").strip()
        pools = self._frame.settings.models
        if pool_of(name) not in pools:
            raise InputError(f"there is no pool {pool_of(name)[:64]!r}; pools: {', '.join(pools)}")
        by = f"{viewer.key.name}, on the page"
        await change(self._frame.bus, name, _action(form), WAIT_SECONDS, by=by)
        return self._frame.go_to("/policies")


def _action(form: dict[str, str]) -> Callable[[Policy], Policy]:
    match form.get("action"):
        case "publish":
            weights = form.get("weights", "").strip()
            if not weights or not Path(weights).exists():
                raise InputError(f"{weights[:200]!r} does not exist on the gateway's machine")
            path = str(Path(weights).resolve())
            return lambda policy: policy.published(path, time.time())
        case "pin":
            version = number_of(form, "version")
            if version is None:
                raise InputError("a version is a number; 0 is the model without an adapter")
            return lambda policy: policy.with_version_in_use(int(version))
        case "roll_back":
            return lambda policy: policy.rolled_back()
        case "stop_canary":
            return lambda policy: policy.without_canary()
        case _:
            raise InputError("publish, pin, roll_back or stop_canary")
