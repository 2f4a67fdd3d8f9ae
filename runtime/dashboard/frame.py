"""The frame of all pages: the viewer, protection of forms, errors, and the parts around a page.

Pages are HTML from templates, and forms are plain forms: everything works without the script, which
only keeps the page up to date.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from loopline.bus import Bus, BusError
from loopline.bus.connection import OUTAGE
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import Settings
from loopline.runtime.dashboard import sign_in
from loopline.runtime.dashboard.sign_in import NotSignedIn, Refused, Viewer
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.terminal.pages.templates import render

PATH = "/dashboard"
_PACKAGE = "loopline.runtime.dashboard"
MAX_FIELDS = 100
"""Maximum number of fields in a form."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: browsers would then send `null` as the origin of a form.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}

PageView = Callable[[Request, Viewer], Awaitable[Response]]
FormView = Callable[[Request, Viewer, dict[str, str]], Awaitable[Response]]


class Frame:
    """State that all views share: the client, the settings and the page frame."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings

    @property
    def bus(self) -> Bus:
        return self.client.bus

    def page(self, view: PageView) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler for signed-in viewers; anyone else is sent to the sign-in page."""

        async def handle(request: Request) -> Response:
            try:
                viewer = await sign_in.viewer_of(self.bus, request)
            except NotSignedIn:
                return self._to_sign_in(request)
            return await self._answered(request, viewer, view(request, viewer))

        return handle

    def form(self, view: FormView) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler for forms of the viewer's session that come from our pages."""

        async def handle(request: Request) -> Response:
            try:
                viewer = await sign_in.viewer_of(self.bus, request)
            except NotSignedIn:
                return self._to_sign_in(request)

            async def checked() -> Response:
                sign_in.require_same_origin(request)
                form = await self.read_form(request)
                sign_in.require_form_token(viewer, form)
                return await view(request, viewer, form)

            return await self._answered(request, viewer, checked())

        return handle

    async def _answered(
        self, request: Request, viewer: Viewer, answer: Awaitable[Response]
    ) -> Response:
        """Return the answer with its server time, or a page that explains the error."""
        began = time.perf_counter()
        response = await self._with_error_pages(request, viewer, answer)
        seconds = time.perf_counter() - began
        response.headers["server-timing"] = f"page;dur={seconds * 1000:.1f}"
        return response

    async def _with_error_pages(
        self, request: Request, viewer: Viewer, answer: Awaitable[Response]
    ) -> Response:
        try:
            return await answer
        except Refused as error:
            return self.error(request, viewer, 403, str(error))
        except OUTAGE as error:
            return self.error(
                request, viewer, 503, f"Redis does not answer ({type(error).__name__}); try again."
            )
        except (UserError, BusError) as error:
            status = 404 if "Unknown" in type(error).__name__ else 400
            return self.error(request, viewer, status, str(error))

    def render(
        self,
        request: Request,
        viewer: Viewer | None,
        template: str,
        *,
        title: str,
        status: int = 200,
        **values: object,
    ) -> Response:
        """Render a page within the frame of all pages."""
        body = self.part(template, viewer=viewer, path=PATH, **values)
        page = render(
            _PACKAGE,
            "templates/frame.html.j2",
            title=title,
            body=body,
            path=PATH,
            viewer=viewer,
            current=request.url.path.removeprefix(PATH).split("/")[1:2],
        )
        return HTMLResponse(str(page), status, headers=HEADERS)

    def part(self, template: str, **values: object) -> Markup:
        """Render a part of a page."""
        return render(_PACKAGE, f"templates/{template}", **values)

    def fragment(self, template: str, **values: object) -> Response:
        """Return a part of a page as a separate answer, which the script inserts into the page."""
        return HTMLResponse(str(self.part(template, path=PATH, **values)), headers=HEADERS)

    def go_to(self, place: str) -> Response:
        """Redirect to the page that shows the result of a form."""
        return RedirectResponse(PATH + place, 303, headers=HEADERS)

    def error(self, request: Request, viewer: Viewer, status: int, message: str) -> Response:
        """Return a page that states what was not done, and why."""
        return self.render(
            request, viewer, "error.html.j2", title="Not done", status=status, message=message
        )

    def _to_sign_in(self, request: Request) -> Response:
        if request.headers.get("x-fragment"):
            return Response(status_code=401, headers=HEADERS)
        return RedirectResponse(f"{PATH}/sign-in", 303, headers=HEADERS)

    async def read_form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form; of several fields with the same name, the last. Raises
        `InputError`."""
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > sign_in.MAX_FORM_BYTES:
                raise InputError(f"the form has more than {sign_in.MAX_FORM_BYTES} bytes")
        text = body.decode(errors="replace")
        try:
            return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError as error:
            raise InputError(f"the form has more than {MAX_FIELDS} fields") from error


def number_of(form: Mapping[str, Any], name: str) -> float | None:
    """Parse a number from a form or a URL; None if it is empty. Raises `InputError`."""
    text = str(form.get(name, "")).strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{name.replace('_', ' ')}: {text[:40]!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise InputError(f"{name.replace('_', ' ')}: {text[:40]!r} is not a number")
    return value


def new_form_id() -> str:
    """Return a new id for a form, so that a form that is sent several times counts once."""
    return secrets.token_hex(16)
