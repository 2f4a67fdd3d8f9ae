"""Rules for every engine, whatever is behind it. Each engine's test class inherits this one and
gives it a started engine; capabilities that an engine declares missing are skipped with the
reason."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing

import pytest
from pydantic import BaseModel, ConfigDict, Field

from loopline.agents.records import Message
from loopline.workers.engines.protocol import (
    CannotContinue,
    Completion,
    Delta,
    Engine,
    EngineDeadline,
    GenerateRequest,
)
from tests.workers.engines.asking import (
    CALCULATE,
    QUESTION,
    ask,
    completions,
    deltas,
    events,
    failure,
    needs,
    request,
    user,
)
from tests.workers.engines.option_conformance import OptionConformance

ANSWERABLE = 60.0
"""Seconds within which every engine of these tests answers, even on the busiest machine."""


class Answer(BaseModel):
    """The schema that the schema tests request."""

    model_config = ConfigDict(extra="forbid", strict=True)
    answer: int = Field(ge=0, le=999)


class TextConformance:
    """Tests of text and ids: tokens that end within a character or a word, earlier ids. Define the
    fixture `engine`."""

    async def test_streamed_pieces_joined_are_the_text(self, engine: Engine) -> None:
        needs(engine, "streaming")
        stream_events = await events(engine, request(stream=True))
        pieces = deltas(stream_events)
        assert len(pieces) > 1
        last = stream_events[-1]
        assert isinstance(last, Completion)
        assert "".join(piece.text for piece in pieces) == last.text
        assert last.text == (await ask(engine)).text
        if engine.capabilities.token_ids:
            assert sum((piece.ids for piece in pieces), ()) == last.output_ids

    async def test_every_streamed_piece_is_whole_characters(self, engine: Engine) -> None:
        """Characters of two bytes, three, four, and several of four joined to one sign."""
        needs(engine, "streaming")
        needs(engine, "json_schema")
        word = "Größe 日本語 😀 👩‍🚀"
        generate_request = request(
            json_schema={"const": word}, sampling={"max_tokens": 200}, stream=True
        )
        stream_events = await events(engine, generate_request)
        pieces = deltas(stream_events)
        last = stream_events[-1]
        assert isinstance(last, Completion)
        assert json.loads(last.text) == word
        assert "".join(piece.text for piece in pieces) == last.text
        for piece in pieces:
            assert "�" not in piece.text
            piece.text.encode()

    async def test_a_stream_that_ends_within_a_character_stops_there(self, engine: Engine) -> None:
        """Wherever max_tokens cuts, the text has the whole characters before it, then at most one
        sign for the missing rest."""
        needs(engine, "streaming")
        needs(engine, "json_schema")
        word = "ö日😀"
        for limit in range(1, 8):
            sampling = {"max_tokens": limit}
            stream_events = await events(
                engine, request(json_schema={"const": word}, sampling=sampling, stream=True)
            )
            last = stream_events[-1]
            assert isinstance(last, Completion)
            assert "".join(piece.text for piece in deltas(stream_events)) == last.text
            assert f'"{word}"'.startswith(last.text.rstrip("�"))

    async def test_max_tokens_ends_a_completion_with_finish_reason_length(
        self, engine: Engine
    ) -> None:
        completion = await ask(engine, sampling={"max_tokens": 4})
        assert completion.finish_reason == "length"
        assert completion.usage.completion == 4
        whole = await ask(engine)
        assert whole.text.startswith(completion.text.rstrip("�"))

    async def test_text_ends_before_a_stop_string_whatever_the_token_boundaries(
        self, engine: Engine
    ) -> None:
        whole = (await ask(engine)).text
        for start in range(0, len(whole) - 5, 3):
            stop = whole[start : start + 5]
            stream_events = await events(engine, request(sampling={"stop": [stop]}, stream=True))
            last = stream_events[-1]
            assert isinstance(last, Completion)
            assert last.text == whole[: whole.index(stop)]
            assert last.finish_reason == "stop"
            assert "".join(piece.text for piece in deltas(stream_events)) == last.text

    async def test_a_conversation_continues_after_a_tool_result(self, engine: Engine) -> None:
        needs(engine, "tools")
        first = await self.tool_call(engine)
        answer = await ask(engine, self.after_tool(first), tools=[CALCULATE])
        assert "\\boxed{89}" in answer.text

    async def test_a_later_turn_extends_the_earlier_ids(self, engine: Engine) -> None:
        needs(engine, "token_ids")
        needs(engine, "continuation")
        first = await self.tool_call(engine)
        earlier = (*first.prompt_ids, *first.output_ids)
        second = await ask(engine, self.after_tool(first), tools=[CALCULATE], previous_ids=earlier)
        assert second.extends_previous
        assert second.prompt_ids[: len(earlier)] == earlier
        assert "\\boxed{89}" in second.text

    async def test_a_rewritten_history_starts_a_new_sample(self, engine: Engine) -> None:
        needs(engine, "token_ids")
        first = await ask(engine)
        again = await ask(engine, previous_ids=(*first.prompt_ids, *first.output_ids))
        assert not again.extends_previous
        assert again.prompt_ids == first.prompt_ids

    async def test_a_stream_started_elsewhere_is_continued_without_gap_or_repeat(
        self, engine: Engine
    ) -> None:
        needs(engine, "continuation")
        for sampling in ({}, {"temperature": 1.0, "seed": 4}):
            generate_request = request(stream=True, sampling=sampling)
            whole = await events(engine, generate_request)
            full = whole[-1]
            assert isinstance(full, Completion)
            for cut in range(1, len(full.output_ids), 4):
                resumed = generate_request.model_copy(update={"resume_ids": full.output_ids[:cut]})
                rest = await events(engine, resumed)
                last = rest[-1]
                assert isinstance(last, Completion)
                assert (last.text, last.output_ids) == (full.text, full.output_ids)
                assert last.logprobs == pytest.approx(full.logprobs, abs=1e-4)
                beginning = "".join(piece.text for piece in deltas(whole)[:cut])
                assert beginning + "".join(piece.text for piece in deltas(rest)) == full.text

    async def test_every_sampled_completion_follows_the_schema(self, engine: Engine) -> None:
        needs(engine, "json_schema")
        for seed in range(4):
            sampling = {"temperature": 1.5, "seed": seed, "n": 3}
            generate_request = request(
                json_schema=Answer.model_json_schema(), sampling=sampling, stream=True
            )
            stream_events = await events(engine, generate_request)
            for completion in (event for event in stream_events if isinstance(event, Completion)):
                Answer.model_validate_json(completion.text)
                if engine.capabilities.streaming:
                    pieces = deltas(stream_events, completion.index)
                    assert "".join(piece.text for piece in pieces) == completion.text

    async def test_a_stream_under_a_schema_is_continued(self, engine: Engine) -> None:
        needs(engine, "json_schema")
        needs(engine, "continuation")
        for sampling in ({}, {"temperature": 1.5, "seed": 4}):
            generate_request = request(json_schema=Answer.model_json_schema(), sampling=sampling)
            full = await self.only(engine, generate_request)
            for cut in range(1, len(full.output_ids) + 1):
                last = await self.only(
                    engine,
                    generate_request.model_copy(update={"resume_ids": full.output_ids[:cut]}),
                )
                assert (last.text, last.output_ids) == (full.text, full.output_ids)
                assert last.finish_reason == full.finish_reason
                assert last.logprobs == pytest.approx(full.logprobs, abs=1e-4)

    async def only(self, engine: Engine, generate_request: GenerateRequest) -> Completion:
        (completion,) = await completions(engine, generate_request)
        return completion

    async def tool_call(self, engine: Engine) -> Completion:
        """The scripts use their calculator only with some seeds: return the first answer that
        does."""
        sampled = ({"temperature": 1.0, "seed": seed} for seed in range(20))
        for sampling in ({}, *sampled):
            completion = await ask(engine, tools=[CALCULATE], sampling=sampling)
            if completion.tool_calls:
                return completion
        raise AssertionError(f"the {engine.name} engine never used the calculator")

    def after_tool(self, first: Completion) -> list[Message]:
        (call,) = first.tool_calls
        return [
            user(QUESTION),
            Message(role="assistant", raw_text=first.text, tool_calls=first.tool_calls),
            Message(role="tool", content="89", tool_call_id=call.id),
        ]


class EngineConformance(TextConformance, OptionConformance):
    """Inherit this class and define the fixture `engine` (started, closed afterwards)."""

    schema_answer: str | None = '{"answer": 89}'
    """The right answer under the schema; None for a model that cannot be expected to know it."""

    async def test_an_answer_is_one_completion_with_its_usage(self, engine: Engine) -> None:
        completion = await ask(engine)
        assert "89" in completion.text
        assert completion.finish_reason == "stop"
        assert completion.usage.prompt > 0
        assert completion.usage.completion > 0
        assert completion.usage.source in ("provider", "engine")
        assert completion.first_token_seconds >= 0
        assert completion.decode_seconds >= 0

    async def test_a_request_without_stream_produces_no_deltas(self, engine: Engine) -> None:
        assert deltas(await events(engine, request())) == []

    async def test_n_completions_count_the_prompt_once(self, engine: Engine) -> None:
        generate_request = request(sampling={"n": 3, "temperature": 1.0, "seed": 5})
        results = await completions(engine, generate_request)
        assert [completion.index for completion in results] == [0, 1, 2]
        single = await ask(engine, sampling={"temperature": 1.0, "seed": 5})
        assert sum(completion.usage.prompt for completion in results) == single.usage.prompt

    async def test_totals_are_the_sum_of_all_usages(self, engine: Engine) -> None:
        before = engine.totals()
        several = await completions(engine, request(sampling={"n": 2, "temperature": 1.0}))
        streamed = [e for e in await events(engine, request(stream=True)) if e not in several]
        results = [*several, *(e for e in streamed if isinstance(e, Completion))]
        after = engine.totals()
        assert after.calls - before.calls == 2
        assert after.prompt_tokens - before.prompt_tokens == sum(d.usage.prompt for d in results)
        assert after.completion_tokens - before.completion_tokens == sum(
            d.usage.completion for d in results
        )

    async def test_a_tool_call_is_returned_parsed(self, engine: Engine) -> None:
        needs(engine, "tools")
        completion = await self.tool_call(engine)
        (call,) = completion.tool_calls
        assert completion.finish_reason == "tool_calls"
        assert call.name == "calculate"
        assert call.arguments == {"expression": "12 * 7 + 5"}
        assert call.error is None

    async def test_every_output_id_has_a_logprob(self, engine: Engine) -> None:
        needs(engine, "token_ids")
        needs(engine, "logprobs")
        for sampling in ({}, {"temperature": 1.0, "seed": 3}, {"max_tokens": 3}):
            completion = await ask(engine, sampling=sampling)
            assert len(completion.logprobs) == len(completion.output_ids)
            assert len(completion.output_ids) == completion.usage.completion
            assert len(completion.prompt_ids) == completion.usage.prompt
            assert all(logprob <= 1e-6 for logprob in completion.logprobs)

    async def test_score_agrees_with_a_greedy_answer_s_logprobs(self, engine: Engine) -> None:
        needs(engine, "score")
        completion = await ask(engine)
        scores = await engine.score([*completion.prompt_ids, *completion.output_ids])
        assert len(scores) == len(completion.prompt_ids) + len(completion.output_ids) - 1
        assert scores[len(completion.prompt_ids) - 1 :] == pytest.approx(
            completion.logprobs, abs=1e-4
        )
        assert await engine.score(completion.prompt_ids[:1]) == []

    async def test_raw_logprobs_are_the_model_s_own_whatever_the_sampling(
        self, engine: Engine
    ) -> None:
        needs(engine, "score")
        for sampling in ({}, {"temperature": 0.6, "top_p": 0.9, "seed": 3}):
            completion = await ask(engine, sampling=sampling)
            scores = await engine.score([*completion.prompt_ids, *completion.output_ids])
            assert completion.raw_logprobs == pytest.approx(
                scores[len(completion.prompt_ids) - 1 :], abs=1e-4
            )

    async def test_the_same_seed_gives_the_same_tokens(self, engine: Engine) -> None:
        needs(engine, "seeds")
        sampling = {"temperature": 1.5, "seed": 11, "n": 2}
        first = await completions(engine, request(sampling=sampling))
        again = await completions(engine, request(sampling=sampling))
        assert [c.output_ids for c in first] == [c.output_ids for c in again]
        assert [c.text for c in first] == [c.text for c in again]

    async def test_different_seeds_give_different_answers(self, engine: Engine) -> None:
        needs(engine, "seeds")
        texts = [
            (await ask(engine, sampling={"temperature": 2.0, "seed": seed})).text
            for seed in range(8)
        ]
        assert len(set(texts)) > 1

    async def test_continuing_several_completions_is_refused(self, engine: Engine) -> None:
        error = await failure(engine, request(resume_ids=(16777281,), sampling={"n": 2}))
        assert isinstance(error, CannotContinue)
        assert error.kind == "bad_request"

    async def test_a_cancelled_request_raises_and_the_engine_continues(
        self, slow_engine: Engine
    ) -> None:
        generate_request = request(stream=True)
        waiting = asyncio.create_task(failure(slow_engine, generate_request))
        # The task has to reach the engine before it can be cancelled there.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await slow_engine.cancel(generate_request.id)
        error = await asyncio.wait_for(waiting, ANSWERABLE)
        assert error.kind == "cancelled"
        assert "89" in (await ask(slow_engine)).text

    async def test_cancelling_an_unknown_request_does_nothing(self, engine: Engine) -> None:
        await engine.cancel("nobody")

    async def test_a_closed_iterator_frees_the_engine(self, engine: Engine) -> None:
        needs(engine, "streaming")
        for _ in range(3):
            async with aclosing(engine.submit(request(stream=True))) as stream:
                async for event in stream:
                    if isinstance(event, Delta):
                        break
        assert "89" in (await ask(engine)).text

    async def test_a_deadline_in_the_past_is_refused(self, engine: Engine) -> None:
        error = await failure(engine, request(deadline=time.time() - 1))
        assert isinstance(error, EngineDeadline)

    async def test_a_deadline_ends_a_running_request(self, slow_engine: Engine) -> None:
        started = time.monotonic()
        error = await failure(slow_engine, request(deadline=time.time() + 0.05))
        assert isinstance(error, EngineDeadline)
        assert time.monotonic() - started < ANSWERABLE

    async def test_a_prompt_longer_than_the_context_is_refused_with_both_lengths(
        self, engine: Engine
    ) -> None:
        limit = engine.capabilities.max_context
        if limit is None:
            pytest.skip(f"the {engine.name} engine knows no limit of its context")
        error = await failure(engine, request("9 " * 4 * limit))
        assert error.kind == "context_overflow"
        assert not error.retryable
        assert str(limit) in str(error)

    async def test_a_schema_is_followed_or_refused(self, engine: Engine) -> None:
        generate_request = request(json_schema=Answer.model_json_schema())
        if engine.capabilities.json_schema:
            (completion,) = await completions(engine, generate_request)
            Answer.model_validate_json(completion.text)
            assert completion.finish_reason == "stop"
            assert self.schema_answer in (completion.text, None)
        else:
            error = await failure(engine, generate_request)
            assert error.kind == "bad_request"
            assert "schema" in str(error)

    async def test_an_unknown_adapter_is_refused_by_name(self, engine: Engine) -> None:
        error = await failure(engine, request(adapter="slm-v3"))
        assert error.kind == "unknown_adapter"
        assert "slm-v3" in str(error)

    async def test_refused_requests_affect_no_other_and_are_not_counted(
        self, engine: Engine
    ) -> None:
        alone = await ask(engine)
        before = engine.totals()
        refused = (
            request(adapter="slm-v3"),
            request(deadline=time.time() - 1),
            request(resume_ids=(16777281,), sampling={"n": 2}),
        )
        answering = asyncio.create_task(ask(engine))
        errors = await asyncio.gather(
            *(failure(engine, generate_request) for generate_request in refused)
        )
        good: Completion = await answering
        assert good.text == alone.text
        assert [error.kind for error in errors] == ["unknown_adapter", "deadline", "bad_request"]
        after = engine.totals()
        assert after.calls - before.calls == 1
        assert after.completion_tokens - before.completion_tokens == good.usage.completion

    async def test_concurrent_requests_do_not_mix(self, engine: Engine) -> None:
        questions = [QUESTION, "What is 1 + 1?", "What is 12 * 7?", "What is 5 + 12?"] * 4
        alone = {question: (await ask(engine, question)).text for question in set(questions)}
        together = await asyncio.gather(*(ask(engine, question) for question in questions))
        assert [completion.text for completion in together] == [
            alone[question] for question in questions
        ]

    async def test_the_event_loop_stays_free_while_the_engine_works(
        self, slow_engine: Engine
    ) -> None:
        """The loop turns thousands of times during one answer; if blocked, it would turn only a
        few times. It turns without a timer: on a busy machine each wake-up takes milliseconds."""
        asking = asyncio.create_task(ask(slow_engine))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 300
