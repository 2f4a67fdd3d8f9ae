"""A fast path for nearly all requests, which skips the router and the middleware of the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]
Failure = Callable[[Request, Exception], Awaitable[Response]]


class ShortCut:
    """Wraps an application that also has these routes."""

    def __init__(
        self,
        app: ASGIApp,
        posts: Mapping[str, Endpoint],
        failures: Mapping[type[Exception], Failure],
    ) -> None:
        """`posts`: handlers of POST requests by path. `failures`: the application's error handlers,
        including the one for `Exception`; such an error is raised again, for the server's log."""
        self._app = app
        self._posts = posts
        self._failures = failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = None
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self._posts.get(scope["path"])
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        scope["endpoint"], scope["path_params"] = endpoint, {}
        request, defect = Request(scope, receive, send), None
        try:
            response = await endpoint(request)
        except Exception as error:  # noqa: BLE001 - each has its answer
            kind = next(kind for kind in type(error).__mro__ if kind in self._failures)
            response = await self._failures[kind](request, error)
            defect = error if kind is Exception else None
        await response(scope, receive, send)
        if defect is not None:
            raise defect


def handlers(
    failures: Mapping[type[Exception], Failure],
) -> dict[type[Exception], ExceptionHandler]:
    """Return the failure handlers with the type that Starlette expects."""
    return dict(failures)
