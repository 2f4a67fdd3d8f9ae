"""`langchain-openai`."""

import uuid

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
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


class Total(BaseModel):
    sum: int


@tool
def _weather(city: str) -> str:
    """The weather of a city."""
    return Q["rain"]


@tool
def _now() -> str:
    """The time."""
    return "noon"


_weather.name, _now.name = "weather", "now"


def _model(name=MODEL, **options):
    return ChatOpenAI(model=name, **options)


def _ask(text, name=MODEL, **options):
    return _model(name, **options).invoke(text)


def _calls(message):
    return [[call["name"], call["args"]] for call in message.tool_calls]


def plain_question():
    return _ask(Q["plain"]).content


def system_message():
    return _model().invoke([SystemMessage(Q["instruction"]), HumanMessage(Q["greeting"])]).content


def developer_message():
    return _model().invoke([("developer", Q["instruction"]), ("user", Q["greeting"])]).content


def history():
    first = _ask(Q["name"])
    assert isinstance(first, AIMessage)
    return _model().invoke([HumanMessage(Q["name"]), first, HumanMessage(Q["asks_name"])]).content


def streaming():
    return [chunk.content for chunk in _model(SLOW).stream(Q["counting"]) if chunk.content]


def stream_usage():
    whole = _ask(Q["counting"]).usage_metadata
    streamed = None
    for chunk in _model(stream_usage=True).stream(Q["counting"]):
        streamed = chunk.usage_metadata or streamed
    return [
        {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}
        for usage in (whole, streamed)
    ]


def tool_round_trip():
    model = _model().bind_tools([_weather])
    messages = [HumanMessage(Q["weather"])]
    answer = model.invoke(messages)
    call = answer.tool_calls[0]
    result = ToolMessage(_weather.invoke(call["args"]), tool_call_id=call["id"])
    return [call["args"], model.invoke([*messages, answer, result]).content]


def streamed_tool_call():
    whole = None
    for chunk in _model().bind_tools([_weather]).stream(Q["weather"]):
        whole = chunk if whole is None else whole + chunk
    return _calls(whole)


def tool_choice_none():
    return _calls(_model().bind_tools([_weather], tool_choice="none").invoke(Q["weather"]))


def tool_choice_required():
    return _calls(_model().bind_tools([_weather], tool_choice="required").invoke(Q["sum"]))


def tool_choice_named():
    return _calls(_model().bind_tools([_weather, _now], tool_choice="now").invoke(Q["sum"]))


def parallel_tool_calls():
    single = _model().bind_tools([_weather], parallel_tool_calls=False)
    models = (_model().bind_tools([_weather]), single)
    return [_calls(model.invoke(Q["two_cities"])) for model in models]


def structured_output():
    return _model().with_structured_output(Total).invoke(Q["sum"]).model_dump()


def several_choices():
    result = _model(n=2).generate([[HumanMessage(Q["fruit"])]])
    return [generation.text for generation in result.generations[0]]


def seed():
    return [_ask(Q["sampled"], seed=5).content for _ in range(3)]


def stop():
    return _model(stop=[" four"]).invoke(Q["counting"]).content


def length():
    message = _ask(Q["counting"], max_tokens=3)
    return [message.response_metadata["finish_reason"], message.content]


def logprobs():
    tokens = _ask(Q["counting"], logprobs=True).response_metadata["logprobs"]["content"]
    return ["".join(token["token"] for token in tokens), [token["logprob"] for token in tokens]]


def unknown_model():
    return failed(lambda: _ask(Q["greeting"], "nobody"))


def policy():
    return [_ask(Q["plain"], name).content for name in (POLICY, f"{POLICY}@0")]


def other_version():
    return failed(lambda: _ask(Q["greeting"], f"{POLICY}@3"))


def embeddings():
    unchecked = OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False)
    return failed(lambda: unchecked.embed_query("x"))


def wrong_key():
    return failed(lambda: _ask(Q["greeting"], api_key=WRONG_KEY))


def invalid_field():
    return failed(lambda: _ask(Q["greeting"], temperature=9))


def overload():
    return _ask(Q["plain"]).content


def timeout():
    return failed(lambda: _ask(Q["greeting"], ASLEEP, timeout=TIMEOUT, max_retries=0))


def request_id():
    message = _ask(Q["greeting"], include_response_headers=True)
    return [message.response_metadata["id"], message.response_metadata["headers"]["x-request-id"]]


def session():
    model = _model(base_url=f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1")
    first = model.invoke(Q["plain"])
    messages = [HumanMessage(Q["plain"]), first, HumanMessage("Are you sure?")]
    second = model.invoke(messages)
    return [message.response_metadata["id"] for message in (first, second)]


def idempotency_key():
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    messages = [_ask(Q["sampled"], default_headers=headers) for _ in range(2)]
    return [message.response_metadata["id"] for message in messages]


def workflow():
    return _ask(Q["plain"], "workflow/solo").content


def unicode():
    return _ask(Q["unicode"]).content


def abandoned_stream():
    stream = _model(DRIP).stream(Q["counting"])
    text = next(chunk.content for chunk in stream if chunk.content)
    stream.close()
    return text


serve(of_module(globals()))
