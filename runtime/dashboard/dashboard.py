"""The dashboard's routes."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard import sign_in
from loopline.runtime.dashboard.approvals_view import ApprovalsView
from loopline.runtime.dashboard.benchmarks_view import BenchmarksView
from loopline.runtime.dashboard.cost_view import CostView
from loopline.runtime.dashboard.frame import HEADERS, PATH, Frame
from loopline.runtime.dashboard.policies_view import PoliciesView
from loopline.runtime.dashboard.run_view import RunView
from loopline.runtime.dashboard.runs_view import RunsView
from loopline.runtime.dashboard.sign_in import Refused, Viewer
from loopline.runtime.dashboard.trainings_view import TrainingsView
from loopline.runtime.dashboard.workers_view import WorkersView
from loopline.runtime.errors import InputError

_PACKAGE = "loopline.runtime.dashboard"
_STATIC = {
    "dashboard.css": ("loopline.runtime.dashboard", "text/css; charset=utf-8"),
    "charts.js": ("loopline.runtime.dashboard", "text/javascript; charset=utf-8"),
    "dashboard.js": ("loopline.runtime.dashboard", "text/javascript; charset=utf-8"),
    "page.css": ("loopline.runtime.terminal.pages", "text/css; charset=utf-8"),
    "run_page.css": ("loopline.runtime.observe.run_page", "text/css; charset=utf-8"),
    "run_page.js": ("loopline.runtime.observe.run_page", "text/javascript; charset=utf-8"),
}


def dashboard(client: Client, settings: Settings, state: StateDirectory) -> Mount:
    """Return all routes below `/dashboard`."""
    frame = Frame(client, settings)
    sign_in_pages = SignInPages(frame)
    routes = [*sign_in_pages.routes()]
    for view in (
        RunsView(frame, state),
        RunView(frame, state),
        ApprovalsView(frame),
        WorkersView(frame, state),
        PoliciesView(frame),
        BenchmarksView(frame),
        TrainingsView(frame, state),
        CostView(frame, state),
    ):
        routes += view.routes()
    # After all other routes: a signed-in viewer finds the way back.
    routes.append(Route("/{place:path}", frame.page(sign_in_pages.not_found), methods=["GET"]))
    return Mount(PATH, routes=routes)


class SignInPages:
    """Routes for signing in and out, and for the files that pages load."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def routes(self) -> list[Route]:
        return [
            Route("/", self._first, methods=["GET"]),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._frame.form(self._sign_out), methods=["POST"]),
            Route("/static/{name}", self._static, methods=["GET"]),
        ]

    async def _first(self, request: Request) -> Response:
        return RedirectResponse(f"{PATH}/runs", 303, headers=HEADERS)

    async def not_found(self, request: Request, viewer: Viewer) -> Response:
        """Answer requests for a path without another route."""
        place: str = request.path_params["place"]
        if place.rstrip("/") != place:
            return self._frame.go_to(f"/{place.strip('/')}")
        return self._frame.error(request, viewer, 404, f"there is no page {place[:200]!r} here")

    async def _sign_in(self, request: Request) -> Response:
        """Sign in with a key, or with a ticket of `runtime dashboard`."""
        key_digest: str | None = None
        message = ""
        if request.method == "POST":
            try:
                sign_in.require_same_origin(request)
                key = (await self._frame.read_form(request)).get("key", "")
            except (Refused, InputError) as error:
                message = str(error)
            else:
                key_digest = sign_in.key_digest_of(key) if key else None
                message = "This key is not known here, was revoked, or may not see the dashboard."
        elif (ticket := request.query_params.get("ticket")) is not None:
            key_digest = await sign_in.use_ticket(self._frame.bus, ticket)
            message = (
                "This link was used, or is older than a minute: `runtime dashboard` makes one."
            )
        cookie = None if key_digest is None else await sign_in.sign_in(self._frame.bus, key_digest)
        if cookie is None:
            status = 403 if message else 200
            return self._frame.render(
                request, None, "sign_in.html.j2", title="Sign in", status=status, message=message
            )
        answer = self._frame.go_to("/runs")
        answer.set_cookie(
            sign_in.COOKIE,
            cookie,
            max_age=sign_in.SESSION_SECONDS,
            path=PATH,
            secure=request.url.scheme == "https",
            httponly=True,
            # Not `strict`: the link of `runtime dashboard` may be opened from a web-based terminal.
            samesite="lax",
        )
        return answer

    async def _sign_out(self, request: Request, viewer: Viewer, form: dict[str, str]) -> Response:
        await sign_in.sign_out(self._frame.bus, request)
        answer = self._frame.go_to("/sign-in")
        answer.delete_cookie(sign_in.COOKIE, path=PATH)
        return answer

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        package, media_type = _STATIC[name]
        folder = files(package)
        if package == _PACKAGE:
            folder = folder / "static"
        headers = {**HEADERS, "cache-control": "no-cache"}
        return Response(folder.joinpath(name).read_bytes(), headers=headers, media_type=media_type)
