"""The caller of `umi` under its schema: whatever the model wants, it calls an offered tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from agents.environments.api_worlds import APIS, Split, instances
from agents.roles.umi.output import Action, call_schema, read_action, written_call
from tests.workers.engines.asking import completions, request
from tests.workers.engines.tiny_model import special_ids
from workers.engines.grammar.compiler import GrammarCompiler
from workers.engines.settings import ModelSettings
from workers.engines.torch.engine import TorchEngine

OFFERED = tuple(APIS[name].spec for name in ("book_flight", "get_forecast", "checkout"))


@pytest.fixture
async def engine(tiny_model: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model), max_concurrency=12))
    await engine.start()
    yield engine
    await engine.close()


async def test_every_completion_is_a_call_of_an_offered_tool_with_arguments_that_it_takes(
    engine: TorchEngine,
) -> None:
    asked = request(
        json_schema=call_schema(OFFERED),
        sampling={"temperature": 2.0, "n": 12, "max_tokens": 300, "seed": 3},
    )
    done = await completions(engine, asked)
    assert {each.finish_reason for each in done} == {"stop"}
    called: set[str] = set()
    for each in done:
        action = read_action(each.text)
        assert isinstance(action, Action), each.text
        APIS[action.name].declaration.parse(action.arguments)
        called.add(action.name)
    assert called <= {tool.name for tool in OFFERED}
    assert len(called) > 1, "the sample shows nothing about the choice"


def test_the_calls_of_every_oracle_can_be_written_under_the_schema_of_their_tools(
    tiny_model: Path,
) -> None:
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(tiny_model)
    end = special_ids(tiny_model)["<|im_end|>"]
    compiler = GrammarCompiler(lambda: from_tokenizer(tokenizer, eos_token=[end]), [end])
    written = 0
    for instance in instances(Split.TRAIN, 7, 60):
        for call in instance.oracle.calls:
            text = written_call(call.name, call.arguments or {}, as_json=True)
            matcher = compiler.matcher(call_schema(instance.tools))
            for token in tokenizer.encode(text, add_special_tokens=False):
                matcher.consume(token)
            assert matcher.complete, text
            written += 1
    assert written > 60
