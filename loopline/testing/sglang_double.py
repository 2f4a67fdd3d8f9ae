"""A small in-process server with SGLang's own protocol, on the torch engine, to test engine
`sglang`.

It follows SGLang's published sources (`srt/entrypoints/http_server.py`, `srt/managers/io_struct.py`
and `tokenizer_manager.py`, autumn 2026); it has not been compared with a running SGLang server. It
behaves as with `--grammar-backend llguidance --enable-deterministic-inference --enable-lora
--enable-memory-saver`. It serves these SGLang `routes`: `/generate` with `input_ids`, `/v1/models`,
`/model_info`, `/server_info`, `/health`, and the routes for adapters, weights and memory.

    python -m loopline.testing.sglang_double --model-path MODEL --port 8000    # others are ignored
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from loopline.testing.vllm_double import BASE, VllmDouble
from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.protocol import EngineError, GenerateRequest

WHOLE = "weights"
"""Name that the in-process engine uses for a full model that has replaced its original one."""

Item = dict[str, Any]
"""One prompt of a request: its `sampling_params`, its `rid`, and the fields that all prompts share.
"""


class SglangDouble(VllmDouble):
    """`async with SglangDouble(model) as double`: a server at `double.url`."""

    def __init__(self, model: str, *, max_context: int | None = None, port: int = 0) -> None:
        super().__init__(model, max_context=max_context, port=port)
        self.model = model
        self.version = "default"
        """Version of the weights that answer requests."""
        self.exchanges: list[str] = []
        """Versions of the weights, in order of arrival."""
        self.aborted: list[str] = []
        """Ids of aborted requests."""
        self.incremental = False
        """Whether events contain only new tokens, as with `--incremental-streaming-output`."""
        self.deterministic = True
        """Whether seeds are respected, as with `--enable-deterministic-inference`."""

    @property
    def url(self) -> str:
        return super().url.removesuffix("/v1")

    def routes(self) -> list[Route]:
        return [
            Route("/generate", self._generate, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/model_info", self._model_info),
            Route("/server_info", self._server_info),
            Route("/health", self._health),
            Route("/load_lora_adapter", self._load, methods=["POST"]),
            Route("/unload_lora_adapter", self._unload, methods=["POST"]),
            Route("/update_weights_from_disk", self._update_weights, methods=["POST"]),
            Route("/release_memory_occupation", self._sleep, methods=["POST"]),
            Route("/resume_memory_occupation", self._wake_up, methods=["POST"]),
            Route("/abort_request", self._abort, methods=["POST"]),
        ]

    async def forget_adapters(self) -> None:
        """Return to the state of a restarted server."""
        self.version = "default"
        await super().forget_adapters()

    # Routes.

    async def _model_info(self, request: Request) -> Response:
        return JSONResponse(
            {"model_path": self.model, "is_generation": True, "weight_version": self.version}
        )

    async def _server_info(self, request: Request) -> Response:
        return JSONResponse(
            {"enable_deterministic_inference": self.deterministic, "version": "0.5.23"}
        )

    async def _load(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        name = body["lora_name"]
        if name in self.adapters:
            return self._adapter_answer(f"LoRA with name {name} already exists. Loaded LoRAs: …")
        try:
            await self.engine.load_adapter(name, body["lora_path"], 1)
        except EngineError as error:
            return self._adapter_answer(str(error))
        self.adapters[name] = body["lora_path"]
        self.loads.append(name)
        return self._adapter_answer("")

    async def _unload(self, request: Request) -> Response:
        name = orjson.loads(await request.body())["lora_name"]
        if name not in self.adapters:
            return self._adapter_answer(f"LoRA with name {name} does not exist. Loaded LoRAs: …")
        del self.adapters[name]
        await self.engine.unload_adapter(name)
        return self._adapter_answer("")

    def _adapter_answer(self, error: str) -> Response:
        answer = {"success": not error, "error_message": error, "loaded_adapters": self.adapters}
        return JSONResponse(answer, 400 if error else 200)

    async def _update_weights(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        path, version = body["model_path"], body["weight_version"]
        if self.mischief.refuses_weights:
            return JSONResponse({"success": False, "message": "Failed to load weights"}, 400)
        if path != self.model:
            try:
                await self.engine.load_adapter(WHOLE, path, len(self.exchanges) + 1)
            except EngineError as error:
                return JSONResponse({"success": False, "message": str(error)}, 400)
        self.version = version
        self.exchanges.append(version)
        return JSONResponse({"success": True, "message": "Succeeded to update model weights."})

    async def _abort(self, request: Request) -> Response:
        self.aborted.append(orjson.loads(await request.body())["rid"])
        return Response()

    async def _generate(self, request: Request) -> Response:
        body: dict[str, Any] = orjson.loads(await request.body())
        self.asked.append(body)
        await self._hang()
        if self._is_disturbed():
            return _error("the server sleeps", 500)
        items = _items(body)
        if body["sampling_params"] == {"max_new_tokens": 0, "temperature": 1.0}:
            return await self._score(items[0])
        events = self._all_events(items)
        if body.get("stream"):
            return StreamingResponse(_sse(events), media_type="text/event-stream")
        last: dict[int, Any] = {}
        async for event in events:
            if "error" in event:
                return _error(event["error"]["message"], 400)
            last[event.get("index", 0)] = event
        if self._listener is None:
            return Response(status_code=500)
        await asyncio.sleep(self.pace)
        answers = [last[index] for index in sorted(last)]
        return JSONResponse(answers if isinstance(body["rid"], list) else answers[0])

    async def _score(self, item: Item) -> Response:
        ids: list[int] = item["input_ids"]
        try:
            request, _ = await self._prepare(item)
            scores = await self.engine.score(ids, request.adapter)
        except (EngineError, ValueError) as error:
            return _error(str(error), 400)
        shift = self.mischief.shift
        pairs = zip(scores, ids[1:], strict=True)
        places = [[None, ids[0], None], *([s + shift, token, None] for s, token in pairs)]
        meta = self._meta(item, {"type": "length", "length": 0})
        meta["input_token_logprobs"] = places
        return JSONResponse({"output_ids": [], "meta_info": meta})

    # One prompt.

    async def _prepare(self, item: Item) -> tuple[GenerateRequest, Matcher | None]:
        """Raises EngineError and ValueError for requests that SGLang refuses."""
        adapter, params = item.get("lora_path"), item["sampling_params"]
        if adapter is not None and adapter not in self.adapters:
            raise ValueError(
                f"The following requested LoRA adapters are not loaded: {adapter}\n"
                f"Loaded adapters: {list(self.adapters)}."
            )
        structure: dict[str, Any] = {}
        if "json_schema" in params:
            structure["json"] = json.loads(params["json_schema"])
        if "ebnf" in params:
            from llguidance import grammar_from

            grammar_from("ebnf", params["ebnf"])
            structure["grammar"] = params["ebnf"]
        seed = params.get("sampling_seed")
        if not self.deterministic:
            self._number += 1
            seed = self._number
        body = {
            "prompt": item["input_ids"],
            "temperature": params["temperature"],
            "top_p": params.get("top_p", 1.0),
            "top_k": params.get("top_k", -1),
            "max_tokens": params["max_new_tokens"] or 1,
            "stop": params.get("stop", ()),
            "seed": seed,
            "frequency_penalty": params.get("frequency_penalty", 0.0),
            "presence_penalty": params.get("presence_penalty", 0.0),
            "logprobs": item.get("top_logprobs_num"),
            "structured_outputs": structure or None,
        }
        request = self._request(body, BASE if adapter is None else adapter)
        if adapter is None and self.version != "default":
            request = request.model_copy(update={"adapter": WHOLE})
        return request, await asyncio.to_thread(self._matcher, body)

    def _meta(self, item: Item, finish: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": item["rid"],
            "finish_reason": finish,
            "prompt_tokens": len(item["input_ids"]),
            "weight_version": "other" if self.mischief.wrong_model else self.version,
        }

    async def _item_events(self, item: Item) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of one prompt: those of the vLLM double, in SGLang's format."""
        try:
            request, matcher = await self._prepare(item)
        except (EngineError, ValueError) as error:
            yield {"error": {"message": str(error)}}
            return
        ids: list[int] = []
        logprobs: list[list[Any]] = []
        tops: list[list[list[Any]]] = []
        count = item.get("top_logprobs_num") or 0
        finish: dict[str, Any] | None = None
        cached = sent = 0
        async for event in self._events(request, matcher):
            if b"[DONE]" in event:
                break
            value = orjson.loads(event[6:])
            if "error" in value:
                yield value
                return
            usage = value.get("usage")
            if usage:
                cached = usage["prompt_tokens_details"]["cached_tokens"]
            for choice in value["choices"]:
                ids += choice["token_ids"]
                for token, logprob, top in zip(
                    choice["token_ids"],
                    choice["logprobs"]["token_logprobs"],
                    choice["logprobs"]["top_logprobs"],
                    strict=True,
                ):
                    logprobs.append([logprob, token, None])
                    ranked = sorted(top.items(), key=lambda pair: -pair[1])[:count]
                    tops.append([[v, int(name[9:]), None] for name, v in ranked])
                if choice["finish_reason"] is not None:
                    finish = {"type": choice["finish_reason"], "length": len(ids)}
            if finish is not None and usage is None:
                continue  # the last event reports the finish reason and the cached prompt tokens
            begin = sent if self.incremental and item.get("stream") else 0
            meta = self._meta(item, finish) | {
                "completion_tokens": len(ids),
                "cached_tokens": cached,
                "output_token_logprobs": logprobs[begin:],
                "output_token_logprobs_length": len(ids),
            }
            if count:
                meta["output_top_logprobs"] = tops[begin:]
            sent = len(ids)
            yield {"output_ids": ids[begin:], "meta_info": meta}

    async def _all_events(self, items: Sequence[Item]) -> AsyncGenerator[dict[str, Any]]:
        """Events of all prompts, in order of arrival."""
        if len(items) == 1:
            async for event in self._item_events(items[0]):
                yield event
            return
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        async def pour(index: int, item: Item) -> None:
            try:
                async for event in self._item_events(item):
                    queue.put_nowait(event if "error" in event else {**event, "index": index})
            finally:
                queue.put_nowait(None)

        tasks = [asyncio.create_task(pour(at, item)) for at, item in enumerate(items)]
        left = len(tasks)
        try:
            while left:
                event = await queue.get()
                left -= event is None
                if event is not None:
                    yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _items(body: dict[str, Any]) -> list[Item]:
    """Return the prompts of a request."""
    if not isinstance(body["rid"], list):
        return [body]
    names = ("input_ids", "sampling_params", "rid", "lora_path")
    lists = {name: body[name] for name in names if name in body}
    return [
        {**body, **{name: values[at] for name, values in lists.items()}}
        for at in range(len(body["rid"]))
    ]


async def _sse(events: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    async for event in events:
        yield b"data: " + orjson.dumps(event) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _error(message: str, status: int) -> Response:
    return JSONResponse({"error": {"message": message}}, status)


def write_program(folder: Path) -> Path:
    """Write a program that `sglang.python` may point to instead of an environment with SGLang."""
    program = folder / "sglang-python"
    # Arguments after `-m sglang.launch_server`.
    arguments = shlex.join([sys.executable, "-P", "-m", "loopline.testing.sglang_double"])
    program.write_text(f'#!/bin/sh\nshift 2\nexec {arguments} "$@"\n')
    program.chmod(0o755)
    return program


async def _serve(model: str, port: int) -> None:
    async with SglangDouble(model, port=port):
        await asyncio.Event().wait()


def main() -> None:
    """Start the double with the arguments of `python -m sglang.launch_server`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()
    asyncio.run(_serve(options.model_path, options.port))


if __name__ == "__main__":
    main()
