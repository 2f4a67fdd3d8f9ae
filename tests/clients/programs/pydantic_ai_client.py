"""`pydantic-ai`, with its model of OpenAI's chat completions."""

import asyncio
import uuid

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
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


class Total(BaseModel):
    sum: int


def _model(name=MODEL, base_url=BASE_URL, **client):
    via = AsyncOpenAI(base_url=base_url, **client)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=via))


def _agent(name=MODEL, **options):
    return Agent(_model(name), **options)


async def _ask(text, name=MODEL, **settings):
    return (await _agent(name).run(text, model_settings=settings)).output


async def _response(text, model=None, tools=(), **settings):
    parameters = ModelRequestParameters(function_tools=[_definition(name) for name in tools])
    request = [ModelRequest.user_text_prompt(text)]
    return await model_request(
        model or _model(), request, model_settings=settings, model_request_parameters=parameters
    )


def _definition(name):
    function = Q[f"{name}_tool"]["function"]
    return ToolDefinition(
        name=name,
        description=function["description"],
        parameters_json_schema=function["parameters"],
    )


def _calls(response):
    parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
    return [[part.tool_name, part.args_as_dict()] for part in parts]


async def plain_question():
    return await _ask(Q["plain"])


async def system_message():
    return (await _agent(system_prompt=Q["instruction"]).run(Q["greeting"])).output


async def developer_message():
    via = OpenAIProvider(openai_client=AsyncOpenAI())
    profile = OpenAIModelProfile(openai_system_prompt_role="developer")
    agent = Agent(OpenAIChatModel(MODEL, provider=via, profile=profile))
    agent.system_prompt(lambda: Q["instruction"])
    return (await agent.run(Q["greeting"])).output


async def history():
    agent = _agent()
    first = await agent.run(Q["name"])
    return (await agent.run(Q["asks_name"], message_history=first.all_messages())).output


async def streaming():
    async with _agent(SLOW).run_stream(Q["counting"]) as result:
        return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]


async def stream_usage():
    whole = (await _agent().run(Q["counting"])).usage
    async with _agent().run_stream(Q["counting"]) as result:
        await result.get_output()
        usages = [whole, result.usage]
    return [
        {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        for usage in usages
    ]


async def tool_round_trip():
    arguments = []

    def weather(city: str) -> str:
        """The weather of a city."""
        arguments.append({"city": city})
        return Q["rain"]

    result = await _agent(tools=[weather]).run(Q["weather"])
    return [*arguments, result.output]


async def streamed_tool_call():
    calls = []

    def weather(city: str) -> str:
        """The weather of a city."""
        calls.append(["weather", {"city": city}])
        return Q["rain"]

    async with _agent(tools=[weather]).run_stream(Q["weather"]) as result:
        await result.get_output()
    return calls


async def tool_choice_none():
    return _calls(await _response(Q["weather"], tools=["weather"], tool_choice="none"))


async def tool_choice_required():
    return _calls(await _response(Q["sum"], tools=["weather"], tool_choice="required"))


async def tool_choice_named():
    return _calls(await _response(Q["sum"], tools=["weather", "now"], tool_choice=["now"]))


async def parallel_tool_calls():
    both = await _response(Q["two_cities"], tools=["weather"])
    single = await _response(Q["two_cities"], tools=["weather"], parallel_tool_calls=False)
    return [_calls(both), _calls(single)]


async def structured_output():
    result = await _agent(output_type=NativeOutput(Total)).run(Q["sum"])
    return result.output.model_dump()


async def seed():
    return [await _ask(Q["sampled"], seed=5) for _ in range(3)]


async def stop():
    return await _ask(Q["counting"], stop_sequences=[" four"])


async def length():
    response = await _response(Q["counting"], max_tokens=3)
    return [response.finish_reason, response.text]


async def logprobs():
    response = await _response(Q["counting"], openai_logprobs=True)
    tokens = response.provider_details["logprobs"]
    return ["".join(token["token"] for token in tokens), [token["logprob"] for token in tokens]]


async def unknown_model():
    return await failed_async(lambda: _ask(Q["greeting"], "nobody"))


async def policy():
    return [await _ask(Q["plain"], name) for name in (POLICY, f"{POLICY}@0")]


async def other_version():
    return await failed_async(lambda: _ask(Q["greeting"], f"{POLICY}@3"))


async def wrong_key():
    return await failed_async(lambda: _response(Q["greeting"], _model(api_key=WRONG_KEY)))


async def invalid_field():
    return await failed_async(lambda: _ask(Q["greeting"], temperature=9.0))


async def overload():
    return await _ask(Q["plain"])


async def timeout():
    hurried = _model(ASLEEP, max_retries=0)
    return await failed_async(lambda: _response(Q["greeting"], hurried, timeout=TIMEOUT))


async def session():
    agent = Agent(_model(base_url=f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1"))
    first = await agent.run(Q["plain"])
    second = await agent.run("Are you sure?", message_history=first.all_messages())
    return [result.response.provider_response_id for result in (first, second)]


async def idempotency_key():
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    responses = [await _response(Q["sampled"], extra_headers=headers) for _ in range(2)]
    return [response.provider_response_id for response in responses]


async def workflow():
    return await _ask(Q["plain"], "workflow/solo")


async def unicode():
    return await _ask(Q["unicode"])


async def abandoned_stream():
    begun = asyncio.Event()
    texts = []

    async def read():
        async with _agent(DRIP).run_stream(Q["counting"]) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                texts.append(text)
                begun.set()

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return texts[0]


serve(of_module(globals()))
