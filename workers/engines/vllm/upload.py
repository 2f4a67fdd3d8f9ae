"""Uploads weights to the machine of a server that does not share a folder with the workers.

The folder there is served by any WebDAV server (nginx, Caddy, rclone, wsgidav). Files are put into
a folder with a random name, which is then moved to its own (RFC 4918: MKCOL, PUT, MOVE without
overwriting). So a server never reads half of an upload, even if several workers upload the same
weights, or one of them is killed meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx2
import structlog

from loopline.workers.engines.openai.address import Address, require_key
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.server_settings import UploadSettings
from loopline.workers.engines.vllm.adapters import ServedWeights
from loopline.workers.engines.vllm.admin import admin_client, answer_of

log = structlog.get_logger("loopline.workers.engines.vllm")

_KEY_OF = "the key of the upload folder"
_PART_BYTES = 1 << 20
_UNFINISHED = "unfinished"
"""Start of the names of folders that are not moved to their own name yet."""
_RETRYABLE = {408, 425, 429, 500, 502, 503, 504}


class Uploads:
    """The folder for weights on a server's machine. Opens nothing before the first request."""

    def __init__(self, settings: UploadSettings, server_url: str) -> None:
        """`server_url`: address of the server that reads the folder. Raises EngineError `auth` if
        the key is missing."""
        host = urlsplit(server_url).hostname or ""
        url = settings.url.replace("{host}", f"[{host}]" if ":" in host else host)
        self._root = url.strip().rstrip("/")
        self._folder = settings.folder.rstrip("/")
        self._settings = settings
        self._name = f"the upload folder at {Address.of(self._root).name}"
        key = "" if settings.key_env is None else require_key(settings.key_env, _KEY_OF)
        user, colon, password = key.partition(":")
        token = {"Authorization": f"Bearer {key}"} if key and not colon else {}
        self._client = admin_client(self._root, token, (user, password) if colon else None)

    async def close(self) -> None:
        await self._client.aclose()

    async def place(self, weights: ServedWeights) -> str:
        """Upload these weights, unless they are there already; returns their path for the server.
        Raises EngineError: `bad_request` if they are refused, `unavailable` (retryable) without an
        answer."""
        name = _folder_name(weights)
        if not await self.has(weights):
            temporary = f"{_UNFINISHED}-{secrets.token_hex(8)}"
            await self._make_folder(temporary)
            try:
                for file in weights.files:
                    await self._put(f"{temporary}/{quote(file)}", Path(weights.path) / file)
                await self._move(temporary, weights)
            finally:
                await self._delete_quietly(temporary)
        return f"{self._folder}/{name}"

    async def has(self, weights: ServedWeights) -> bool:
        """Whether these weights are there completely. Raises the errors of `place`."""
        file = f"{quote(_folder_name(weights))}/{quote(weights.files[0])}"
        answer = await self._ask("HEAD", file, expect={200, 204, 404, 410})
        return answer.is_success

    async def remove(self, weights: ServedWeights) -> None:
        """Delete these weights, if they are there. Raises the errors of `place`."""
        await self._ask("DELETE", f"{quote(_folder_name(weights))}/", expect={200, 204, 404, 410})

    async def _make_folder(self, name: str) -> None:
        answer = await self._ask("MKCOL", f"{name}/", expect={201, 409})
        if answer.status_code == HTTPStatus.CONFLICT:
            raise EngineError(
                f"{self._name}: {self._shown(name)} cannot be made, because its parent folder does "
                "not exist (409)",
                kind="bad_request",
            )

    async def _put(self, place: str, file: Path) -> None:
        size = (await asyncio.to_thread(file.stat)).st_size
        await self._ask(
            "PUT", place, expect={200, 201, 204}, headers={"Content-Length": str(size)},
            content=_parts(file),
        )  # fmt: skip

    async def _move(self, temporary: str, weights: ServedWeights) -> None:
        destination = f"{self._root}/{quote(_folder_name(weights))}/"
        try:
            await self._ask(
                "MOVE", f"{temporary}/", expect={201, 204},
                headers={"Destination": destination, "Overwrite": "F"},
            )  # fmt: skip
        except EngineError:
            # Another worker may have uploaded the same weights meanwhile. The answer is then 412
            # or, if both move at the same time, whatever the server does about its own race.
            if not await self.has(weights):
                raise

    async def _delete_quietly(self, temporary: str) -> None:
        """Delete what a failed upload has left; after a complete one there is nothing."""
        try:
            await self._ask("DELETE", f"{temporary}/", expect={200, 204, 404, 410})
        except EngineError as error:  # it only takes up room there
            log.warning("an unfinished upload stays there", why=str(error))

    async def _ask(
        self,
        method: str,
        place: str,
        *,
        expect: set[int],
        headers: dict[str, str] | None = None,
        content: AsyncGenerator[bytes] | None = None,
    ) -> httpx2.Response:
        with answer_of(self._name):
            answer = await self._client.request(
                method, f"{self._root}/{place}", headers=headers, content=content
            )
        if answer.status_code in expect:
            return answer
        raise EngineError(
            f"{self._name} refused {method} {self._shown(place)} ({answer.status_code}"
            f"{self._hint(answer.status_code)})",
            kind="bad_request",
            retryable=answer.status_code in _RETRYABLE,
        )

    def _shown(self, place: str) -> str:
        return f"{urlsplit(self._root).path}/{place}"

    def _hint(self, status: int) -> str:
        match status:
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                variable = self._settings.key_env
                return f": check the key in {variable}" if variable else ": set upload.key_env"
            case HTTPStatus.METHOD_NOT_ALLOWED | HTTPStatus.NOT_IMPLEMENTED:
                return ": a WebDAV server that may write there is needed"
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                return ": raise that server's limit for the size of a body"
            case HTTPStatus.INSUFFICIENT_STORAGE:
                return ": its disk is full"
            case HTTPStatus.NOT_FOUND:
                return ": the folder of upload.url does not exist"
            case _:
                return ""


def _folder_name(weights: ServedWeights) -> str:
    """The fingerprint at its end keeps two policies apart whose names differ in a slash only."""
    return weights.name.replace("/", "_")


async def _parts(file: Path) -> AsyncGenerator[bytes]:
    with file.open("rb") as handle:
        while part := await asyncio.to_thread(handle.read, _PART_BYTES):
            yield part
