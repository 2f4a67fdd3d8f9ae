"""The torch engine's cache of prompts, and its bound."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.records import Message
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import common_prefix
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchBackend, TorchEngine
from loopline.workers.engines.torch.prefix_cache import PrefixCache
from tests.workers.engines.asking import ask, completions, failure, request, user

ROLE = Message(role="system", content="Write down each step of the calculation. " * 4)
SAME = 1e-4
"""Maximum difference of logprobs of the same ids between batches of other shapes."""

Start = Callable[..., Any]


@pytest.fixture
async def start(tiny_model: Path) -> AsyncIterator[Start]:
    """Starts engines of the tiny model."""
    running: list[TorchEngine] = []

    async def started(**fields: object) -> TorchEngine:
        engine = TorchEngine(
            ModelSettings.model_validate({"engine": "torch", "model": str(tiny_model), **fields})
        )
        running.append(engine)
        await engine.start()
        return engine

    yield started
    for engine in running:
        await engine.close()


@pytest.fixture
async def engine(start: Start) -> TorchEngine:
    return await start()


def passes(engine: TorchEngine) -> list[tuple[int, int]]:
    """Record the rows and tokens of each forward pass from now on."""
    shapes: list[tuple[int, int]] = []

    def note(_: object, __: object, kwargs: dict[str, torch.Tensor]) -> None:
        rows, tokens = kwargs["input_ids"].shape
        shapes.append((rows, tokens))

    _model(engine).register_forward_pre_hook(note, with_kwargs=True)
    return shapes


def rows_after_passes(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of rows in the batch after each pass from now on."""
    backend, counts = _backend(engine), list[int]()
    step = backend.step

    def note(feeds: Mapping[Row, int]) -> torch.Tensor:
        logits = step(feeds)
        counts.append(len(backend._batch.rows))  # pyright: ignore[reportPrivateUsage]
        return logits

    monkeypatch.setattr(backend, "step", note)
    return counts


@asynccontextmanager
async def busy(engine: TorchEngine) -> AsyncGenerator[Callable[[int], Awaitable[None]]]:
    """Keep an engine in the middle of a pass until the end of the block; its result waits until
    this many requests are queued."""
    entered, released = threading.Event(), threading.Event()

    def hold(_: object, __: object) -> None:
        entered.set()
        released.wait()

    async def asked(count: int) -> None:
        line = engine._thread._commands  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        while line.qsize() < count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)

    hook = _model(engine).register_forward_pre_hook(hold)
    scoring = asyncio.create_task(engine.score([1, 2, 3], None))
    try:
        await asyncio.to_thread(entered.wait)
        hook.remove()
        yield asked
    finally:
        released.set()
        await scoring


async def assert_right(
    engine: TorchEngine, completion: Completion, adapter: str | None = None
) -> None:
    """Check that the logprobs equal those of the ids without any cache."""
    scores = await engine.score([*completion.prompt_ids, *completion.output_ids], adapter)
    assert completion.logprobs == pytest.approx(scores[len(completion.prompt_ids) - 1 :], abs=SAME)


async def test_a_role_s_prompt_is_computed_once(engine: TorchEngine) -> None:
    first = await ask(engine, [ROLE, user("What is 3 + 4?")], sampling={"max_tokens": 8})
    second = await ask(engine, [ROLE, user("And 90 * 8?")], sampling={"max_tokens": 8})
    assert first.usage.cached == 0
    assert second.usage.cached == common_prefix(first.prompt_ids, second.prompt_ids) > 50
    await assert_right(engine, second)


async def test_only_the_last_token_of_a_cached_prompt_is_computed(
    engine: TorchEngine,
) -> None:
    first, again = [await ask(engine, [ROLE, user("Hi")]) for _ in range(2)]
    assert again.usage.cached == again.usage.prompt - 1
    assert again.output_ids == first.output_ids
    assert again.logprobs == pytest.approx(first.logprobs, abs=SAME)


async def test_a_conversation_reuses_its_earlier_turns(engine: TorchEngine) -> None:
    first = await ask(engine)
    turns = [user("What is 12 * 7 + 5?"), Message(role="assistant", content=first.text), user("?")]
    earlier = (*first.prompt_ids, *first.output_ids)
    second = await ask(engine, turns, previous_ids=earlier, sampling={"max_tokens": 8})
    assert second.extends_previous
    assert second.usage.cached == len(earlier) - 1  # the last token was never fed
    await assert_right(engine, second)


async def test_a_common_prefix_of_concurrent_requests_is_computed_once(
    engine: TorchEngine,
) -> None:
    shapes = passes(engine)
    questions = [f"What is {number} * 7?" for number in range(12)]
    results = await asyncio.gather(
        *(ask(engine, [ROLE, user(item)], sampling={"max_tokens": 5}) for item in questions)
    )
    assert sum(item.usage.cached > 0 for item in results) == 11
    computed = sum(rows * tokens for rows, tokens in shapes)
    assert computed < results[0].usage.prompt + 12 * 40
    for completion in results:
        await assert_right(engine, completion)


async def test_rows_with_prefixes_of_different_lengths_are_read_together(
    engine: TorchEngine,
) -> None:
    long = Message(role="system", content="Check every number twice before you write it. " * 6)
    for role in (ROLE, long):
        await ask(engine, [role, user("Hi")], sampling={"max_tokens": 2})
    async with busy(engine) as wait_for_requests:
        both = [
            asyncio.create_task(
                ask(engine, [role, user(text)], sampling={"max_tokens": 9, "temperature": 1.0})
            )
            for role, text in ((ROLE, "What is 1 + 12?"), (long, "What is 2 + 3?"))
        ]
        await wait_for_requests(2)
        shapes = passes(engine)
    results = await asyncio.gather(*both)
    assert shapes[0][0] == 2, "one pass for both"
    assert len({result.usage.cached for result in results}) == 2
    for completion in results:
        await assert_right(engine, completion)


async def test_all_completions_of_a_request_share_one_prompt_pass(engine: TorchEngine) -> None:
    await ask(engine, [ROLE, user("Hi")], sampling={"max_tokens": 2})
    generate_request = request(
        [ROLE, user("What is 5 * 5?")],
        sampling={"n": 5, "temperature": 1.0, "seed": 3, "max_tokens": 12},
    )
    results = await completions(engine, generate_request)
    assert [result.usage.cached > 0 for result in results] == [True, False, False, False, False]
    for completion in results:
        await assert_right(engine, completion)


async def test_a_request_is_continued_after_a_cached_prefix(engine: TorchEngine) -> None:
    whole = await ask(engine, [ROLE, user("What is 6 * 7?")], sampling={"max_tokens": 20})
    rest = await ask(
        engine,
        [ROLE, user("What is 6 * 7?")],
        sampling={"max_tokens": 20},
        resume_ids=whole.output_ids[:9],
    )
    assert rest.usage.cached == rest.usage.prompt - 1
    assert rest.output_ids == whole.output_ids
    assert rest.logprobs == pytest.approx(whole.logprobs, abs=SAME)


@pytest.mark.parametrize("token_count", [15, 16, 17])
async def test_a_request_is_continued_with_the_logits_of_a_few_tokens_at_a_time(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, token_count: int
) -> None:
    monkeypatch.setattr("loopline.workers.engines.torch.engine.SCORE_CHUNK", 8)
    sampling = {"temperature": 1.5, "seed": 1, "max_tokens": 24}
    whole = await ask(engine, sampling=sampling)
    assert len(whole.output_ids) > 17
    lengths: list[int] = []

    def note(_: object, __: object, output: Any) -> None:
        lengths.append(output.logits.shape[1])

    _model(engine).register_forward_hook(note)
    rest = await ask(engine, sampling=sampling, resume_ids=whole.output_ids[:token_count])
    assert max(lengths) == 8
    assert rest.output_ids == whole.output_ids
    assert rest.logprobs == pytest.approx(whole.logprobs, abs=SAME)


async def test_the_uncached_rest_of_a_long_prompt_is_read_in_pieces(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.workers.engines.torch.kv_batch.READ_AT_ONCE", 16)
    await ask(engine, [ROLE, user("Hi")], sampling={"max_tokens": 2})
    shapes = passes(engine)
    completion = await ask(engine, [ROLE, user("one two three " * 9)], sampling={"max_tokens": 4})
    pieces = [tokens for _, tokens in shapes[:-3]]
    assert len(pieces) > 3
    assert max(pieces) <= 16
    assert sum(pieces) == completion.usage.prompt - completion.usage.cached
    await assert_right(engine, completion)


async def test_a_cached_prefix_never_serves_another_adapter(
    engine: TorchEngine, tiny_loras: list[Path]
) -> None:
    await engine.load_adapter("red", str(tiny_loras[0]), 1)
    for version, adapter in ((1, None), (1, "red"), (2, "red")):
        await engine.load_adapter("red", str(tiny_loras[version - 1]), version)
        first, again = [
            await ask(engine, [ROLE, user("Hi")], adapter=adapter, sampling={"max_tokens": 9})
            for _ in range(2)
        ]
        assert (first.usage.cached, again.usage.cached) == (0, again.usage.prompt - 1)
        await assert_right(engine, again, adapter)


async def test_a_cache_that_compares_only_tokens_would_mix_up_adapters(
    engine: TorchEngine, tiny_loras: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault of llama.cpp#26207, made on purpose: it proves that the isolation tests can
    fail."""
    longest = PrefixCache.longest

    def naive(cache: PrefixCache, _: object, ids: list[int], more_than: int) -> Any:
        return longest(cache, None, ids, more_than)

    monkeypatch.setattr(PrefixCache, "longest", naive)
    await engine.load_adapter("red", str(tiny_loras[0]), 1)
    await ask(engine, [ROLE, user("Hi")], sampling={"max_tokens": 9})
    mixed = await ask(engine, [ROLE, user("Hi")], adapter="red", sampling={"max_tokens": 9})
    with pytest.raises(AssertionError):
        await assert_right(engine, mixed, "red")


async def test_an_adapter_s_cached_prefixes_go_with_its_version(
    engine: TorchEngine, tiny_loras: list[Path]
) -> None:
    await engine.load_adapter("red", str(tiny_loras[0]), 1)
    await ask(engine, [ROLE, user("Hi")], adapter="red", sampling={"max_tokens": 3})
    prefixes = _backend(engine)._prefixes  # pyright: ignore[reportPrivateUsage]
    assert prefixes.tokens > 0
    await engine.unload_adapter("red")
    await engine.score([1, 2, 3])  # the thread has done all earlier work
    assert prefixes.tokens == 0


async def test_rows_with_nan_logits_leave_nothing_behind(engine: TorchEngine) -> None:
    """A weight of zero does not hide a NaN, so a failed row's place must not keep it."""
    projection = _model(engine).model.layers[0].self_attn.v_proj
    sampling = {"temperature": 5.0, "top_k": 50, "seed": 4, "max_tokens": 400}
    async with aclosing(engine.submit(request(sampling=sampling, stream=True))) as beside:
        await anext(beside)

        def spoil(_: object, __: object, output: torch.Tensor) -> torch.Tensor:
            """Spoil the prompt's tokens, in a separate pass or after the running row's token."""
            spoiled = output.clone()
            spoiled[int(output.shape[1] == 1) :] = float("nan")
            return spoiled

        spoiled = projection.register_forward_hook(spoil)
        assert "not finite" in str(await failure(engine, request([ROLE, user("Hi")])))
        spoiled.remove()
        await assert_right(engine, await ask(engine, "Hi", sampling={"max_tokens": 20}))
        assert _backend(engine)._batch.rows, "or the whole batch was forgotten in between"  # pyright: ignore[reportPrivateUsage]


async def test_running_out_of_memory_empties_the_cache(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(engine, [ROLE, user("Hi")], sampling={"max_tokens": 3})
    backend = _backend(engine)

    def no_memory(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(backend._batch._cache, "fit", no_memory)  # pyright: ignore
    error = await failure(engine, request([ROLE, user("Hi")]))
    assert (error.kind, error.retryable) == ("unavailable", True)
    assert backend._prefixes.tokens == 0  # pyright: ignore[reportPrivateUsage]
    monkeypatch.undo()
    await assert_right(engine, await ask(engine, [ROLE, user("Hi")]))


async def test_a_cache_that_released_its_memory_keeps_nothing_of_the_first_prompt(
    engine: TorchEngine,
) -> None:
    await ask(engine, [ROLE, user("Hi")], sampling={"max_tokens": 3})
    cache = _backend(engine)._batch._cache  # pyright: ignore[reportPrivateUsage]
    cache.free()
    tensors = [tensor for layer in cache._all_layers for tensor in layer._like]  # pyright: ignore[reportPrivateUsage]
    assert tensors
    assert sum(tensor.untyped_storage().nbytes() for tensor in tensors) == 0


async def test_requests_wait_while_their_tokens_have_no_room(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 of 512 tokens are for finished requests; a request may need about 75."""
    engine = await start(max_tokens_in_flight=512)
    rows = rows_after_passes(engine, monkeypatch)
    order: list[int] = []

    async def one(number: int) -> None:
        completion = await ask(engine, f"What is {number} + 1?", sampling={"max_tokens": 40})
        assert completion.usage.prompt + 40 < 96
        order.append(number)

    await asyncio.gather(*(one(number) for number in range(14)))
    assert 2 <= max(rows) <= 384 // 60
    prefixes = _backend(engine)._prefixes  # pyright: ignore[reportPrivateUsage]
    assert 0 < prefixes.tokens <= 128


async def test_a_request_larger_than_the_bound_runs_alone(start: Start) -> None:
    engine = await start(max_tokens_in_flight=64)
    shapes = passes(engine)
    large = request("one two " * 40, sampling={"max_tokens": 30, "n": 2, "temperature": 1.0})
    results = await asyncio.gather(
        completions(engine, large), *(completions(engine, request()) for _ in range(3))
    )
    assert [len(batch) for batch in results] == [2, 1, 1, 1]
    assert {rows for rows, tokens in shapes if tokens == 1} <= {1, 2}


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 2), st.lists(st.integers(0, 1), max_size=12)),
        max_size=40,
    )
)
def test_the_cache_finds_the_longest_prefix_and_stays_within_its_budget(
    moves: list[tuple[bool, int, list[int]]],
) -> None:
    adapters = [None, AdapterVersion("red", 1, None), AdapterVersion("red", 2, None)]
    cache = PrefixCache(30)
    entries: list[tuple[AdapterVersion | None, list[int]]] = []
    for is_put, which, ids in moves:
        adapter = adapters[which]
        if is_put:
            state = torch.tensor(ids, dtype=torch.float32)[None, :, None]
            cache.put(adapter, ids, lambda state=state: [(state, -state)])
            entries.append((adapter, ids))
        states, length = cache.longest(adapter, ids, 0)
        assert length <= max(
            (common_prefix(tokens, ids) for of, tokens in entries if of is adapter), default=0
        )
        if is_put:
            assert length == len(ids)
        if states:
            ((keys, values),) = states
            assert keys.flatten().tolist() == ids[:length]
            assert values.flatten().tolist() == [-token_id for token_id in ids[:length]]
        assert cache.tokens <= 30


def _backend(engine: TorchEngine) -> TorchBackend:
    thread = engine._thread  # pyright: ignore[reportPrivateUsage]
    assert thread is not None
    assert isinstance(thread.backend, TorchBackend)
    return thread.backend


def _model(engine: TorchEngine) -> Any:
    return engine._loaded.model  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
