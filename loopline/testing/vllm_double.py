"""A small in-process server with vLLM's protocol, on the torch engine, to test the engine `vllm`.
Tests can trigger the faults that real servers show now and then.

Grammars are llguidance's, as with `--structured-outputs-config.backend guidance`, and
log-probabilities are processed. It serves these vLLM `routes`: completions, models, health, and
loading and unloading adapters.

    python -m loopline.testing.vllm_double serve MODEL --port 8000    # further options are ignored
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from loopline.agents.records import Message, SamplingParams
from loopline.agents.template_options import TemplateValue
from loopline.workers.engines.grammar.compiler import _begin  # pyright: ignore[reportPrivateUsage]
from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.local.engine import LocalEngine
from loopline.workers.engines.local.row import Job, Row
from loopline.workers.engines.protocol import Completion, Delta, EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchBackend
from loopline.workers.engines.torch.loading import LoadedModel
from loopline.workers.scripted_api.server import Listener

BASE = "base"
"""The model's name within the server."""


class _IdsModel(LoadedModel):
    """Model whose prompts are token ids: see `_request`."""

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[object],
        options: Mapping[str, TemplateValue] | None = None,
    ) -> str:
        return messages[0].content


class _IdsBackend(TorchBackend):
    def load(self) -> LoadedModel:
        return _IdsModel(**vars(super().load()))


@dataclass
class Mischief:
    """Faults that the server shows from now on."""

    dies_after: int | None = None
    """Tokens of a stream after which the whole server dies (0: answers that are not streamed)."""
    refuses_structures: bool = False
    """Whether the server answers structured outputs with 400."""
    has_guidance: bool = True
    wrong_ids: bool = False
    """Whether the server returns token ids that the model does not have."""
    wrong_prompt: bool = False
    """Whether the server returns other prompt ids than it received."""
    wrong_model: bool = False
    """Whether answers name another model."""
    late_tokens: bool = False
    """Whether tokens follow after the end of a completion."""
    raw_logprobs: bool = False
    """Whether the server behaves as with `--logprobs-mode raw_logprobs`, vLLM's default."""
    loses_end: bool = False
    """Whether streams end without the end marker."""
    refuses_sleep: bool = False
    """Whether the server behaves as without `--enable-sleep-mode` and outside development mode."""
    refuses_weights: bool = False
    """Whether the server refuses a full model."""
    hangs: bool = False
    """Whether completions and the model list get no answer, as from a server whose GPU hangs."""
    shift: float = 0.0
    """Value added to each log-probability of a given text, as other weights would change it."""


class VllmDouble:
    """`async with VllmDouble(model) as double`: a server at `double.url`."""

    def __init__(
        self, model: str, *, max_context: int | None = None, port: int = 0, name: str = BASE
    ) -> None:
        settings = ModelSettings(engine="torch", model=model, max_context=max_context)
        self.engine: LocalEngine[LoadedModel] = LocalEngine(settings, _IdsBackend)
        self.mischief = Mischief()
        self.adapters: dict[str, str] = {}
        """Folder of each adapter that is loaded now, by name."""
        self.loads: list[str] = []
        """Names of adapters in the order in which they were loaded."""
        self.asked: list[dict[str, Any]] = []
        """Bodies of completion requests."""
        self.asleep = False
        self.naps = 0
        """Number of times that the server was put to sleep."""
        self.disturbed = 0
        """Completions that were requested while the server slept."""
        self.name = name
        """Name under which the server serves its model."""
        self.pace = 0.0
        """Seconds before each token of a stream, and before an answer that is not streamed."""
        self._port = port
        self._listener: Listener | None = None
        self._serving: asyncio.Task[None] | None = None
        self._number = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def is_up(self) -> bool:
        return self._listener is not None

    async def __aenter__(self) -> Self:
        await self.engine.start()
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()
        await self.engine.close()

    async def listen(self) -> None:
        """Start serving, or start again at the same address."""
        listening = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        self._port = listening.getsockname()[1]
        config = uvicorn.Config(
            Starlette(routes=self.routes()), log_level="critical", access_log=False,
            lifespan="off", ws="none", timeout_graceful_shutdown=0,
        )  # fmt: skip
        self._listener = Listener(config)
        self._serving = asyncio.create_task(self._listener.serve(sockets=[listening]))
        await self._listener.ready.wait()

    def routes(self) -> list[Route]:
        """Routes of the server."""
        return [
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/v1/load_lora_adapter", self._load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", self._unload, methods=["POST"]),
            Route("/sleep", self._sleep, methods=["POST"]),
            Route("/wake_up", self._wake_up, methods=["POST"]),
            Route("/health", self._health),
        ]

    async def die(self) -> None:
        """Stop as after `kill -9`: connections break, and loaded adapters are gone."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        for server in listener.servers:
            server.close()
        for connection in list(listener.server_state.connections):
            transport: Any = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        listener.should_exit = listener.force_exit = True
        await self.forget_adapters()

    async def forget_adapters(self) -> None:
        """Unload all adapters, as a restart does."""
        for name in list(self.adapters):
            del self.adapters[name]
            await self.engine.unload_adapter(name)

    # Routes.

    async def _health(self, request: Request) -> Response:
        return Response()

    async def _sleep(self, request: Request) -> Response:
        if self.mischief.refuses_sleep:
            return _error(404, "Not Found")
        self.asleep = True
        self.naps += 1
        return JSONResponse({"status": "sleeping", "level": 1})

    async def _wake_up(self, request: Request) -> Response:
        self.asleep = False
        return JSONResponse({"status": "awake", "tags": None})

    async def _models(self, request: Request) -> Response:
        await self._hang()
        context = self.engine.capabilities.max_context
        base = {"id": self.name, "object": "model", "parent": None, "max_model_len": context}
        loaded = [{"id": name, "object": "model", "parent": self.name} for name in self.adapters]
        return JSONResponse({"object": "list", "data": [base, *loaded]})

    async def _load(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        name, path = body["lora_name"], body["lora_path"]
        if name in self.adapters:
            return _error(400, f"The lora adapter '{name}' has already been loaded.")
        try:
            await self.engine.load_adapter(name, path, 1)
        except EngineError as error:
            return _error(500, str(error))
        self.adapters[name] = path
        self.loads.append(name)
        return Response(f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload(self, request: Request) -> Response:
        name = orjson.loads(await request.body())["lora_name"]
        if name not in self.adapters:
            return _error(404, f"The lora adapter '{name}' cannot be found.")
        del self.adapters[name]
        await self.engine.unload_adapter(name)
        return Response(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _hang(self) -> None:
        while self.mischief.hangs and self._listener is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _is_disturbed(self) -> bool:
        self.disturbed += self.asleep
        return self.asleep

    async def _completions(self, request: Request) -> Response:
        body: dict[str, Any] = orjson.loads(await request.body())
        self.asked.append(body)
        await self._hang()
        if self._is_disturbed():
            return _error(500, "the server sleeps")
        model = str(body["model"])
        if model != self.name and model not in self.adapters:
            return _error(404, f"The model `{model}` does not exist.")
        try:
            generate_request = self._request(body, model)
            if body.get("prompt_logprobs") is not None:
                return await self._scores(body, generate_request)
            matcher = await asyncio.to_thread(self._matcher, body)
        except EngineError as error:
            return _error(400, str(error))
        except ValueError as error:
            return _error(400, f"Grammar error: {error}")
        events = self._events(generate_request, matcher)
        if body.get("stream"):
            return StreamingResponse(events, media_type="text/event-stream")
        chunks = [orjson.loads(event[6:]) async for event in events if b"[DONE]" not in event]
        if self._listener is None:
            return Response(status_code=500)
        await asyncio.sleep(self.pace)
        return JSONResponse(_joined(chunks))

    def _request(self, body: dict[str, Any], model: str) -> GenerateRequest:
        """Turn the prompt into an earlier turn's ids, and its text into that turn's message."""
        loaded: Any = self.engine._loaded  # pyright: ignore[reportPrivateUsage]
        prompt: list[int] = body["prompt"]
        if max(prompt) >= loaded.vocabulary:
            raise ValueError(f"Token id {max(prompt)} is out of vocabulary")
        if body.get("temperature", 1.0) > 2:
            raise ValueError("temperature must be in [0, 2]")
        self._number += 1
        structure = body.get("structured_outputs") or {}
        return GenerateRequest(
            id=f"cmpl-{self._number}",
            messages=(Message(role="user", content=loaded.codec.decode(prompt)),),
            previous_ids=tuple(prompt),
            sampling=SamplingParams(
                temperature=body.get("temperature", 1.0), top_p=body.get("top_p", 1.0),
                top_k=max(0, body.get("top_k", 0)), max_tokens=body.get("max_tokens", 16),
                stop=tuple(body.get("stop", ())), seed=body.get("seed"), n=body.get("n", 1),
                frequency_penalty=body.get("frequency_penalty", 0.0),
                presence_penalty=body.get("presence_penalty", 0.0),
            ),
            top_logprobs=body.get("logprobs") or 0,
            json_schema=structure.get("json"),
            adapter=None if model == self.name else model,
            stream=True,
        )  # fmt: skip

    def _matcher(self, body: dict[str, Any]) -> Matcher | None:
        structure = body.get("structured_outputs")
        if structure is None:
            return None
        if self.mischief.refuses_structures:
            raise ValueError("structured outputs are not for this model")
        grammars: Any = self.engine._grammars  # pyright: ignore[reportPrivateUsage]
        if "json" in structure:
            return cast(Matcher, grammars.matcher(structure["json"]))
        if not self.mischief.has_guidance:
            raise ValueError("Invalid grammar specification.")
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_lark(structure["grammar"])
        return _begin(grammar, grammars._vocabulary(), "the grammar")

    async def _scores(self, body: dict[str, Any], generate_request: GenerateRequest) -> Response:
        ids: list[int] = body["prompt"]
        scores = await self.engine.score(ids, generate_request.adapter)
        shift = self.mischief.shift
        places = [{token: {"logprob": s + shift}} for token, s in zip(ids[1:], scores, strict=True)]
        choice = {"index": 0, "finish_reason": "length", "prompt_logprobs": [None, *places]}
        content = orjson.dumps(
            {"model": body["model"], "choices": [choice]}, option=orjson.OPT_NON_STR_KEYS
        )
        return Response(content, media_type="application/json")

    async def _events(
        self, generate_request: GenerateRequest, matcher: Matcher | None
    ) -> AsyncGenerator[bytes]:
        """Events of the stream, one token each."""
        engine, mischief = self.engine, self.mischief
        thread: Any = engine._running  # pyright: ignore[reportPrivateUsage]
        adapters = engine._adapters  # pyright: ignore[reportPrivateUsage]
        model = "other" if mischief.wrong_model else generate_request.adapter or self.name
        with adapters.use(generate_request.adapter) as adapter:
            job = Job(
                generate_request,
                asyncio.Queue(),
                generate_request.sampling.seed or 0,
                adapter,
                matcher,
            )
            thread.add(job)
            places = [0] * generate_request.sampling.n
            left = generate_request.sampling.n
            sent = 0
            try:
                while left:
                    event = await job.events.get()
                    if isinstance(event, EngineError):
                        yield _data({"error": {"message": str(event), "code": 400}})
                        return
                    row = job.rows[event.index]
                    choice: dict[str, Any]
                    if isinstance(event, Delta):
                        if self.pace and generate_request.stream:
                            await asyncio.sleep(self.pace)
                        choice = self._choice(row, places[event.index])
                        places[event.index] += 1
                    else:
                        assert isinstance(event, Completion)
                        left -= 1
                        reason = "length" if event.finish_reason == "length" else "stop"
                        late = [row.output_ids[0]] * 3 if mischief.late_tokens else []
                        choice = _empty_choice(row.index, late) | {"finish_reason": reason}
                    choice["prompt_token_ids"] = None
                    if sent == 0:
                        wrong = [1] if mischief.wrong_prompt else []
                        choice["prompt_token_ids"] = [*wrong, *row.prompt.ids]
                    if mischief.dies_after is not None and sent >= mischief.dies_after:
                        mischief.dies_after = None
                        await self.die()
                        return
                    sent += 1
                    yield _data({"model": model, "choices": [choice]})
            finally:
                if left:
                    thread.abandon(job)
            cached = {"cached_tokens": job.rows[0].cached}
            usage = {"prompt_tokens": len(job.rows[0].prompt.ids), "prompt_tokens_details": cached}
            if not mischief.loses_end:
                yield _data({"model": model, "choices": [], "usage": usage})
                yield b"data: [DONE]\n\n"

    def _choice(self, row: Row, place: int) -> dict[str, Any]:
        token = row.output_ids[place] + (10**6 if self.mischief.wrong_ids else 0)
        logprobs = row.raw_logprobs if self.mischief.raw_logprobs else row.logprobs
        top: dict[str, float] = {f"token_id:{token}": logprobs[place]}
        if row.alternatives:
            scale = row.sampling.temperature if self.mischief.raw_logprobs else 1.0
            top |= {f"token_id:{t}": value * scale for t, value in row.alternatives[place]}
        choice = _empty_choice(row.index, [token])
        choice["logprobs"] = {"token_logprobs": [logprobs[place]], "top_logprobs": [top]}
        return choice


def _empty_choice(index: int, ids: list[int]) -> dict[str, Any]:
    none = [0.0] * len(ids)
    return {
        "index": index, "text": "", "finish_reason": None, "token_ids": ids,
        "logprobs": {"token_logprobs": none, "top_logprobs": [{} for _ in ids]},
    }  # fmt: skip


def _joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Join a stream's chunks into one answer."""
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for chunk in chunks:
        if "error" in chunk:
            return chunk
        usage = chunk.get("usage") or usage
        for piece in chunk["choices"]:
            whole = choices.setdefault(piece["index"], _empty_choice(piece["index"], []))
            whole["token_ids"] += piece["token_ids"]
            for name in ("token_logprobs", "top_logprobs"):
                whole["logprobs"][name] += piece["logprobs"][name]
            whole["finish_reason"] = piece["finish_reason"] or whole["finish_reason"]
            if piece["prompt_token_ids"]:
                whole["prompt_token_ids"] = piece["prompt_token_ids"]
    model = next((chunk["model"] for chunk in chunks), BASE)
    return {"model": model, "choices": [choices[key] for key in sorted(choices)], "usage": usage}


def _data(value: object) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _error(status: int, message: str) -> Response:
    return JSONResponse(
        {"error": {"message": message, "type": "BadRequestError", "code": status}}, status
    )


def write_program(folder: Path) -> Path:
    """Write a program that `vllm.python` may point to instead of an environment with vLLM; it
    starts this double."""
    program = folder / "vllm-python"
    # Arguments after `-m vllm.entrypoints.cli.main`.
    arguments = shlex.join([sys.executable, "-P", "-m", "loopline.testing.vllm_double"])
    program.write_text(f'#!/bin/sh\nshift 2\nexec {arguments} "$@"\n')
    program.chmod(0o755)
    return program


async def _serve(model: str, port: int, name: str) -> None:
    async with VllmDouble(model, port=port, name=name):
        await asyncio.Event().wait()


def main() -> None:
    """Start the double with the arguments of `vllm serve`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", default=BASE)
    options, _ = parser.parse_known_args()
    asyncio.run(_serve(options.model, options.port, options.served_model_name))


if __name__ == "__main__":
    main()
