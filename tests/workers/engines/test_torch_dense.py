"""The torch engine's own forward pass has the logits of transformers, and each row those of its own
tokens, whatever rows share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from loopline.agents.records import Message
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.protocol import Completion, EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch import dense, shared_beginnings
from loopline.workers.engines.torch.engine import TorchEngine
from loopline.workers.engines.torch.kv_batch import KVBatch
from loopline.workers.engines.torch.shared_beginnings import SharedBeginnings, best_length
from tests.workers.engines.asking import ask, completions, request, user

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 700,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 350}
CONFIGS = {
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=24),
    "llama": LlamaConfig(**SIZES, attention_bias=True),
    "yarn": Qwen2Config(**SIZES, rope_parameters={**YARN, "rope_theta": 10_000.0}),
}


class _Job:
    def __init__(self, adapter: object = None) -> None:
        self.adapter = adapter


class _Tokens:
    """A row with the fields that a batch reads."""

    unchecked = 0

    def __init__(self, ids: Sequence[int], adapter: object = None, fed: int = 0) -> None:
        self.ids, self.fed = list(ids), fed
        self.job = _Job(adapter)
        self.siblings: list[object] = []


def rows_of(*tokens: _Tokens) -> list[Row]:
    return cast("list[Row]", list(tokens))


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(CONFIGS[request.param]).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model


def some_ids(count: int, seed: int) -> list[int]:
    return torch.randint(3, 97, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.inference_mode()
def test_prompts_and_steps_match_the_logits_of_transformers(model: Any) -> None:
    """Compare rows in two groups and one alone, from their prompts through a few steps."""
    roles = [some_ids(300, 1), some_ids(300, 2)]
    prompts = [
        *([*roles[0], *some_ids(5 + place, 10 + place)] for place in range(6)),
        *([*roles[1], *some_ids(8, 20 + place)] for place in range(4)),
        some_ids(310, 3),
    ]
    plain = type(model).forward
    batch = KVBatch(model, torch.device("cpu"), 16, 700)
    rows = rows_of(*(_Tokens(prompt) for prompt in prompts))
    shared: list[object] = []

    def expect(row: Row, logits: torch.Tensor) -> None:
        expected = plain(model, input_ids=torch.tensor([row.ids]), use_cache=False).logits[0, -1]
        assert torch.allclose(logits, expected, atol=2e-4, rtol=1e-4)
        row.fed = len(row.ids)
        row.ids.append(int(expected.argmax()))

    for row in rows:
        expect(row, batch.read({row: []})[0])
    for step in range(5):
        for row, logits in zip(list(batch.rows), batch.step(), strict=True):
            expect(row, logits)
        shared.append(batch._cache.shared)  # pyright: ignore[reportPrivateUsage]
        if step == 2:
            batch.remove(rows[2:4])
    assert all(isinstance(item, shared_beginnings.Shared) for item in shared)
    assert [len(item.groups) for item in shared if isinstance(item, shared_beginnings.Shared)] == [
        3
    ] * 5


def test_a_model_of_another_kind_or_type_keeps_its_own_forward_pass() -> None:
    cpu = torch.device("cpu")
    sliding = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    double = AutoModelForCausalLM.from_config(Qwen2Config(**SIZES), dtype=torch.float64)
    for model in (AutoModelForCausalLM.from_config(sliding), double):
        assert dense.install(model, cpu) is None
        assert "forward" not in vars(model)


def _look_on(*_: object) -> None:
    """A hook."""


def test_a_hook_on_an_inner_module_is_never_bypassed(model: Any) -> None:
    """A caller that watches an uncalled module sees transformers' own pass."""
    installed = dense.install(model, torch.device("cpu"))
    assert installed is not None
    assert installed.is_usable
    hook = model.model.layers[1].mlp.register_forward_hook(_look_on)
    assert not installed.is_usable
    hook.remove()
    assert installed.is_usable


# Sharing between rows.


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 1), max_size=6))))
def test_the_prefix_length_that_saves_most_is_chosen(
    sequences: list[tuple[str, list[int]]],
) -> None:
    most = min((len(ids) for _, ids in sequences), default=0)

    def saved(count: int) -> int:
        groups = {(name, *ids[:count]) for name, ids in sequences}
        return count * (len(sequences) - len(groups))

    length = best_length(cast("Any", sequences), most)
    assert saved(length) == max(map(saved, range(most + 1)))


RowsThatComeAndGo = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 3), st.integers(1, 40)), max_size=40
)


@given(RowsThatComeAndGo)
def test_every_row_shares_the_prefix_of_its_group_s_source(
    changes: list[tuple[bool, int, int, int]],
) -> None:
    roles, adapters = [[role] * 400 for role in range(4)], [None, object(), object()]
    beginnings, rows = SharedBeginnings(), list[Row]()
    for leaves, adapter, role, length in changes:
        if leaves and rows:
            gone = rows.pop(length % len(rows))
            beginnings.forget([gone])
        else:
            ids = [*roles[role][: 10 * length], 9, 9]
            rows += rows_of(_Tokens(ids, adapters[adapter], fed=len(ids)))
        shared = beginnings.of(rows) if rows else None
        if shared is None:
            continue
        assert shared.length <= min(row.fed for row in rows)
        covered: list[int] = []
        for group in shared.groups:
            places = range(len(rows)) if group.places is None else group.places.tolist()
            covered += places
            source = rows[group.source]
            for place in places:
                assert rows[place].ids[: shared.length] == source.ids[: shared.length]
                assert rows[place].job.adapter is source.job.adapter
        assert sorted(covered) == list(range(len(rows)))


def test_nothing_of_a_finished_row_is_kept() -> None:
    beginnings = SharedBeginnings()
    rows = rows_of(*(_Tokens([7] * 600, fed=600) for _ in range(8)))
    assert beginnings.of(rows) is not None
    beginnings.forget(rows)
    for value in vars(beginnings).values():
        assert not value or isinstance(value, int)


# Sharing in the engine.

ROLE = Message(role="system", content="Write down each step of the calculation. " * 6)


@pytest.fixture
async def engine(tiny_model: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model), max_concurrency=32))
    await engine.start()
    yield engine
    await engine.close()


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of groups in each sharing pass."""
    counts: list[int] = []
    attend: Any = dense._attend_shared  # pyright: ignore[reportPrivateUsage]

    def counted(*arguments: Any) -> torch.Tensor:
        counts.append(len(arguments[4].groups))
        return attend(*arguments)

    monkeypatch.setattr(dense, "_attend_shared", counted)
    return counts


def asked(adapters: Sequence[str | None]) -> list[GenerateRequest]:
    return [
        request(
            [ROLE, user(f"What is {place} * 7?")],
            adapter=adapters[place % len(adapters)],
            sampling={"temperature": 1.0, "seed": place, "max_tokens": 12 + place},
        )
        for place in range(18)
    ]


async def test_rows_that_share_a_role_prompt_have_their_own_logprobs(
    engine: TorchEngine, tiny_loras: list[Path], sharing: list[int]
) -> None:
    """Rows share only with rows of the same adapter, or of none."""
    await engine.load_adapter("red", str(tiny_loras[0]), 1)
    await engine.load_adapter("blue", str(tiny_loras[1]), 1)
    requests = asked((None, "red", "blue"))
    batches = await asyncio.gather(*(completions(engine, item) for item in requests))
    assert max(sharing) == 3
    for item, (completion,) in zip(requests, batches, strict=True):
        scores = await engine.score([*completion.prompt_ids, *completion.output_ids], item.adapter)
        assert completion.logprobs == pytest.approx(
            scores[len(completion.prompt_ids) - 1 :], abs=1e-4
        )


async def test_a_row_with_nan_logits_fails_alone_although_all_share_a_role_prompt(
    engine: TorchEngine, sharing: list[int]
) -> None:
    requests = asked((None,))
    expected = await asyncio.gather(*(completions(engine, item) for item in requests))
    model: Any = engine._loaded.model  # pyright: ignore
    remaining = [6]

    def spoil(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        rows, tokens = inputs[0].shape[:2]
        if rows > 3 and tokens == 1:
            remaining[0] -= 1
            if remaining[0] == 0:
                inputs[0][3] = torch.nan

    sharing.clear()
    model.model.layers[1].input_layernorm.register_forward_pre_hook(spoil)
    batches = await asyncio.gather(
        *(completions(engine, item) for item in requests), return_exceptions=True
    )
    assert sharing
    assert sum(isinstance(batch, EngineError) for batch in batches) == 1
    for batch, (wanted,) in zip(batches, expected, strict=True):
        if not isinstance(batch, BaseException):
            (completion,) = batch
            assert isinstance(completion, Completion)
            assert completion.output_ids == wanted.output_ids
    again = await ask(engine, [ROLE, user("What is 5 * 7?")], sampling={"max_tokens": 9})
    assert again.output_ids
