"""`litellm`, by its model names `openai/…`."""

import json
import uuid

import litellm
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

litellm.suppress_debug_info = True


class Total(BaseModel):
    sum: int


def _user(text):
    return {"role": "user", "content": text}


def _ask(text, model=MODEL, **options):
    return _complete([_user(text)], model, **options)


def _complete(messages, model=MODEL, **options):
    return litellm.completion(model=f"openai/{model}", messages=messages, **options)


def _text(completion):
    return completion.choices[0].message.content


def _called(calls):
    return [[call.function.name, json.loads(call.function.arguments)] for call in calls or []]


def _calls(completion):
    return _called(completion.choices[0].message.tool_calls)


def plain_question():
    return _text(_ask(Q["plain"]))


def _instructed(role):
    return _text(_complete([{"role": role, "content": Q["instruction"]}, _user(Q["greeting"])]))


def system_message():
    return _instructed("system")


def developer_message():
    return _instructed("developer")


def history():
    first = _ask(Q["name"]).choices[0].message
    return _text(_complete([_user(Q["name"]), first, _user(Q["asks_name"])]))


def streaming():
    chunks = list(_ask(Q["counting"], SLOW, stream=True))
    texts = [chunk.choices[0].delta.content for chunk in chunks]
    return [text for text in texts if text]


def stream_usage():
    chunks = list(_ask(Q["counting"], stream=True, stream_options={"include_usage": True}))
    usage = next(chunk.usage for chunk in reversed(chunks) if getattr(chunk, "usage", None))
    return [_ask(Q["counting"]).usage.model_dump(), usage.model_dump()]


def tool_round_trip():
    messages, tools = [_user(Q["weather"])], [Q["weather_tool"]]
    message = _complete(messages, tools=tools).choices[0].message
    call = message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": Q["rain"]}
    last = _complete([*messages, message, result], tools=tools)
    return [json.loads(call.function.arguments), _text(last)]


def streamed_tool_call():
    chunks = list(_ask(Q["weather"], tools=[Q["weather_tool"]], stream=True))
    return _calls(litellm.stream_chunk_builder(chunks))


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
    return Total.model_validate_json(_text(_ask(Q["sum"], response_format=Total))).model_dump()


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
    tokens = _ask(Q["counting"], logprobs=True).choices[0].logprobs.content
    return ["".join(token.token for token in tokens), [token.logprob for token in tokens]]


def unknown_model():
    return failed(lambda: _ask(Q["greeting"], "nobody"))


def policy():
    return [_text(_ask(Q["plain"], name)) for name in (POLICY, f"{POLICY}@0")]


def other_version():
    return failed(lambda: _ask(Q["greeting"], f"{POLICY}@3"))


def embeddings():
    return failed(lambda: litellm.embedding(model=f"openai/{MODEL}", input=["x"]))


def wrong_key():
    return failed(lambda: _ask(Q["greeting"], api_key=WRONG_KEY))


def invalid_field():
    return failed(lambda: _ask(Q["greeting"], temperature=9))


def overload():
    return _text(_ask(Q["plain"], num_retries=3))


def timeout():
    return failed(lambda: _ask(Q["greeting"], ASLEEP, timeout=TIMEOUT, max_retries=0))


def request_id():
    completion = _ask(Q["greeting"])
    headers = completion._hidden_params["additional_headers"]
    return [completion.id, headers["llm_provider-x-request-id"]]


def session():
    base_url = f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1"
    first = _ask(Q["plain"], base_url=base_url)
    messages = [_user(Q["plain"]), first.choices[0].message, _user("Are you sure?")]
    return [first.id, _complete(messages, base_url=base_url).id]


def idempotency_key():
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    return [_ask(Q["sampled"], extra_headers=headers).id for _ in range(2)]


def workflow():
    return _text(_ask(Q["plain"], "workflow/solo"))


def unicode():
    return _text(_ask(Q["unicode"]))


def abandoned_stream():
    stream = _ask(Q["counting"], DRIP, stream=True)
    texts = (chunk.choices[0].delta.content for chunk in stream)
    text = next(text for text in texts if text)
    stream.completion_stream.close()
    return text


serve(of_module(globals()))
