"""Apps that run in this process: definitions, typed answers, threads, teams, the sync API."""

from __future__ import annotations

import asyncio
import time

import pytest
from pydantic import BaseModel

from loopline import App
from loopline.agents.records import Message
from loopline.bus import claim
from loopline.runtime.app import (
    Answered,
    GenerationOptions,
    StepEnded,
    ToolCalled,
    WrongAnswer,
)
from loopline.runtime.app.session import LocalSession
from loopline.runtime.app.testing import Reply, call
from loopline.runtime.app.thread import ThreadBusy
from loopline.runtime.errors import InputError
from loopline.workers.engines.settings import ModelSettings

PRICES = {"A7": 12.5}


class Quote(BaseModel):
    sku: str
    price: float


def shop() -> App:
    app = App()

    @app.tool
    def price(sku: str) -> float:
        """The price of an article in euros."""
        return PRICES[sku]

    app.agent("support", instructions="You sell things.", tools=[price], model="slm")
    return app


async def test_an_agent_calls_a_function_of_its_app() -> None:
    app, requests = shop(), list[str]()

    def model(messages: tuple[Message, ...]) -> Reply:
        requests.append(messages[-1].content)
        return call("price", sku="A7") if len(requests) == 1 else "12.5 euros, ~5 °C"

    async with app.testing(slm=model):
        assert await app.ask("How much is A7?") == "12.5 euros, ~5 °C"
    assert requests == ["How much is A7?", "12.5"]


async def test_the_model_reads_the_exception_of_a_failed_tool() -> None:
    app = shop()
    async with app.testing(slm=[call("price", sku="B1"), "It is not for sale."]):
        events = [event async for event in app.stream("How much is B1?")]
    [called] = [event for event in events if isinstance(event, ToolCalled)]
    assert called.name == "price"
    assert called.output == {"error": "price failed: KeyError: 'B1'"}
    assert [event.decision for event in events if isinstance(event, StepEnded)] == ["answer"]
    assert isinstance(events[-1], Answered)


async def test_a_typed_answer_is_an_instance_and_a_wrong_one_is_retried() -> None:
    app = shop()
    replies = [call("price", sku="A7"), "12.5", '{"sku": "A7", "price": 12.5}']
    async with app.testing(slm=replies):
        quote = await app.ask("How much is A7?", answer=Quote)
    assert quote == Quote(sku="A7", price=12.5)


async def test_the_error_after_three_answers_of_the_wrong_type_carries_the_last_one() -> None:
    app = shop()
    async with app.testing(slm=["a", "b", "c"]):
        with pytest.raises(WrongAnswer, match="after 3 tries") as caught:
            await app.ask("How much is A7?", answer=Quote)
    assert caught.value.answer == "c"


async def test_a_thread_remembers_its_turns_and_runs_them_one_at_a_time() -> None:
    app, heard = App(), list[list[str]]()
    app.agent("echo", model="slm")

    def model(messages: tuple[Message, ...]) -> str:
        heard.append([message.content for message in messages])
        return f"answer {len(heard)}"

    async with app.testing(slm=model):
        thread = app.thread("customer-7")
        assert await thread.ask("one") == "answer 1"
        await asyncio.gather(app.thread("customer-7").ask("two"), thread.ask("three"))
        texts = [message.content for message in await thread.messages()]
    assert heard[0] == ["one"]
    assert heard[1][:2] == ["one", "answer 1"]
    assert len(heard[2]) == 5
    assert texts[:2] == ["one", "answer 1"]
    assert {texts[2], texts[4]} == {"two", "three"}


async def test_a_claimed_thread_is_busy_although_the_clock_of_the_bus_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The claim has the time of the bus, whose clock is an hour behind this machine's."""
    app, bus_time = App(), time.time() - 3_600
    app.agent("echo", model="slm")
    async with app.testing(slm=["a"]), app.session() as session:
        bus = session.client.bus
        monkeypatch.setattr(bus.clock, "now", lambda: bus_time)
        assert await session.advance("t", None, claim(bus, "about-to-be-admitted", ""))
        with pytest.raises(ThreadBusy):
            await app.thread("t").ask("one", timeout=0.3)


async def test_a_turn_without_an_answer_is_left_out_of_the_thread() -> None:
    app = App()
    app.agent("echo", model="slm")
    async with app.testing(slm=["a", " ", "c"]):
        thread = app.thread("t")
        await thread.ask("one")
        with pytest.raises(Exception, match="gave up"):
            await thread.ask("two")
        await thread.ask("three")
        texts = [message.content for message in await thread.messages()]
    assert texts == ["one", "a", "three", "c"]


async def test_a_sequence_a_parallel_team_and_a_loop_take_one_line_each() -> None:
    app = App()
    writer, critic, editor = (app.agent(name, model="slm") for name in ("w", "c", "e"))
    row = app.sequence(writer, critic, editor)
    fan = app.parallel(writer, critic)
    loop = app.loop(writer, critic, until="APPROVED")
    async with app.testing(slm=["1", "2", "3"]):
        assert await app.ask("Q", agent=row) == "3"
    async with app.testing(slm=["1", "2"]):
        assert await app.ask("Q", agent=fan) == "w:\n1\n\nc:\n2"
    async with app.testing(slm=["draft", "no", "better", "APPROVED"]):
        assert await app.ask("Q", agent=loop) == "better"


def test_the_sync_api_works_with_and_without_a_running_event_loop() -> None:
    app = shop()

    async def main() -> tuple[str, str]:
        async with app.testing(slm=["one", "two"]):
            return app.sync.ask("Q"), await asyncio.to_thread(app.sync.ask, "Q")

    assert asyncio.run(main()) == ("one", "two")


async def test_an_error_about_an_unknown_name_suggests_a_similar_one() -> None:
    app = shop()
    async with app.testing(slm=["a"]):
        with pytest.raises(InputError, match="did you mean 'support'"):
            await app.ask("Q", agent="suport")
    async with app.testing(slmm=["a"]):
        with pytest.raises(InputError, match="did you mean 'slmm'"):
            await app.ask("Q")


async def test_a_budget_must_be_positive_and_is_refused_in_a_test_with_a_paid_model() -> None:
    app = shop()
    async with app.testing(slm=["a"]):
        assert await app.ask("Q", budget_usd=0.5, budget_tokens=10) == "a"
        with pytest.raises(InputError, match="budget_usd must be more than 0"):
            await app.ask("Q", budget_usd=0)
        with pytest.raises(InputError, match="budget_tokens must be at least 1"):
            await app.ask("Q", budget_tokens=0)
    paid = ModelSettings(engine="openai", model="m", base_url="http://127.0.0.1:9/v1")
    async with app.testing(slm=paid):
        with pytest.raises(InputError, match="only the bus enforces"):
            await app.ask("Q", budget_tokens=10)


def test_an_invalid_definition_raises_immediately() -> None:
    app = shop()
    with pytest.raises(InputError, match="two tools called 'price'"):
        app.tool(name="price", description="x")(lambda: 1)
    with pytest.raises(InputError, match="two agents called 'support'"):
        app.agent("support")
    with pytest.raises(InputError, match="until= must be data"):
        app.loop(app.agent("w"), until=print)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="2 agents or teams"):
        app.main()
    with pytest.raises(TypeError, match="needs a docstring"):
        app.tool(lambda: 1)


async def test_a_parallel_team_refuses_a_typed_answer() -> None:
    app = App()
    fan = app.parallel(app.agent("a", model="slm"), app.agent("b", model="slm"))
    async with app.testing(slm=["a"]):
        with pytest.raises(InputError, match="no single answer"):
            await app.ask("Q", agent=fan, answer=Quote)


async def test_a_test_with_too_few_scripted_replies_fails_with_the_reason() -> None:
    app = shop()
    async with app.testing(slm=[call("price", sku="A7")]):
        with pytest.raises(InputError, match="asked once more"):
            await app.ask("How much is A7?")


async def test_sampling_options_reach_every_agent_but_only_the_last_is_limited_in_length() -> None:
    app = App()
    team = app.sequence(app.agent("writer", model="slm"), app.agent("editor", model="slm"))
    generation = GenerationOptions(temperature=0.25, max_tokens=7, stop=("!",))
    async with app.testing(slm=["draft", "text"]):
        *_, end = [event async for event in app.stream("?", agent=team, generation=generation)]
        assert isinstance(end, Answered)
        async with app.session() as session:
            steps = (await session.wait(end.run_id)).steps
    writer, editor = (call.sampling for step in steps for call in step.calls)
    assert (writer.temperature, editor.temperature) == (0.25, 0.25)
    assert writer.max_tokens != 7, "an agent that does not answer is not cut"
    assert (editor.max_tokens, editor.stop) == (7, ("!",))


async def test_a_sampling_option_that_a_team_cannot_honour_is_refused_by_name() -> None:
    app = App()
    app.agent("support", model="slm")
    async with app.testing(slm=["never"]):
        for ask in (app.ask, app.thread("t").ask):
            with pytest.raises(InputError, match="cannot honour 'n'"):
                await ask("Hello", generation=GenerationOptions(n=2))
        with pytest.raises(InputError, match="cannot honour 'n'"):
            async for _ in app.stream("Hello", generation=GenerationOptions(n=2)):
                pass


async def test_sampling_options_apply_only_to_the_turn_that_sets_them() -> None:
    app = App()
    app.agent("support", model="slm")
    async with app.testing(slm=["a", "b"]):
        thread = app.thread("t")
        assert await thread.ask("1", generation=GenerationOptions(temperature=0.5)) == "a"
        assert await thread.ask("2") == "b"
        async with app.session() as session:
            assert isinstance(session, LocalSession)
            head = await session.head("t")
            assert head is not None
            assert (await session.run(head.previous)).generation == GenerationOptions(
                temperature=0.5
            )
            assert (await session.run(head.run_id)).generation is None
