"""A server on this machine that answers huggingface_hub as the Hub does, for one data set."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0" * 39 + "1"


class Hub:
    """The requests of huggingface_hub: a file's head, a file, and the files of a data set."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.size: int | None = None
        """The size that heads state in place of a file's own."""
        self.refusal: tuple[int, str] | None = None
        """Status and error code of all answers."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _answer(self, *, body: bool) -> None:
                hub.asked.append(f"{self.command} {self.path}")
                status, headers, content = hub.answer(self.path)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if self.refusal is not None:
            return self.refusal[0], {"X-Error-Code": self.refusal[1]}, b""
        if path.startswith("/api/datasets/acme/sums/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                for name, content in self.files.items()
            ]
            return 200, {"Content-Type": "application/json"}, json.dumps(tree).encode()
        if path.startswith("/api/datasets/acme/sums"):
            siblings = [{"rfilename": name} for name in self.files]
            info = {"id": "acme/sums", "sha": COMMIT, "siblings": siblings}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        name = path.partition("/resolve/main/")[2]
        if not path.startswith("/datasets/acme/sums/"):
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if name not in self.files:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""
        content = self.files[name]
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        if self.size is not None:
            headers["X-Linked-Size"] = str(self.size)
        return 200, headers, content


@contextmanager
def local_hub(
    files: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[Hub]:
    """The data set `acme/sums` with these files, in place of the Hub, and an empty cache."""
    constants: Any = pytest.importorskip(
        "huggingface_hub.constants", reason="needs the extra torch"
    )
    server = Hub(files)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
