"""Workers with the versions that they run, and waiting messages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.runtime.client.deployment import Deployment
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard.frame import Frame
from loopline.runtime.dashboard.sign_in import Viewer
from loopline.runtime.observe.status import collect


class WorkersView:
    """Pages below `/dashboard/workers`."""

    def __init__(self, frame: Frame, state: StateDirectory) -> None:
        self._frame = frame
        self._state = state

    def routes(self) -> list[Route]:
        page = self._frame.page
        return [
            Route("/workers", page(self._page), methods=["GET"]),
            Route("/workers/rows", page(self._rows), methods=["GET"]),
        ]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        return self._frame.render(
            request, viewer, "workers.html.j2", title="Workers", body=await self._body()
        )

    async def _rows(self, request: Request, viewer: Viewer) -> Response:
        return self._frame.fragment("worker_rows.html.j2", status=await self._status())

    async def _body(self) -> object:
        return self._frame.part("worker_rows.html.j2", status=await self._status())

    async def _status(self) -> object:
        running = self._state.running()
        profile = running.profile if running else ""
        deployment = Deployment(self._frame.settings, self._state, running, profile)
        return await collect(deployment, self._frame.bus)
