"""The openai engine against real third-party servers, each in its own process: llama-cpp-python,
`transformers serve` (both on a micro model), and LiteLLM's proxy in front of the scripted
server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loopline.agents.records import Message, ToolCall
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import (
    CALCULATE,
    DELEGATE,
    QUESTION,
    ask,
    completions,
    deltas,
    events,
    failure,
    request,
    user,
)
from tests.workers.engines.real_servers import (
    LITELLM_FOLDER,
    LITELLM_KEY,
    RealServer,
    free_port,
    litellm_command,
    llama_cpp_command,
    require,
    running,
    scripted_command,
    transformers_command,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""The first test of a server waits for its start."""

MICRO = Path(__file__).parents[3] / "workers/micro_models/slm"
SHORT = {"max_tokens": 24}


@asynccontextmanager
async def engine_at(server: RealServer, **settings: object) -> AsyncGenerator[OpenAIEngine]:
    engine = OpenAIEngine(
        ModelSettings.model_validate(
            {"engine": "openai", "model": "micro", "base_url": server.url, "max_attempts": 1,
             **settings}
        )
    )  # fmt: skip
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def history() -> list[Message]:
    call = ToolCall(id="c1", name="calculate", arguments={"expression": "12 * 7 + 5"})
    return [
        user(QUESTION),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="89", tool_call_id="c1"),
    ]


async def cancelled_in_a_stream(engine: OpenAIEngine) -> None:
    """A cancelled request ends as cancelled whatever its server was doing; the next one is
    served."""
    generate_request = request(sampling={"max_tokens": 400, "temperature": 1.0}, stream=True)
    waiting = asyncio.create_task(failure(engine, generate_request))
    await asyncio.sleep(0)
    await engine.cancel(generate_request.id)
    assert (await asyncio.wait_for(waiting, 30)).kind == "cancelled"


@pytest.fixture(scope="session")
def llama_cpp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    require("llama_cpp", "starlette_context", remedy="make .venv/.servers")
    from loopline.trainers.export.gguf import export_gguf
    from loopline.trainers.export.precision import Precision

    folder = tmp_path_factory.mktemp("llama-cpp-server")
    export_gguf(MICRO, folder / "slm.gguf", Precision.F16)
    port = free_port()
    command = llama_cpp_command(folder / "slm.gguf", port)
    with running(command, port, folder / "log", health="/v1/models") as server:
        yield server


@pytest.fixture(scope="session")
def transformers_serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    require("transformers", "fastapi", "openai", remedy="make .venv/.servers")
    port, log = free_port(), tmp_path_factory.mktemp("transformers-serve") / "log"
    command = transformers_command(MICRO, port)
    with running(command, port, log, health="/health", HF_HUB_OFFLINE="1") as server:
        yield server


@pytest.fixture(scope="session")
def litellm_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    if not LITELLM_FOLDER.is_dir():
        pytest.skip("LiteLLM's proxy not installed: make .venv/litellm")
    folder, behind, port = tmp_path_factory.mktemp("litellm"), free_port(), free_port()
    (folder / "config.yaml").write_text(
        "model_list:\n- model_name: micro\n  litellm_params:\n    model: openai/scripted\n"
        f"    api_base: http://127.0.0.1:{behind}/v1\n    api_key: none\n"
    )
    scripted = scripted_command(behind)
    command = litellm_command(folder / "config.yaml", port)
    environment = {
        "LITELLM_MASTER_KEY": LITELLM_KEY,
        # Without it, the proxy looks up the prices of all models on the network.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONPATH": str(LITELLM_FOLDER),
    }
    with (
        running(scripted, behind, folder / "scripted", health="/v1/models"),
        running(command, port, folder / "log", health="/health/liveliness", **environment) as s,
    ):
        yield s


class TestLlamaCppServer:
    @pytest.fixture
    def server(self, llama_cpp_server: RealServer) -> RealServer:
        return llama_cpp_server

    async def test_answers_stop_strings_logprobs_and_token_counts_work(
        self, server: RealServer
    ) -> None:
        async with engine_at(server, logprobs="raw") as engine:
            completion = await ask(engine, sampling=SHORT)
            assert (completion.finish_reason, completion.usage.prompt > 0) == ("stop", True)
            assert len(completion.logprobs) > 0
            assert all(number <= 0 for number in completion.logprobs)
            word = completion.text.split()[1]
            cut = await ask(engine, sampling={**SHORT, "stop": (word,)})
            assert completion.text.startswith(cut.text)
            assert word not in cut.text

    async def test_whole_answers_are_requested_because_its_streams_report_no_usage(
        self, server: RealServer
    ) -> None:
        async with engine_at(server) as engine:
            error = await failure(engine, request(sampling=SHORT, stream=True))
            assert (error.kind, error.retryable) == ("garbage", False)
            assert "usage" in str(error)
            stream_events = await events(engine, request(sampling=SHORT, stream=True))
            last = stream_events[-1]
            assert isinstance(last, Completion)
            assert "".join(delta.text for delta in deltas(stream_events)) == last.text

    async def test_several_completions_are_requested_one_by_one_with_separate_seeds(
        self, server: RealServer
    ) -> None:
        async with engine_at(server) as engine:
            generate_request = request(sampling={**SHORT, "temperature": 2.0, "seed": 5, "n": 3})
            results = await completions(engine, generate_request)
            assert [completion.index for completion in results] == [0, 1, 2]
            assert all(completion.usage.prompt > 0 for completion in results)
            assert len({completion.text for completion in results}) > 1

    async def test_an_overlong_prompt_is_a_context_overflow(self, server: RealServer) -> None:
        async with engine_at(server) as engine:
            error = await failure(engine, request("word " * 2000, sampling=SHORT))
            assert (error.kind, error.retryable) == ("context_overflow", False)

    async def test_tools_and_their_history_are_accepted(self, server: RealServer) -> None:
        async with engine_at(server) as engine:
            assert (await ask(engine, history(), tools=[CALCULATE], sampling=SHORT)).text

    async def test_a_cancelled_request_frees_the_server_for_others(
        self, server: RealServer
    ) -> None:
        async with engine_at(server, leave_out=["stream"]) as engine:
            await cancelled_in_a_stream(engine)
            assert (await ask(engine, sampling=SHORT)).text


class TestTransformersServe:
    @pytest.fixture
    def server(self, transformers_serve: RealServer) -> RealServer:
        return transformers_serve

    @pytest.fixture
    async def engine(self, server: RealServer) -> AsyncIterator[OpenAIEngine]:
        async with engine_at(server, model=str(MICRO)) as engine:
            yield engine

    async def test_whole_and_streamed_answers_are_equal(self, engine: OpenAIEngine) -> None:
        whole = await ask(engine, sampling=SHORT, tools=[CALCULATE])
        stream_events = await events(
            engine, request(sampling=SHORT, tools=[CALCULATE], stream=True)
        )
        last = stream_events[-1]
        assert isinstance(last, Completion)
        assert (last.text, last.usage) == (whole.text, whole.usage)
        assert "".join(delta.text for delta in deltas(stream_events)) == whole.text

    async def test_a_history_with_calls_is_accepted_and_n_is_emulated(
        self, engine: OpenAIEngine
    ) -> None:
        generate_request = request(history(), sampling={**SHORT, "n": 2}, tools=[CALCULATE])
        assert len(await completions(engine, generate_request)) == 2

    async def test_another_model_is_a_bad_request_with_the_server_s_message(
        self, server: RealServer
    ) -> None:
        async with engine_at(server, model="no-such-model") as engine:
            error = await failure(engine, request(sampling=SHORT))
            assert (error.kind, error.retryable) == ("bad_request", False)
            assert "no-such-model" in str(error)

    async def test_a_cancelled_request_frees_the_server_for_others(
        self, engine: OpenAIEngine
    ) -> None:
        await cancelled_in_a_stream(engine)
        assert (await ask(engine, sampling=SHORT)).text


class TestLiteLLMProxy:
    @pytest.fixture
    def server(self, litellm_proxy: RealServer) -> RealServer:
        return litellm_proxy

    @pytest.fixture
    async def engine(
        self, server: RealServer, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[OpenAIEngine]:
        monkeypatch.setenv("PROXY_KEY", LITELLM_KEY)
        async with engine_at(server, api_key_env="PROXY_KEY", logprobs="raw") as engine:
            yield engine

    @pytest.mark.parametrize("stream", [False, True])
    async def test_answers_calls_and_counts_pass_through(
        self, engine: OpenAIEngine, stream: bool
    ) -> None:
        plain = await ask(engine, stream=stream)
        assert plain.text.endswith("\\boxed{89}")
        assert len(plain.logprobs) == plain.usage.completion
        called = await ask(engine, tools=[DELEGATE], stream=stream)
        assert [call.name for call in called.tool_calls] == ["delegate"]
        assert called.finish_reason == "tool_calls"

    async def test_stop_seed_n_and_histories_pass_through(self, engine: OpenAIEngine) -> None:
        cut = await ask(engine, sampling={"stop": ("=",)})
        assert "=" not in cut.text
        several = request(sampling={"n": 2, "seed": 5, "temperature": 1.0})
        assert len(await completions(engine, several)) == 2
        assert (await ask(engine, history(), tools=[CALCULATE])).usage.cached > 0

    async def test_its_errors_are_typed_and_quoted_without_the_key(
        self, engine: OpenAIEngine, server: RealServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        error = await failure(engine, request("word " * 5000))
        assert error.kind == "context_overflow"
        async with engine_at(server, api_key_env="PROXY_KEY", model="none-such") as other_engine:
            error = await failure(other_engine, request())
            assert (error.kind, "none-such" in str(error)) == ("bad_request", True)
        wrong = "sk-wrong-0123456789abcdef"
        monkeypatch.setenv("PROXY_KEY", wrong)
        async with engine_at(server, api_key_env="PROXY_KEY") as other_engine:
            error = await failure(other_engine, request())
            # Without a database of other keys it answers 400 instead of 401.
            assert (error.retryable, wrong in str(error)) == (False, False)

    async def test_a_cancelled_request_frees_the_server_for_others(
        self, engine: OpenAIEngine
    ) -> None:
        await cancelled_in_a_stream(engine)
        assert (await ask(engine)).text
