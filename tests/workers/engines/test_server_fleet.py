"""Several servers behind one pool: when one hangs or is killed, the others answer its requests, and
it gets its share again when it is back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loopline.testing.vllm_double import VllmDouble, write_program
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.engines.vllm.server import Server
from loopline.workers.process_lifetime import dies_with_parent
from tests.bus.serving import until
from tests.workers.engines.asking import ask, events, request
from tests.workers.engines.real_servers import free_port
from tests.workers.engines.test_vllm_engine import settings
from tests.workers.engines.test_vllm_failures import started

Start = Callable[[int], subprocess.Popen[bytes]]


@pytest.fixture
async def doubles(tiny_model: Path) -> AsyncIterator[list[VllmDouble]]:
    async with VllmDouble(str(tiny_model)) as first, VllmDouble(str(tiny_model)) as second:
        yield [first, second]


@pytest.mark.slow
async def test_a_hanging_server_is_skipped_until_it_answers(
    tiny_model: Path, doubles: list[VllmDouble], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.workers.engines.vllm.server._HEALTH_SECONDS", 2.0)
    engine = await started(tiny_model, *doubles, timeout_seconds=4.0)
    doubles[0].mischief.hangs = True
    short = {"max_tokens": 8}
    answers = await asyncio.gather(*(ask(engine, sampling=short) for _ in range(8)))
    assert {len(answer.output_ids) for answer in answers} == {8}
    before = len(doubles[0].asked)
    assert {len((await ask(engine, sampling=short)).output_ids) for _ in range(4)} == {8}
    assert len(doubles[0].asked) == before
    doubles[0].mischief.hangs = False
    await doubles[1].die()
    assert len((await ask(engine, sampling=short)).output_ids) == 8
    assert len(doubles[0].asked) == before + 1
    await engine.close()


@pytest.mark.slow
class TestKilled:
    @pytest.fixture
    def program(self, tmp_path: Path) -> Path:
        return write_program(tmp_path)

    @pytest.fixture
    def start(self, tiny_model: Path, program: Path) -> Iterator[Start]:
        with ExitStack() as stack:

            def start(port: int) -> subprocess.Popen[bytes]:
                arguments = ["-m", "vllm", "serve", str(tiny_model), "--port", str(port)]
                process = subprocess.Popen(
                    [str(program), *arguments], preexec_fn=dies_with_parent(signal.SIGKILL)
                )
                stack.callback(process.wait)
                stack.callback(process.kill)
                return process

            yield start

    async def test_killing_one_server_loses_no_request_and_it_serves_again_when_back(
        self, tiny_model: Path, start: Start, tiny_loras: list[Path]
    ) -> None:
        ports = [free_port(), free_port()]
        processes = [start(port) for port in ports]
        urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
        more = {"servers": urls[1:], "plain_check": False}
        engine = VllmEngine(settings(tiny_model, urls[0], vllm=more, plain_logprobs=False))
        await engine.start()
        fleet = engine._fleet  # pyright: ignore[reportPrivateUsage]
        assert fleet is not None

        async def both() -> bool:
            await asyncio.gather(*(s.greet() for s in fleet.servers if not s.is_up))
            return all(server.is_up for server in fleet.servers)

        await until(both, "both answer", 90)
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        expected = {name: await ask(engine, adapter=name) for name in (None, "red")}
        asking = [
            asyncio.create_task(events(engine, request(adapter=name, stream=number % 2 == 0)))
            for number, name in enumerate((None, "red") * 16)
        ]
        await until(lambda: min(s.load for s in fleet.servers) > 0, "both are at work")
        os.kill(processes[0].pid, signal.SIGKILL)
        for name, stream in zip((None, "red") * 16, await asyncio.gather(*asking), strict=True):
            last = stream[-1]
            assert isinstance(last, Completion)
            assert last.output_ids == expected[name].output_ids
        processes[0].wait()
        start(ports[0])
        await until(both, "both answer again", 90)
        os.kill(processes[1].pid, signal.SIGKILL)
        again = await asyncio.gather(*(ask(engine, adapter="red") for _ in range(8)))
        assert {completion.output_ids for completion in again} == {expected["red"].output_ids}
        await engine.close()


async def test_a_server_away_for_days_is_still_asked_every_few_seconds(tiny_model: Path) -> None:
    server = Server(settings(tiny_model, "http://127.0.0.1:1/v1"), "http://127.0.0.1:1/v1", "")
    for _ in range(2000):
        server.lost()
    assert server.down_until - time.monotonic() <= 8.0
    await server.close()
