"""Tests of a caller's options for a completion: every engine follows them, or refuses with the
reason."""

from __future__ import annotations

import re

import pytest

from loopline.agents.records import ToolChoice, ToolSpec
from loopline.workers.engines.protocol import Completion, Engine, GenerateRequest
from tests.workers.engines.asking import CALCULATE, ask, completions, failure, needs, request

NO_TOOL = ToolChoice(mode="none")
PICK = ToolSpec(
    name="pick",
    description="Choose a side.",
    parameters={
        "type": "object",
        "properties": {"side": {"enum": ["left", "right"]}},
        "required": ["side"],
        "additionalProperties": False,
    },
)
WAIT = ToolSpec(
    name="wait",
    description="Do nothing.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)
"""Both tools' calls end within a few tokens, whatever the model would write."""


async def only(engine: Engine, generate_request: GenerateRequest) -> Completion:
    (completion,) = await completions(engine, generate_request)
    return completion


class OptionConformance:
    """A part of `EngineConformance` about options."""

    async def test_tool_choice_none_prevents_calls(self, engine: Engine) -> None:
        needs(engine, "tools")
        for sampling in ({}, {"temperature": 1.0, "seed": 3}):
            completion = await ask(
                engine, tools=[CALCULATE], tool_choice=NO_TOOL, sampling=sampling
            )
            assert completion.tool_calls == ()
            assert completion.finish_reason in ("stop", "length")

    @pytest.mark.parametrize("name", [None, "pick", "wait"])
    @pytest.mark.parametrize("parallel", [True, False])
    async def test_a_required_tool_is_called_or_the_request_is_refused(
        self, engine: Engine, name: str | None, parallel: bool
    ) -> None:
        for seed in range(3):
            generate_request = request(
                tools=[PICK, WAIT],
                tool_choice=ToolChoice(mode="required", name=name),
                parallel_tool_calls=parallel,
                sampling={"temperature": 1.0, "seed": seed, "max_tokens": 100},
                stream=True,
            )
            if not engine.capabilities.tool_choice:
                error = await failure(engine, generate_request)
                assert error.kind == "bad_request"
                assert "tool" in str(error)
                continue
            (completion,) = await completions(engine, generate_request)
            calls = completion.tool_calls
            assert calls
            if name is not None or not parallel:
                assert len(calls) == 1
                assert completion.finish_reason == "tool_calls"
            for call in calls:
                assert call.name in ("pick", "wait") if name is None else call.name == name
                assert call.error is None
            if calls[0].name == "pick":
                assert calls[0].arguments in ({"side": "left"}, {"side": "right"})

    async def test_without_parallel_calls_at_most_one_is_made_or_the_request_is_refused(
        self, engine: Engine
    ) -> None:
        for sampling in ({}, *({"temperature": 1.0, "seed": seed} for seed in range(6))):
            generate_request = request(
                tools=[CALCULATE], parallel_tool_calls=False, sampling=sampling
            )
            if not engine.capabilities.tool_choice:
                assert (await failure(engine, generate_request)).kind == "bad_request"
                continue
            (completion,) = await completions(engine, generate_request)
            assert len(completion.tool_calls) < 2

    async def test_an_interrupted_required_call_is_continued(self, engine: Engine) -> None:
        needs(engine, "tool_choice")
        needs(engine, "continuation")
        for parallel in (True, False):
            generate_request = request(
                tools=[PICK, WAIT],
                tool_choice=ToolChoice(mode="required"),
                parallel_tool_calls=parallel,
                sampling={"temperature": 1.0, "seed": 2, "max_tokens": 60},
            )
            full = await only(engine, generate_request)
            for cut in range(1, len(full.output_ids) + 1, 3):
                resumed = {"resume_ids": full.output_ids[:cut]}
                last = await only(engine, generate_request.model_copy(update=resumed))
                assert (last.output_ids, last.tool_calls) == (full.output_ids, full.tool_calls)

    @pytest.mark.parametrize(
        ("choice", "names", "reason"),
        [
            (ToolChoice(mode="required"), [], "offers no tools"),
            (ToolChoice(mode="required", name="pick"), [], "'pick'.*offers no tools"),
            (ToolChoice(mode="required", name="guess"), ["pick"], "'guess'.*pick"),
            (ToolChoice(mode="auto", name="pick"), ["pick"], "only with 'required'"),
        ],
    )
    async def test_a_choice_of_a_missing_tool_is_refused(
        self, engine: Engine, choice: ToolChoice, names: list[str], reason: str
    ) -> None:
        tools = [tool for tool in (PICK, WAIT) if tool.name in names]
        error = await failure(engine, request(tools=tools, tool_choice=choice))
        assert error.kind == "bad_request"
        assert re.search(reason, str(error))

    async def test_penalties_are_applied_or_refused(self, engine: Engine) -> None:
        for penalty in ("frequency_penalty", "presence_penalty"):
            generate_request = request(sampling={penalty: 1.5, "max_tokens": 20})
            if engine.capabilities.penalties:
                (completion,) = await completions(engine, generate_request)
                assert completion.usage.completion > 0
            else:
                error = await failure(engine, generate_request)
                assert error.kind == "bad_request"
                assert f"{penalty} = 1.5" in str(error)

    async def test_how_much_to_think_is_passed_on_or_refused(self, engine: Engine) -> None:
        generate_request = request(sampling={"reasoning_effort": "low", "max_tokens": 20})
        if engine.capabilities.reasoning_effort:
            assert await completions(engine, generate_request)
        else:
            error = await failure(engine, generate_request)
            assert error.kind == "bad_request"
            assert "reasoning_effort = 'low'" in str(error)

    async def test_penalties_of_zero_change_nothing(self, engine: Engine) -> None:
        for sampling in ({}, {"temperature": 1.0, "seed": 3}):
            zero = {**sampling, "frequency_penalty": 0.0, "presence_penalty": 0.0}
            plain, penalized = (
                await ask(engine, sampling=sampling),
                await ask(engine, sampling=zero),
            )
            assert (plain.text, plain.output_ids) == (penalized.text, penalized.output_ids)
            assert plain.logprobs == pytest.approx(penalized.logprobs, abs=1e-4)

    async def test_top_logprobs_are_returned_for_each_token_or_the_request_is_refused(
        self, engine: Engine
    ) -> None:
        sampling = {"temperature": 1.0, "seed": 3, "max_tokens": 12}
        wanted = request(sampling=sampling, top_logprobs=4, token_texts=True)
        if not engine.capabilities.top_logprobs:
            error = await failure(engine, wanted)
            assert error.kind == "bad_request"
            assert "top_logprobs = 4" in str(error)
            return
        completion = await only(engine, wanted)
        assert all(len(places) == 4 for places in completion.top_logprobs)
        for places in completion.top_logprobs:
            logprobs = [logprob for _, logprob in places]
            assert logprobs == sorted(logprobs, reverse=True)
        assert len(completion.top_logprobs) in (0, len(completion.tokens))
        plain = await only(engine, request(sampling=sampling))
        assert plain.top_logprobs == ()
        assert plain.text == completion.text

    async def test_token_texts_are_returned_on_request(self, engine: Engine) -> None:
        assert (await ask(engine)).tokens == ()
        for stream in (False, True):
            for sampling in ({}, {"temperature": 1.0, "seed": 3}, {"max_tokens": 5}):
                completion = await ask(engine, sampling=sampling, token_texts=True, stream=stream)
                if engine.capabilities.token_ids:
                    assert len(completion.tokens) == len(completion.output_ids)
                pattern = "(?s:.{0,4})".join(
                    re.escape(text) for text in "".join(completion.tokens).split("�")
                )
                assert not completion.tokens or re.fullmatch(pattern, completion.text)
