"""A small HTTP API with its OpenAPI document, served by starlette."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

PET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "nullable": True},
        "friend": {"$ref": "#/components/schemas/Pet"},
    },
    "required": ["name"],
}


def _query(name: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, **more}


def document(server: str = "/v1") -> dict[str, Any]:
    """Return the document: version 3.0 with features of real ones: references, styles, several
    media types."""
    text = {"type": "string"}
    several = {"type": "array", "items": text}
    return {
        "openapi": "3.0.3",
        "info": {"title": "Town", "version": "1"},
        "servers": [{"url": server}],
        "paths": {
            "/seen/{place}": {
                "parameters": [{"$ref": "#/components/parameters/Place"}],
                "get": {
                    "operationId": "see",
                    "summary": "What the server sees.",
                    "parameters": [
                        _query("tags", several),
                        _query("ids", several, style="pipeDelimited", explode=False),
                        _query("page", {"type": "object"}, style="deepObject", explode=True),
                        _query("body", {"type": "boolean"}),
                        {"name": "X-Mood", "in": "header", "schema": text},
                        {"name": "Authorization", "in": "header", "schema": text},
                    ],
                },
                "post": {
                    "operationId": "add pet",
                    "requestBody": {"$ref": "#/components/requestBodies/Pet"},
                },
            },
            "/form": {
                "post": {
                    "operationId": "form",
                    "requestBody": {
                        "content": {
                            "application/x-www-form-urlencoded": {
                                "schema": {"type": "object", "properties": {"a": text}}
                            }
                        }
                    },
                }
            },
            "/big": {"get": {"operationId": "big"}},
            "/away": {"get": {"operationId": "away"}},
            "/hangs": {"get": {"operationId": "hangs"}},
            "/missing": {"get": {"operationId": "missing"}},
            "/picture": {"get": {}},
            "/upload": {
                "post": {
                    "operationId": "upload",
                    "requestBody": {"required": True, "content": {"multipart/form-data": {}}},
                }
            },
            "/elsewhere": {
                "servers": [{"url": "https://evil.example"}],
                "get": {"operationId": "elsewhere"},
            },
            "/cookie": {
                "get": {
                    "operationId": "cookie",
                    "parameters": [{"name": "id", "in": "cookie", "required": True}],
                }
            },
        },
        "components": {
            "parameters": {
                "Place": {"name": "place", "in": "path", "required": True, "schema": text}
            },
            "requestBodies": {
                "Pet": {
                    "required": True,
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}
                    },
                }
            },
            "schemas": {"Pet": PET},
        },
    }


async def _see(request: Request) -> Response:
    return JSONResponse(
        {
            "place": request.path_params["place"],
            "query": request.query_params.multi_items(),
            "mood": request.headers.get("x-mood"),
            "authorization": request.headers.get("authorization"),
            "kind": request.headers.get("content-type"),
            "body": (await request.body()).decode(),
        }
    )


async def _big(_: Request) -> Response:
    async def megabytes() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 1_000_000

    return StreamingResponse(megabytes(), media_type="text/plain")


async def _hangs(request: Request) -> Response:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


async def _away(_: Request) -> Response:
    return RedirectResponse("http://127.0.0.1:1/secret")


async def _missing(_: Request) -> Response:
    return JSONResponse({"detail": "no such thing"}, 404)


async def _picture(_: Request) -> Response:
    return Response(b"\x89PNG", media_type="image/png")


async def _document(request: Request) -> Response:
    return JSONResponse(document(request.query_params.get("server", "/v1")))


def town_api() -> Starlette:
    return Starlette(
        routes=[
            Route("/openapi.json", _document),
            Route("/v1/seen/{place:str}", _see, methods=["GET", "POST"]),
            Route("/v1/form", _see_form, methods=["POST"]),
            Route("/v1/big", _big),
            Route("/v1/away", _away),
            Route("/v1/hangs", _hangs),
            Route("/v1/missing", _missing),
            Route("/v1/picture", _picture),
        ]
    )


async def _see_form(request: Request) -> Response:
    return JSONResponse((await request.body()).decode())
