"""llama-cpp-python's packaged server as a peer of `bench engine`."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import openai

from loopline.bench.errors import BenchError
from loopline.bench.proofs.engine.workload import Ask, Measured, Timing, closed_loop
from loopline.bench.proofs.time_limit import time_limit

START_SECONDS = 120.0


class PackagedServer:
    """`python -m llama_cpp.server` in a separate process. It decodes one request at a time; others
    wait."""

    name = "llama-cpp-python's server"
    about = "python -m llama_cpp.server, called by the openai package over HTTP"

    def __init__(self, gguf: Path, *, context: int, threads: int) -> None:
        self._gguf = gguf
        self._context = context
        self._threads = threads
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Raises `BenchError` if the server's packages are missing or it does not start."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = self._gguf.with_suffix(".server.log")
        with log.open("wb") as out:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "llama_cpp.server", "--model", str(self._gguf),
                "--port", str(port), "--n_ctx", str(self._context),
                "--n_threads", str(self._threads), "--n_threads_batch", str(self._threads),
                # Otherwise each new request cancels the current one.
                "--interrupt_requests", "false",
                stdout=out, stderr=out,
            )  # fmt: skip
        url = f"http://127.0.0.1:{port}/v1"
        self._client = openai.AsyncOpenAI(base_url=url, api_key="none", timeout=3600.0)
        late = f"llama-cpp-python's server did not answer ({log})"
        async with httpx.AsyncClient() as http, time_limit(START_SECONDS, late):
            while True:
                if self._process.returncode is not None:
                    last = log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise BenchError(
                        f"llama-cpp-python's server did not start ({' '.join(last)}); it needs: "
                        "pip install 'llama-cpp-python[server]'"
                    )
                try:
                    await http.get(f"{url}/models")
                    return
                except httpx.TransportError:
                    await asyncio.sleep(0.1)

    async def close(self) -> None:
        await self._client.close()
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def run(self, asks: Sequence[Ask], concurrency: int) -> Measured:
        return await closed_loop(asks, concurrency, self._ask)

    async def _ask(self, ask: Ask, timing: Timing) -> AsyncIterator[int]:
        stream = await self._client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": ask.text}],
            temperature=0.0,
            max_tokens=ask.max_tokens,
            stream=True,
        )
        token_count = 0
        async for chunk in stream:
            choice = chunk.choices[0]
            if choice.delta.content:
                token_count += 1
                yield 1
            if choice.finish_reason == "stop":
                yield 1  # the end of turn, which is not text
            if choice.finish_reason == "length" and token_count < ask.max_tokens:
                # Tokens that end inside a character arrive with the next one, in one chunk.
                yield ask.max_tokens - token_count
