"""An MCP server over HTTP that can forget its sessions, like a restarted one."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

REFUSAL = {"status": 404, "text": "Session not found"}


@dataclass
class ForgetfulServer:
    """`refusal` is the answer to a request with an unknown session."""

    refusal: dict[str, Any] = field(default_factory=lambda: REFUSAL)
    redirect: int | None = None
    received: list[Any] = field(default_factory=list[Any])
    packed: bool = False
    answer: str = "done"
    sessions: set[str] = field(default_factory=set[str])
    numbers: Any = field(default_factory=itertools.count)

    def forget(self) -> None:
        self.sessions.clear()

    def app(self) -> Starlette:
        routes = [Route("/mcp", self._answer, methods=["GET", "POST", "DELETE"])]
        if self.redirect is not None:
            routes[0] = Route("/mcp/", self._answer, methods=["GET", "POST", "DELETE"])
            routes.append(Route("/mcp", self._elsewhere, methods=["GET", "POST", "DELETE"]))
        return Starlette(routes=routes)

    async def _elsewhere(self, _: Request) -> Response:
        return RedirectResponse("/mcp/", self.redirect or 307)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        method, number = message["method"], message.get("id")
        if method == "initialize":
            session = f"session-{next(self.numbers)}"
            self.sessions.add(session)
            return self._result(number, {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            }, {"mcp-session-id": session})  # fmt: skip
        if request.headers.get("mcp-session-id") not in self.sessions:
            if "body" in self.refusal:
                return JSONResponse(self.refusal["body"], self.refusal["status"])
            return Response(self.refusal["text"], self.refusal["status"])
        if number is None:
            return Response(status_code=202)
        if method == "tools/list":
            tool = {"name": "good", "inputSchema": {"type": "object"}}
            return self._result(number, {"tools": [tool]}, {})
        self.received.append(message["params"]["arguments"])
        return self._result(number, {"content": [{"type": "text", "text": self.answer}]}, {})

    def _result(self, number: Any, result: Any, headers: dict[str, str]) -> Response:
        whole = {"jsonrpc": "2.0", "id": number, "result": result}
        if not self.packed:
            return JSONResponse(whole, headers=headers)
        body = gzip.compress(json.dumps(whole).encode())
        packed = {**headers, "content-encoding": "gzip"}
        return Response(body, headers=packed, media_type="application/json")
