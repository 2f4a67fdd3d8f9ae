"""The caller of `umi` under its schema: whatever the model prefers, it calls an offered tool."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from loopline.agents.environments.api_worlds import APIS, Split, instances
from loopline.agents.errors import InvalidTask
from loopline.agents.records import JsonObject, Run, Task, ToolSpec
from loopline.agents.roles.umi.output import Action, call_schema, format_call, read_action
from loopline.agents.workflows import workflows
from loopline.workers.engines.grammar.compiler import GrammarCompiler
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine
from tests.agents.conversations import a_run
from tests.workers.engines.asking import completions, request
from tests.workers.engines.tiny_model import special_ids

OFFERED = tuple(APIS[name].spec for name in ("book_flight", "get_forecast", "checkout"))


@pytest.fixture
async def engine(tiny_model: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model), max_concurrency=12))
    await engine.start()
    yield engine
    await engine.close()


def grammars(model: Path) -> tuple[Any, GrammarCompiler]:
    """The tokenizer and its compiler."""
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(model)
    end = special_ids(model)["<|im_end|>"]
    return tokenizer, GrammarCompiler(lambda: from_tokenizer(tokenizer, eos_token=[end]), [end])


async def test_every_completion_is_a_valid_call_of_an_offered_tool(
    engine: TorchEngine,
) -> None:
    generate_request = request(
        json_schema=call_schema(OFFERED),
        sampling={"temperature": 2.0, "n": 12, "max_tokens": 300, "seed": 3},
    )
    results = await completions(engine, generate_request)
    assert {completion.finish_reason for completion in results} == {"stop"}
    called: set[str] = set()
    for completion in results:
        action = read_action(completion.text)
        assert isinstance(action, Action), completion.text
        APIS[action.name].declaration.parse(action.arguments)
        called.add(action.name)
    assert called <= {tool.name for tool in OFFERED}
    assert len(called) > 1, "the sample shows nothing about the choice"


def test_every_oracle_s_calls_can_be_written_under_their_tools_schema(
    tiny_model: Path,
) -> None:
    tokenizer, compiler = grammars(tiny_model)
    written = 0
    for instance in instances(Split.TRAIN, 7, 60):
        for call in instance.oracle.calls:
            text = format_call(call.name, call.arguments or {}, as_json=True)
            matcher = compiler.matcher(call_schema(instance.tools))
            for token in tokenizer.encode(text, add_special_tokens=False):
                matcher.consume(token)
            assert matcher.complete, text
            written += 1
    assert written > 60


def test_a_run_is_admitted_with_as_many_tools_as_the_grammar_can_enforce(
    tiny_model: Path,
) -> None:
    _, compiler = grammars(tiny_model)
    umi = workflows.get("umi")
    parameter: JsonObject = {"type": "string", "description": "d" * 700}
    takes: JsonObject = {"type": "object", "properties": {"x": parameter}, "required": ["x"]}
    tools = [
        ToolSpec(name=f"town__tool_{number:03}", description="", parameters=takes)
        for number in range(128)
    ]
    most = next(n for n in range(1, 128) if len(json.dumps(call_schema(tools[:n]))) > 100_000) - 1

    def run_with(count: int) -> Run:
        instance: JsonObject = {"tools": [tool.model_dump(mode="json") for tool in tools[:count]]}
        return a_run("umi").model_copy(update={"task": Task(prompt="?", instance=instance)})

    umi.first(run_with(most))
    compiler.matcher(call_schema(tools[:most]))
    with pytest.raises(InvalidTask, match=r"at most 100,000; offer fewer tools \(by --tool"):
        umi.first(run_with(most + 1))
    with pytest.raises(EngineError, match="larger than 100000 bytes"):
        compiler.matcher(call_schema(tools[: most + 1]))
    free = umi.check_options({"constrained": False})
    umi.first(run_with(most + 1).model_copy(update={"options": free}))
