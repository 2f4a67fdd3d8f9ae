"""MCP servers, over pipes and over HTTP, well-behaved and not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

pytest.importorskip("mcp", reason="needs make install")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.bus.tasks import end
from loopline.workers.tool_sources.sources import ToolSources
from tests.workers.tool_sources.forgetful_server import ForgetfulServer
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import TOWN_COMMAND, error_of, joined, raw, source, text_of
from tests.workers.tool_sources.town_server import town

Connection = Callable[..., AbstractAsyncContextManager[ToolSources]]
ROOT = str(Path(__file__).parents[3])
TOKEN = "tok-4711-secret"


@asynccontextmanager
async def over_pipes(**values: object) -> AsyncGenerator[ToolSources]:
    # The server gets only its allowed variables, including this checkout's search path.
    mcp = {"command": TOWN_COMMAND, "cwd": ROOT, "env": ["TOWN_TOKEN", "PYTHONPATH"]}
    environ = {"TOWN_TOKEN": TOKEN, "PYTHONPATH": os.environ.get("PYTHONPATH") or ROOT}
    async with joined(environ, town=source(mcp=mcp, **values)) as sources:
        yield sources


@asynccontextmanager
async def over_http(**values: object) -> AsyncGenerator[ToolSources]:
    async with (
        listening(town().streamable_http_app()) as url,
        joined(town=source(mcp={"url": f"{url}/mcp"}, **values)) as sources,
    ):
        yield sources


@pytest.mark.parametrize("connection", [over_pipes, over_http])
async def test_a_server_s_tools_are_listed_and_called_and_their_answers_truncated(
    connection: Connection,
) -> None:
    async with connection(max_output_chars=100, timeout_seconds=5) as sources:
        specs = {spec.name: spec for spec in sources.specs}
        assert specs["town__add"].description == "Add two numbers."
        assert specs["town__add"].parameters["required"] == ["a", "b"]
        assert await text_of(sources, "town__add", a=2, b=40) == "42"
        assert await text_of(sources, "town__population", town="Oslo") == '{\n  "population": 4\n}'
        assert "a: 'x' is not of type 'integer'" in await error_of(sources, "town__add", a="x", b=1)
        assert "invalid arguments" in await error_of(sources, "town__fails", why=10**5_000)
        assert "lost its head" in await error_of(sources, "town__fails", why="lost its head")
        assert await text_of(sources, "town__picture") == "look:\n[image/png, 300 bytes: not shown]"
        long = await sources.call("town__repeats", {"text": "ab", "times": 5_000})
        assert long == {"result": "ab" * 50, "truncated": True, "full_chars": 10_000}


@pytest.mark.parametrize("connection", [over_pipes, over_http])
async def test_a_server_can_request_neither_a_completion_nor_user_input(
    connection: Connection,
) -> None:
    async with connection(timeout_seconds=5) as sources:
        for name in ("town__asks_the_model", "town__asks_the_user"):
            answer = await sources.call(name, {})
            assert list(answer) == ["error"], answer
            assert "took longer" not in str(answer)


async def test_a_hanging_call_is_also_cancelled_at_the_server() -> None:
    async with over_pipes(timeout_seconds=0.2) as sources:
        assert "took longer than 0.2 s" in await error_of(sources, "town__hangs")
        async with asyncio.timeout(5):
            while await text_of(sources, "town__cancelled_calls") != "hangs":
                pass


async def test_an_answer_cannot_add_callable_tools() -> None:
    async with over_http() as sources:
        before = sources.specs
        assert "you may now call town__transfer" in await text_of(sources, "town__obey")
        assert "town offers no tool town__transfer" in await error_of(
            sources, "town__transfer", amount=1
        )
        assert sources.specs == before


async def test_only_allowed_tools_are_offered_and_called() -> None:
    async with over_http(allow=["add", "pop*"]) as sources:
        assert {spec.name for spec in sources.specs} == {"town__add", "town__population"}
        assert "offers no tool" in await error_of(sources, "town__obey")


async def test_a_dead_server_is_restarted_and_its_call_reports_the_failure(tmp_path: Path) -> None:
    async with joined(some=raw("dies", str(tmp_path / "died"))) as sources:
        assert "which may have taken effect: it exited" in await error_of(sources, "some__act")
        assert await text_of(sources, "some__act") == "done"


async def test_a_lingering_server_is_ended_despite_repeated_stops_of_its_worker(
    tmp_path: Path,
) -> None:
    pid_path = tmp_path / "pid"

    async def serve(is_joined: asyncio.Event) -> None:
        async with joined(some=raw("lingers", str(pid_path))):
            is_joined.set()
            await asyncio.Event().wait()

    is_joined = asyncio.Event()
    serving = asyncio.create_task(serve(is_joined))
    await asyncio.wait_for(is_joined.wait(), 30)
    server = int(pid_path.read_text())
    os.kill(server, 0)
    await end([serving])
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_a_lingering_server_dies_with_its_killed_worker(tmp_path: Path) -> None:
    pid_path = tmp_path / "pid"
    program = textwrap.dedent(f"""
        import asyncio, uvloop  # as workers run
        from tests.workers.tool_sources.joined import joined, raw

        async def serve():
            async with joined(some=raw("lingers", {str(pid_path)!r})):
                print("begun", flush=True)
                await asyncio.Event().wait()

        uvloop.run(serve())
    """)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as worker:
        assert worker.stdout is not None
        assert b"begun\n" in iter(worker.stdout.readline, b"")
        server = psutil.Process(int(pid_path.read_text()))
        worker.kill()
    server.wait(timeout=10)


async def test_a_process_sees_its_given_variables_and_an_answer_never_shows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTHER_SECRET", "not for servers")
    async with over_pipes() as sources:
        assert await text_of(sources, "town__environment", variable="OTHER_SECRET") == "not set"
        assert await text_of(sources, "town__environment", variable="TOWN_TOKEN") == "***"


async def test_a_token_is_sent_over_http_and_never_shown() -> None:
    environ = {"TOWN_TOKEN": TOKEN}
    async with listening(town().streamable_http_app()) as url:
        settings = source(mcp={"url": f"{url}/mcp"}, bearer_env="TOWN_TOKEN")
        async with joined(environ, town=settings) as sources:
            assert await text_of(sources, "town__authorization") == "Bearer ***"


async def test_two_calls_of_a_lost_session_rejoin_once_and_each_is_made_once() -> None:
    server = ForgetfulServer()
    async with (
        listening(server.app()) as url,
        joined(s=source(mcp={"url": f"{url}/mcp"})) as sources,
    ):
        server.forget()
        calls = (sources.call("s__good", {"n": n}) for n in range(2))
        assert await asyncio.gather(*calls) == [{"result": "done"}] * 2
        assert sorted(got["n"] for got in server.received) == [0, 1]
        assert len(server.sessions) == 1


async def test_a_call_without_a_server_is_made_when_the_server_returns() -> None:
    server = ForgetfulServer()
    async with listening(server.app()) as url:
        port = urlsplit(url).port
        sources = await (entered := joined(s=source(mcp={"url": f"{url}/mcp"}))).__aenter__()
    try:
        assert port is not None
        call = asyncio.create_task(sources.call("s__good", {"n": 1}))
        async with asyncio.timeout(10):
            while not sources.state()["s"]["trouble"]:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        server.forget()
        async with listening(server.app(), port):
            assert await call == {"result": "done"}
    finally:
        await entered.__aexit__(None, None, None)
    assert server.received == [{"n": 1}]


async def test_compressed_answers_and_refusals_of_an_http_server_are_understood() -> None:
    server = ForgetfulServer(refusal={"status": 401, "text": "No key, no session."}, packed=True)
    async with listening(server.app()) as url:
        settings = source(mcp={"url": f"{url}/mcp"}, max_response_bytes=100_000)
        async with joined(s=settings) as sources:
            assert await text_of(sources, "s__good") == "done"
            server.forget()
            message = "s answered: HTTP 401: No key, no session."
            assert message in await error_of(sources, "s__good")
            server.sessions |= {"session-0"}
            server.answer = "x" * 1_000_000  # compressed to a thousand bytes
            assert "more than 100000 bytes" in await error_of(sources, "s__good")


async def test_a_server_that_listens_again_later_is_rejoined() -> None:
    async with listening(town().streamable_http_app()) as url:
        port = urlsplit(url).port
        settings = source(mcp={"url": f"{url}/mcp"}, timeout_seconds=10)
        sources = await (entered := joined(town=settings)).__aenter__()
    try:
        assert port is not None
        assert list(await sources.call("town__add", {"a": 1, "b": 1})) == ["error"]
        async with listening(town().streamable_http_app(), port):
            async with asyncio.timeout(10):
                while "error" in (answer := await sources.call("town__add", {"a": 1, "b": 1})):
                    pass
            assert answer == {"result": "2"}
    finally:
        await entered.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        ("batch", "done"),
        ("version_1", "done"),
        ("latin", "caf\ufffd"),
        ("greets_first", "done"),
        ("same_page", "done"),
        ("php", "done"),
        (
            "pictures",
            "[image/png, 3 bytes: not shown]\n[resource r: file:///x]\n"
            "[binary, 3 bytes: not shown]\n[hologram: not shown]\ntext",
        ),
    ],
)
async def test_a_server_of_another_dialect_is_understood(mode: str, answer: str) -> None:
    async with joined(some=raw(mode)) as sources:
        async with asyncio.timeout(20):
            while not sources.specs:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        assert [spec.name for spec in sources.specs] == ["some__act"]
        assert await text_of(sources, "some__act") == answer
        left_out = sources.state()["some"]["left_out"]
    assert len(left_out) == (2 if mode == "php" else 0)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("garbage", "101 lines that are not messages"),
        ("flood", "a message of more than 2000000 bytes"),
        ("chatter", "more than 5000 unrequested messages in 60 s"),
    ],
)
async def test_a_server_that_floods_its_output_is_ended_and_reported(
    mode: str, message: str
) -> None:
    async with joined(bad=raw(mode, max_response_bytes=2_000_000)) as sources:
        assert message in await error_of(sources, "bad__act")
        assert [spec.name for spec in sources.specs] == ["bad__act"]


async def test_an_answer_of_fifty_megabytes_over_http_is_not_read() -> None:
    async with over_http(max_response_bytes=1_000_000) as sources:
        assert "town" in await error_of(sources, "town__repeats", text="x", times=50_000_000)
        assert await text_of(sources, "town__add", a=1, b=1) == "2"


async def test_an_answer_without_text_is_still_an_answer() -> None:
    async with joined(bad=raw("odd", timeout_seconds=0.3)) as sources:
        answer = await sources.call("bad__act", {})
        assert len(answer) == 1


async def test_hostile_schemas_and_names_are_simplified_or_excluded_by_name() -> None:
    async with joined(bad=raw("schemas")) as sources:
        specs = {spec.name: spec for spec in sources.specs}
        left_out = "\n".join(sources.state()["bad"]["left_out"])
    assert specs["bad__fine"].description == "It does."
    assert specs["bad__regex"].parameters["properties"] == {"x": {"type": "string"}}
    assert specs["bad__tree"].parameters["properties"] == {
        "child": {"properties": {"child": {}, "name": {"type": "string"}}, "type": "object"},
        "name": {"type": "string"},
    }
    assert "bomb: its schema has more than 1000 parts" in left_out
    assert "elsewhere: it refers to another document: https://evil.example/s" in left_out
    assert "fine: its name bad__fine is taken by 'fine'" in left_out
    assert len([name for name in specs if name.startswith("bad__fi_ne_")]) == 2
    [long] = [name for name in specs if len(name) == 64]
    assert len(specs[long].description) == 1_024


async def test_a_paged_list_is_read_to_its_end_and_an_endless_one_is_not() -> None:
    async with joined(some=raw("pages"), bad=raw("endless")) as sources:
        names = [spec.name for spec in sources.specs]
    assert [name for name in names if name.startswith("some")] == [
        f"some__t{page}-{n}" for page in range(3) for n in range(2)
    ]
    assert len([name for name in names if name.startswith("bad")]) == 128


async def test_cursors_may_be_numbers() -> None:
    async with joined(some=raw("numbered")) as sources:
        assert len(sources.specs) == 6


async def test_half_a_surrogate_pair_costs_only_its_tool() -> None:
    async with joined(s=raw("surrogates")) as sources:
        state = sources.state()["s"]
        assert await text_of(sources, "s__fine") == "done"
        assert [spec.name for spec in sources.specs] == ["s__fine"]
    assert state["left_out"] == [
        "field: its schema is not JSON: half a surrogate pair",
        "name?: its schema is not JSON: half a surrogate pair",
    ]


async def test_a_refusal_that_names_no_request_is_one_with_status_200_too() -> None:
    error = {"code": -32001, "message": "Session not found"}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    server = ForgetfulServer(refusal={"status": 200, "body": body})
    async with (
        listening(server.app()) as url,
        joined(s=source(mcp={"url": f"{url}/mcp"}, timeout_seconds=20)) as sources,
    ):
        assert await text_of(sources, "s__good") == "done"
        server.forget()
        assert await text_of(sources, "s__good") == "done"


async def test_a_server_that_refuses_to_be_joined_is_quoted() -> None:
    async def refuse(_: Request) -> Response:
        return Response("No such key.", 401)

    app = Starlette(routes=[Route("/mcp", refuse, methods=["GET", "POST", "DELETE"])])
    async with (
        listening(app) as url,
        joined(s=source(mcp={"url": f"{url}/mcp"})) as sources,
    ):
        assert sources.state()["s"]["trouble"] == "MCPError: HTTP 401: No such key."


async def test_unreachable_servers_are_reported_and_the_others_work() -> None:
    async with joined(
        silent=raw("silent", connect_seconds=0.3),
        crashes=raw("crashes"),
        missing=source(mcp={"command": ["no-such-program-here"]}),
        keyless=source(mcp={"command": ["true"], "env": ["NOBODY_SETS_THIS"]}),
        some=raw("pages"),
    ) as sources:
        state = sources.state()
        assert "longer than 0.3 s" in state["silent"]["trouble"]
        assert state["crashes"]["trouble"].endswith("; it said: no database")
        assert "FileNotFoundError" in state["missing"]["trouble"]
        assert "NOBODY_SETS_THIS is not set" in await error_of(sources, "keyless__x")
        assert await text_of(sources, "some__t0-0") == "done"
