"""Tests for every engine that serves adapters. Inherit alongside `EngineConformance`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.protocol import Completion, Engine, EngineError
from tests.workers.engines.asking import ask, failure, request

NAMES = ("red", "green", "blue")
SAME = 1e-4
"""Maximum difference of logprobs of the same ids between batches of other shapes."""


async def alike_alone_and_together(engine: Engine, adapters: Sequence[str | None]) -> None:
    """Three prompts under each adapter, one after another and all at once, give the same
    answers."""
    questions = [(f"{topic} " * 20, name) for topic in range(3) for name in adapters]
    sampling = {"max_tokens": 30}
    alone = [await ask(engine, text, adapter=name, sampling=sampling) for text, name in questions]
    together = await asyncio.gather(
        *(ask(engine, text, adapter=name, sampling=sampling) for text, name in questions)
    )
    for expected, completion in zip(alone, together, strict=True):
        assert completion.output_ids == expected.output_ids
        assert completion.logprobs == pytest.approx(expected.logprobs, abs=SAME)


class AdapterConformance:
    """Define the fixtures `engine` (started) and `adapters` (paths of three adapters)."""

    @pytest.fixture
    async def equipped(self, engine: Engine, adapters: list[Path]) -> Engine:
        for name, path in zip(NAMES, adapters, strict=True):
            await engine.load_adapter(name, str(path), 1)
        return engine

    async def test_each_adapter_changes_the_answer(self, equipped: Engine) -> None:
        results = [await ask(equipped, adapter=name) for name in (None, *NAMES)]
        assert len({completion.output_ids for completion in results}) == 4
        assert [(completion.adapter, completion.adapter_version) for completion in results] == [
            (None, 0), ("red", 1), ("green", 1), ("blue", 1),
        ]  # fmt: skip

    async def test_rows_with_different_adapters_in_one_batch_equal_separate_ones(
        self, equipped: Engine
    ) -> None:
        await alike_alone_and_together(equipped, (None, *NAMES))

    async def test_cached_prefixes_of_one_adapter_never_reach_another(
        self, equipped: Engine, adapters: list[Path]
    ) -> None:
        """The same prompt runs under each adapter, one after another: llama.cpp#26207 mixes them
        up."""
        for name in (*NAMES, None, *NAMES):
            completion = await ask(equipped, adapter=name)
            scores = await equipped.score([*completion.prompt_ids, *completion.output_ids], name)
            assert completion.logprobs == pytest.approx(
                scores[len(completion.prompt_ids) - 1 :], abs=SAME
            )

    async def test_a_request_keeps_its_initial_version(
        self, equipped: Engine, adapters: list[Path]
    ) -> None:
        generate_request = request(adapter="red", sampling={"max_tokens": 40}, stream=True)
        before = await ask(equipped, adapter="red", sampling={"max_tokens": 40})
        async with aclosing(equipped.submit(generate_request)) as running:
            await anext(running)
            await equipped.load_adapter("red", str(adapters[1]), 2)
            after = await ask(equipped, adapter="red", sampling={"max_tokens": 40})
            rest = [event async for event in running]
        old = rest[-1]
        assert isinstance(old, Completion)
        assert (old.adapter_version, old.output_ids) == (1, before.output_ids)
        green = await ask(equipped, adapter="green", sampling={"max_tokens": 40})
        assert (after.adapter_version, after.output_ids) == (2, green.output_ids)

    async def test_many_requests_in_flight_survive_a_swap_unmixed(
        self, equipped: Engine, adapters: list[Path]
    ) -> None:
        sampling = {"max_tokens": 25}
        wanted = {
            version: (await ask(equipped, adapter=name, sampling=sampling)).output_ids
            for version, name in ((1, "red"), (2, "blue"))
        }
        early = [
            asyncio.create_task(ask(equipped, adapter="red", sampling=sampling)) for _ in range(32)
        ]
        await asyncio.sleep(0)
        await equipped.load_adapter("red", str(adapters[2]), 2)
        late = await asyncio.gather(
            *(ask(equipped, adapter="red", sampling=sampling) for _ in range(8))
        )
        results = [*await asyncio.gather(*early), *late]
        assert all(
            completion.output_ids == wanted[completion.adapter_version] for completion in results
        )
        assert {completion.adapter_version for completion in late} == {2}
        assert results[0].adapter_version == 1

    async def test_an_unreadable_adapter_is_refused_and_the_old_one_continues(
        self, equipped: Engine, tmp_path: Path
    ) -> None:
        before = await ask(equipped, adapter="red")
        with pytest.raises(EngineError) as caught:
            await equipped.load_adapter("red", str(tmp_path / "missing"), 2)
        assert caught.value.kind == "bad_request"
        assert "missing" in str(caught.value)
        after = await ask(equipped, adapter="red")
        assert (after.adapter_version, after.output_ids) == (1, before.output_ids)

    async def test_a_cancelled_load_releases_its_memory(
        self, engine: Engine, adapters: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend: Any = cast(Any, engine)._backend
        read, forget = backend.load_adapter, backend.forget_adapter
        reading, go_on = threading.Event(), threading.Event()
        given_back: list[AdapterVersion] = []

        def slow(instance: object, path: str) -> object:
            reading.set()
            assert go_on.wait(30)
            return read(instance, path)

        def note(instance: object, version: AdapterVersion) -> None:
            given_back.append(version)
            forget(instance, version)

        monkeypatch.setattr(backend, "load_adapter", slow)
        monkeypatch.setattr(backend, "forget_adapter", note)
        loading = asyncio.create_task(engine.load_adapter("red", str(adapters[0]), 1))
        await asyncio.to_thread(reading.wait, 30)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        go_on.set()
        await ask(engine, sampling={"max_tokens": 1})  # answered after all earlier requests
        assert [
            (adapter_version.name, adapter_version.version) for adapter_version in given_back
        ] == [("red", 1)]
        assert (await failure(engine, request(adapter="red"))).kind == "unknown_adapter"

    async def test_the_error_for_an_unknown_adapter_names_the_loaded_ones(
        self, equipped: Engine
    ) -> None:
        error = await failure(equipped, request(adapter="pink"))
        assert error.kind == "unknown_adapter"
        assert "blue, green, red" in str(error)

    async def test_an_unloaded_adapter_is_unknown_and_can_be_reloaded(
        self, equipped: Engine, adapters: list[Path]
    ) -> None:
        before = await ask(equipped, adapter="red")
        await equipped.unload_adapter("red")
        assert (await failure(equipped, request(adapter="red"))).kind == "unknown_adapter"
        await equipped.load_adapter("red", str(adapters[1]), 1)
        assert (await ask(equipped, adapter="red")).output_ids != before.output_ids
