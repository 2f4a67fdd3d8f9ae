"""The `openai` package, asynchronous."""

import json
import uuid

from openai import AsyncOpenAI
from pydantic import BaseModel
from serving import (
    ASLEEP,
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

client = AsyncOpenAI()


class Total(BaseModel):
    sum: int


def _user(text):
    return {"role": "user", "content": text}


async def _ask(text, model=MODEL, via=client, **options):
    return await via.chat.completions.create(model=model, messages=[_user(text)], **options)


def _text(completion):
    return completion.choices[0].message.content


def _calls(completion):
    return [
        [call.function.name, json.loads(call.function.arguments)]
        for call in completion.choices[0].message.tool_calls or []
    ]


async def plain_question():
    return _text(await _ask(Q["plain"]))


async def _instructed(role):
    messages = [{"role": role, "content": Q["instruction"]}, _user(Q["greeting"])]
    return _text(await client.chat.completions.create(model=MODEL, messages=messages))


async def system_message():
    return await _instructed("system")


async def developer_message():
    return await _instructed("developer")


async def history():
    first = (await _ask(Q["name"])).choices[0].message
    messages = [_user(Q["name"]), first, _user(Q["asks_name"])]
    return _text(await client.chat.completions.create(model=MODEL, messages=messages))


async def streaming():
    chunks = await _ask(Q["counting"], SLOW, stream=True)
    deltas = [chunk.choices[0].delta async for chunk in chunks]
    return [delta.content for delta in deltas if delta.content]


async def stream_usage():
    whole = (await _ask(Q["counting"])).usage
    stream = await _ask(Q["counting"], stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices == []
    return [whole.model_dump(), chunks[-1].usage.model_dump()]


async def tool_round_trip():
    messages = [_user(Q["weather"])]
    options = {"model": MODEL, "tools": [Q["weather_tool"]]}
    answer = (await client.chat.completions.create(messages=messages, **options)).choices[0]
    assert answer.finish_reason == "tool_calls"
    call = answer.message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": Q["rain"]}
    messages += [answer.message, result]
    last = await client.chat.completions.create(messages=messages, **options)
    return [json.loads(call.function.arguments), _text(last)]


async def streamed_tool_call():
    async with client.chat.completions.stream(
        model=MODEL, messages=[_user(Q["weather"])], tools=[Q["weather_tool"]]
    ) as stream:
        await stream.until_done()
        return _calls(await stream.get_final_completion())


async def tool_choice_none():
    return _calls(await _ask(Q["weather"], tools=[Q["weather_tool"]], tool_choice="none"))


async def tool_choice_required():
    return _calls(await _ask(Q["sum"], tools=[Q["weather_tool"]], tool_choice="required"))


async def tool_choice_named():
    named = {"type": "function", "function": {"name": "now"}}
    return _calls(await _ask(Q["sum"], tools=[Q["weather_tool"], Q["now_tool"]], tool_choice=named))


async def parallel_tool_calls():
    tools = [Q["weather_tool"]]
    single = await _ask(Q["two_cities"], tools=tools, parallel_tool_calls=False)
    return [_calls(await _ask(Q["two_cities"], tools=tools)), _calls(single)]


async def structured_output():
    completion = await client.chat.completions.parse(
        model=MODEL, messages=[_user(Q["sum"])], response_format=Total
    )
    return completion.choices[0].message.parsed.model_dump()


async def several_choices():
    return [choice.message.content for choice in (await _ask(Q["fruit"], n=2)).choices]


async def seed():
    return [_text(await _ask(Q["sampled"], seed=5)) for _ in range(3)]


async def stop():
    return _text(await _ask(Q["counting"], stop=[" four"]))


async def length():
    choice = (await _ask(Q["counting"], max_completion_tokens=3)).choices[0]
    return [choice.finish_reason, choice.message.content]


async def logprobs():
    choice = (await _ask(Q["counting"], logprobs=True)).choices[0]
    tokens = choice.logprobs.content
    return ["".join(token.token for token in tokens), [token.logprob for token in tokens]]


async def unknown_model():
    return await failed_async(lambda: _ask(Q["greeting"], "nobody"))


async def policy():
    return [_text(await _ask(Q["plain"], name)) for name in (POLICY, f"{POLICY}@0")]


async def other_version():
    return await failed_async(lambda: _ask(Q["greeting"], f"{POLICY}@3"))


async def embeddings():
    return await failed_async(lambda: client.embeddings.create(model=MODEL, input="x"))


async def wrong_key():
    return await failed_async(lambda: _ask(Q["greeting"], via=AsyncOpenAI(api_key=WRONG_KEY)))


async def invalid_field():
    return await failed_async(lambda: _ask(Q["greeting"], temperature=9))


async def overload():
    return _text(await _ask(Q["plain"]))


async def timeout():
    hurried = client.with_options(timeout=TIMEOUT, max_retries=0)
    return await failed_async(lambda: _ask(Q["greeting"], ASLEEP, via=hurried))


async def request_id():
    completion = await _ask(Q["greeting"])
    return [completion.id, completion._request_id]


async def models():
    return [model.id async for model in client.models.list()]


async def session():
    in_session = AsyncOpenAI(base_url=f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1")
    messages = [_user(Q["plain"])]
    first = await in_session.chat.completions.create(model=MODEL, messages=messages)
    messages += [first.choices[0].message, _user("Are you sure?")]
    second = await in_session.chat.completions.create(model=MODEL, messages=messages)
    return [first.id, second.id]


async def idempotency_key():
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    return [(await _ask(Q["sampled"], extra_headers=headers)).id for _ in range(2)]


async def workflow():
    return _text(await _ask(Q["plain"], "workflow/solo"))


async def unicode():
    return _text(await _ask(Q["unicode"]))


async def abandoned_stream():
    async with await _ask(Q["counting"], DRIP, stream=True) as stream:
        texts = (chunk.choices[0].delta.content async for chunk in stream)
        return await anext(text async for text in texts if text)


serve(of_module(globals()))
