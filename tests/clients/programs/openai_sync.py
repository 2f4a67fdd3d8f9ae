"""The `openai` package, synchronous."""

import json
import uuid

from openai import OpenAI
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
    failed,
    of_module,
    serve,
)

client = OpenAI()


class Total(BaseModel):
    sum: int


def _user(text):
    return {"role": "user", "content": text}


def _ask(text, model=MODEL, via=client, **options):
    return via.chat.completions.create(model=model, messages=[_user(text)], **options)


def _text(completion):
    return completion.choices[0].message.content


def _calls(completion):
    return [
        [call.function.name, json.loads(call.function.arguments)]
        for call in completion.choices[0].message.tool_calls or []
    ]


def plain_question():
    return _text(_ask(Q["plain"]))


def _instructed(role):
    messages = [{"role": role, "content": Q["instruction"]}, _user(Q["greeting"])]
    return _text(client.chat.completions.create(model=MODEL, messages=messages))


def system_message():
    return _instructed("system")


def developer_message():
    return _instructed("developer")


def history():
    first = _ask(Q["name"]).choices[0].message
    messages = [_user(Q["name"]), first, _user(Q["asks_name"])]
    return _text(client.chat.completions.create(model=MODEL, messages=messages))


def streaming():
    chunks = _ask(Q["counting"], SLOW, stream=True)
    return [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]


def stream_usage():
    whole = _ask(Q["counting"]).usage
    chunks = list(_ask(Q["counting"], stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    return [whole.model_dump(), chunks[-1].usage.model_dump()]


def tool_round_trip():
    messages = [_user(Q["weather"])]
    options = {"model": MODEL, "tools": [Q["weather_tool"]]}
    answer = client.chat.completions.create(messages=messages, **options).choices[0]
    assert answer.finish_reason == "tool_calls"
    call = answer.message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": Q["rain"]}
    messages += [answer.message, result]
    last = client.chat.completions.create(messages=messages, **options)
    return [json.loads(call.function.arguments), _text(last)]


def streamed_tool_call():
    with client.chat.completions.stream(
        model=MODEL, messages=[_user(Q["weather"])], tools=[Q["weather_tool"]]
    ) as stream:
        stream.until_done()
        return _calls(stream.get_final_completion())


def tool_choice_none():
    return _calls(_ask(Q["weather"], tools=[Q["weather_tool"]], tool_choice="none"))


def tool_choice_required():
    return _calls(_ask(Q["sum"], tools=[Q["weather_tool"]], tool_choice="required"))


def tool_choice_named():
    named = {"type": "function", "function": {"name": "now"}}
    return _calls(_ask(Q["sum"], tools=[Q["weather_tool"], Q["now_tool"]], tool_choice=named))


def parallel_tool_calls():
    tools = [Q["weather_tool"]]
    single = _ask(Q["two_cities"], tools=tools, parallel_tool_calls=False)
    return [_calls(_ask(Q["two_cities"], tools=tools)), _calls(single)]


def structured_output():
    completion = client.chat.completions.parse(
        model=MODEL, messages=[_user(Q["sum"])], response_format=Total
    )
    return completion.choices[0].message.parsed.model_dump()


def several_choices():
    return [choice.message.content for choice in _ask(Q["fruit"], n=2).choices]


def seed():
    return [_text(_ask(Q["sampled"], seed=5)) for _ in range(3)]


def stop():
    return _text(_ask(Q["counting"], stop=[" four"]))


def length():
    choice = _ask(Q["counting"], max_completion_tokens=3).choices[0]
    return [choice.finish_reason, choice.message.content]


def logprobs():
    choice = _ask(Q["counting"], logprobs=True).choices[0]
    tokens = choice.logprobs.content
    return ["".join(token.token for token in tokens), [token.logprob for token in tokens]]


def unknown_model():
    return failed(lambda: _ask(Q["greeting"], "nobody"))


def policy():
    return [_text(_ask(Q["plain"], name)) for name in (POLICY, f"{POLICY}@0")]


def other_version():
    return failed(lambda: _ask(Q["greeting"], f"{POLICY}@3"))


def embeddings():
    return failed(lambda: client.embeddings.create(model=MODEL, input="x"))


def wrong_key():
    return failed(lambda: _ask(Q["greeting"], via=OpenAI(api_key=WRONG_KEY)))


def invalid_field():
    return failed(lambda: _ask(Q["greeting"], temperature=9))


def overload():
    return _text(_ask(Q["plain"]))


def timeout():
    hurried = client.with_options(timeout=TIMEOUT, max_retries=0)
    return failed(lambda: _ask(Q["greeting"], ASLEEP, via=hurried))


def request_id():
    completion = _ask(Q["greeting"])
    return [completion.id, completion._request_id]


def models():
    return [model.id for model in client.models.list()]


def session():
    in_session = OpenAI(base_url=f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1")
    messages = [_user(Q["plain"])]
    first = in_session.chat.completions.create(model=MODEL, messages=messages)
    messages += [first.choices[0].message, _user("Are you sure?")]
    second = in_session.chat.completions.create(model=MODEL, messages=messages)
    return [first.id, second.id]


def idempotency_key():
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    return [_ask(Q["sampled"], extra_headers=headers).id for _ in range(2)]


def workflow():
    return _text(_ask(Q["plain"], "workflow/solo"))


def unicode():
    return _text(_ask(Q["unicode"]))


def abandoned_stream():
    with _ask(Q["counting"], DRIP, stream=True) as stream:
        texts = (chunk.choices[0].delta.content for chunk in stream)
        return next(text for text in texts if text)


serve(of_module(globals()))
