"""`openai-agents`, with its model of OpenAI's chat completions."""

import asyncio
import uuid

from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from serving import (
    ASLEEP,
    BASE_URL,
    DRIP,
    MODEL,
    POLICY,
    ROOT_URL,
    SLOW,
    TIMEOUT,
    WRONG_KEY,
    Q,
    failed_async,
    of_module,
    serve,
)

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)


class Total(BaseModel):
    sum: int


_called = []


@function_tool
def _weather(city: str) -> str:
    """The weather of a city."""
    _called.append(["weather", {"city": city}])
    return Q["rain"]


@function_tool
def _now() -> str:
    """The time."""
    _called.append(["now", {}])
    return "noon"


_weather.name, _now.name = "weather", "now"


def _agent(model=MODEL, base_url=BASE_URL, client=None, settings=None, **options):
    via = AsyncOpenAI(base_url=base_url, **(client or {}))
    return Agent(
        name="assistant",
        model=OpenAIChatCompletionsModel(model=model, openai_client=via),
        model_settings=ModelSettings(**(settings or {})),
        **options,
    )


async def _ask(text, *model, **options):
    return (await Runner.run(_agent(*model, **options), text)).final_output


async def _calls(text, settings, *tools):
    """The calls of a run that stops at its first calls."""
    _called.clear()
    agent = _agent(settings=settings, tools=list(tools), tool_use_behavior="stop_on_first_tool")
    await Runner.run(agent, text)
    return list(_called)


async def _texts(agent):
    result = Runner.run_streamed(agent, Q["counting"])
    async for event in result.stream_events():
        data = getattr(event, "data", None)
        if isinstance(data, ResponseTextDeltaEvent):
            yield data.delta


async def plain_question():
    return await _ask(Q["plain"])


async def system_message():
    return await _ask(Q["greeting"], instructions=Q["instruction"])


async def developer_message():
    messages = [
        {"role": "developer", "content": Q["instruction"]},
        {"role": "user", "content": Q["greeting"]},
    ]
    return await _ask(messages)


async def history():
    first = await Runner.run(_agent(), Q["name"])
    return await _ask([*first.to_input_list(), {"role": "user", "content": Q["asks_name"]}])


async def streaming():
    return [text async for text in _texts(_agent(SLOW))]


async def stream_usage():
    whole = await Runner.run(_agent(), Q["counting"])
    streamed = Runner.run_streamed(_agent(settings={"include_usage": True}), Q["counting"])
    async for _ in streamed.stream_events():
        pass
    usages = [result.context_wrapper.usage for result in (whole, streamed)]
    return [
        {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        for usage in usages
    ]


async def tool_round_trip():
    _called.clear()
    answer = await _ask(Q["weather"], tools=[_weather])
    return [_called[0][1], answer]


async def streamed_tool_call():
    _called.clear()
    result = Runner.run_streamed(_agent(tools=[_weather]), Q["weather"])
    async for _ in result.stream_events():
        pass
    return list(_called)


async def tool_choice_none():
    return await _calls(Q["weather"], {"tool_choice": "none"}, _weather)


async def tool_choice_required():
    return await _calls(Q["sum"], {"tool_choice": "required"}, _weather)


async def tool_choice_named():
    return await _calls(Q["sum"], {"tool_choice": "now"}, _weather, _now)


async def parallel_tool_calls():
    both = await _calls(Q["two_cities"], {"parallel_tool_calls": True}, _weather)
    single = await _calls(Q["two_cities"], {"parallel_tool_calls": False}, _weather)
    return [sorted(both, key=str), single]


async def structured_output():
    return (await _ask(Q["sum"], output_type=Total)).model_dump()


async def seed():
    settings = {"extra_body": {"seed": 5}}
    return [await _ask(Q["sampled"], settings=settings) for _ in range(3)]


async def stop():
    return await _ask(Q["counting"], settings={"extra_body": {"stop": [" four"]}})


async def unknown_model():
    return await failed_async(lambda: _ask(Q["greeting"], "nobody"))


async def policy():
    return [await _ask(Q["plain"], name) for name in (POLICY, f"{POLICY}@0")]


async def other_version():
    return await failed_async(lambda: _ask(Q["greeting"], f"{POLICY}@3"))


async def wrong_key():
    return await failed_async(lambda: _ask(Q["greeting"], client={"api_key": WRONG_KEY}))


async def invalid_field():
    return await failed_async(lambda: _ask(Q["greeting"], settings={"temperature": 9.0}))


async def overload():
    return await _ask(Q["plain"])


async def timeout():
    hurried = {"timeout": TIMEOUT, "max_retries": 0}
    return await failed_async(lambda: _ask(Q["greeting"], ASLEEP, client=hurried))


async def session():
    agent = _agent(base_url=f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1")
    first = await Runner.run(agent, Q["plain"])
    follow_up = [*first.to_input_list(), {"role": "user", "content": "Are you sure?"}]
    second = await Runner.run(agent, follow_up)
    return [result.raw_responses[0].request_id for result in (first, second)]


async def idempotency_key():
    settings = {"extra_headers": {"Idempotency-Key": str(uuid.uuid4())}}
    results = [await Runner.run(_agent(settings=settings), Q["sampled"]) for _ in range(2)]
    return [result.raw_responses[0].request_id for result in results]


async def workflow():
    return await _ask(Q["plain"], "workflow/solo")


async def unicode():
    return await _ask(Q["unicode"])


async def abandoned_stream():
    begun = asyncio.Event()
    texts = []

    async def read():
        async for text in _texts(_agent(DRIP)):
            texts.append(text)
            begun.set()

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return texts[0]


serve(of_module(globals()))
