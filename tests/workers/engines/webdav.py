"""A real WebDAV server (wsgidav) with one folder, as on the machine of a model server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from cheroot import wsgi
from wsgidav.wsgidav_app import WsgiDAVApp

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class WebDav:
    """The folder, the address, and the requests so far as `METHOD path`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.requests: list[str] = []
        self.before: Callable[[str, str], tuple[int, str] | None] = lambda _method, _path: None
        """Called with each request; a status and its text answer it instead of the server."""

    @property
    def names(self) -> list[str]:
        """Names of the folders that are there."""
        return sorted(path.name for path in self.folder.iterdir())

    def sent(self, method: str) -> list[str]:
        return [request for request in self.requests if request.startswith(f"{method} ")]


@contextmanager
def webdav(folder: Path, *, user: str = "", password: str = "") -> Generator[WebDav]:
    """Serve a folder at `/adapters`. Everybody may write without a user."""
    folder.mkdir(parents=True)
    app = WsgiDAVApp(
        {
            "provider_mapping": {"/adapters": str(folder)},
            "http_authenticator": {"accept_digest": False, "default_to_digest": False},
            "simple_dc": {"user_mapping": {"*": {user: {"password": password}} if user else True}},
            "logging": {"enable": False},
            "verbose": 0,
        }
    )
    server = wsgi.Server(("127.0.0.1", 0), _watched(cast(App, app), lambda: dav))
    server.prepare()
    dav = WebDav(folder, f"http://127.0.0.1:{server.bind_addr[1]}/adapters")
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield dav
    finally:
        server.stop()
        thread.join()


def _watched(app: App, dav: Callable[[], WebDav]) -> App:
    def answer(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        dav().requests.append(f"{method} {path}")
        other = dav().before(method, path)
        if other is None:
            return app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{other[0]} {other[1]}", [("Content-Length", "0")])
        return [b""]

    return answer
