"""The openai engine's streams: how they are split, assembled, and released."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence

import pytest

from loopline.workers.engines.openai import connection
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.openai.sse import sse_lines
from loopline.workers.engines.protocol import Completion, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.scripted_api import ScriptedServer
from tests.workers.engines.asking import DELEGATE, ask, completions, request
from tests.workers.engines.endpoints import counted, replying
from tests.workers.engines.test_openai_engine import endpoint


def stream_of(deltas: Iterable[object], finish_reason: str) -> bytes:
    """Return the body of a stream with one chunk for each delta."""
    chunks: list[dict[str, object]] = [
        *({"choices": [{"index": 0, "delta": delta}]} for delta in deltas),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 20}},
    ]
    body = "".join(f"data: {json.dumps(item)}\n\n" for item in chunks) + "data: [DONE]\n\n"
    return body.encode()


async def streamed_calls(pieces: Sequence[Sequence[dict[str, object]]]) -> Completion:
    """Return the completion with the calls assembled from pieces, chunk by chunk."""
    async with replying(stream_of(({"tool_calls": item} for item in pieces), "tool_calls")) as url:
        engine = OpenAIEngine(ModelSettings(engine="openai", model="m", base_url=url))
        await engine.start()
        [completion] = await completions(engine, request(tools=[DELEGATE], stream=True))
        await engine.close()
    return completion


async def test_a_tool_call_that_arrives_in_pieces_is_assembled() -> None:
    """OpenAI streams like this: id and name once, arguments split anywhere, two alternating
    calls."""
    pieces: list[dict[str, object]] = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"fir'}},
        {"index": 1, "id": "b", "function": {"name": "say", "arguments": '{"word": "'}},
        {"index": 0, "function": {"arguments": 'st": 1, "second"'}},
        {"index": 1, "function": {"arguments": "Gr\u00f6\u00dfe"}},
        {"index": 1, "function": {"arguments": '"}'}},
        {"index": 0, "function": {"arguments": ": 2}"}},
    ]
    completion = await streamed_calls([[piece] for piece in pieces])
    assert completion.finish_reason == "tool_calls"
    assert [(call.id, call.name, call.arguments) for call in completion.tool_calls] == [
        ("a", "add", {"first": 1, "second": 2}),
        ("b", "say", {"word": "Größe"}),
    ]


def piece(arguments: str, *, id: str | None = None, name: str | None = None) -> dict[str, object]:
    """Return a piece of a call from an endpoint without indexes."""
    return {"id": id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    "chunks",
    [
        [[piece('{"n": 1}', id="a", name="add")], [piece('{"n": 2}', id="b", name="say")]],
        [[piece('{"n": 1}', id="a", name="add"), piece('{"n": 2}', id="b", name="say")]],
        [
            [piece("", id="a", name="add")],
            [piece('{"n"')],
            [piece(": 1}", id="")],
            [piece('{"n":', id="b", name="say")],
            [piece(" 2}")],
        ],
        [
            [piece("", id="a", name="add"), piece("", id="b", name="say")],
            [piece('{"n": 1}'), piece('{"n": 2}')],
        ],
        [
            [piece("", id="a", name="add")],
            [piece('{"n":', id="b", name="say")],
            [piece('{"n": 1}', id="a")],
            [piece(" 2}", id="b")],
        ],
    ],
)
async def test_calls_without_an_index_are_distinguished_by_their_ids(
    chunks: Sequence[Sequence[dict[str, object]]],
) -> None:
    completion = await streamed_calls(chunks)
    assert [(call.id, call.name, call.arguments) for call in completion.tool_calls] == [
        ("a", "add", {"n": 1}),
        ("b", "say", {"n": 2}),
    ]


async def test_other_calls_run_between_chunks_that_arrived_together() -> None:
    words = [f"{number} " for number in range(300)]
    async with replying(stream_of(({"content": word} for word in words), "stop")) as url:
        engine = OpenAIEngine(ModelSettings(engine="openai", model="m", base_url=url))
        await engine.start()
        answer = asyncio.create_task(completions(engine, request(stream=True)))
        turns = 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        assert answer.result()[0].text == "".join(words)
        assert turns > len(words)
        await engine.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_serves_many_requests(stream: bool) -> None:
    async with ScriptedServer() as server, counted(server.url) as (url, connections):
        engine = OpenAIEngine(ModelSettings(engine="openai", model="m", base_url=url))
        await engine.start()
        for _ in range(10):
            await ask(engine, stream=stream)
        assert len(connections) == 1
        for _ in range(3):
            await asyncio.gather(*(ask(engine, stream=stream) for _ in range(6)))
        assert len(connections) <= 6
        await engine.close()


@pytest.mark.parametrize("mark", ["data: ", "data:"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_a_stream_is_split_only_at_its_line_ends(mark: str, end: str) -> None:
    """JSON allows U+2028, U+2029 and U+0085 within a string; they do not end a line here."""
    text = "a\u2028b\u2029c\u0085d"
    usage = '{"prompt_tokens": 1, "completion_tokens": 2}'
    lines = (
        f'{{"choices": [{{"index": 0, "delta": {{"content": "{text}"}}}}]}}',
        '{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}',
        f'{{"choices": [], "usage": {usage}}}',
        "[DONE]",
    )
    body = "".join(f"{mark}{line}{end}{end}" for line in lines).encode()
    async with replying(body) as url:
        engine = OpenAIEngine(
            ModelSettings(engine="openai", model="m", base_url=url, max_attempts=1)
        )
        await engine.start()
        [completion] = await completions(engine, request(stream=True))
        await engine.close()
    assert completion.text == text
    assert completion.usage.completion == 2


async def test_an_endless_line_is_garbage_and_does_not_fill_memory() -> None:
    async def parts() -> AsyncGenerator[bytes]:
        while True:
            yield b"x" * 1_000_000

    with pytest.raises(EngineError, match="without the end of a line"):
        async for _ in sse_lines(parts()):
            pass


@pytest.mark.parametrize("stream", [True, False])
async def test_an_endless_answer_is_garbage_and_does_not_fill_memory(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 100_000)
    line = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
    async with replying(line * 10_000) as url:
        engine = OpenAIEngine(
            ModelSettings(engine="openai", model="m", base_url=url, max_attempts=1)
        )
        await engine.start()
        with pytest.raises(EngineError, match="more than 100000 bytes"):
            await completions(engine, request(stream=stream))
        await engine.close()


async def test_every_attempt_of_every_worker_uses_one_key() -> None:
    generate = request(idempotency_key="call@1")
    async with endpoint("server_error", idempotent=True) as (engine, server):
        await completions(engine, generate)  # its second try is answered
        await completions(engine, generate)  # of a successor, whose first try is answered
        assert list(server.served.arrivals_by_key.values()) == [3]
        assert list(server.served.answers_by_content().values()) == [1]


async def test_an_unreadable_answer_is_requested_once_more_with_its_key() -> None:
    repeated = request(idempotency_key="call")
    broken = ("malformed_json",) * 3
    async with endpoint(*broken, idempotent=True, settings={"max_attempts": 1}) as (engine, server):
        for _ in broken:  # each repeats the same request
            with pytest.raises(EngineError):
                await completions(engine, repeated)
        await completions(engine, repeated)
        assert list(server.served.arrivals_by_key.values()) == [2, 2]


async def test_a_different_question_has_a_different_key() -> None:
    async with endpoint(idempotent=True) as (engine, server):
        for text in ("What is 1 + 1?", "What is 1 + 2?"):
            await completions(engine, request(text, idempotency_key="call@1"))
        assert len(server.served.arrivals_by_key) == 2
