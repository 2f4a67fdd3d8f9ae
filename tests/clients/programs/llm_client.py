"""`llm`, with a model added as its extra-openai-models.yaml adds one."""

import uuid

from llm.default_plugins.openai_models import Chat
from pydantic import BaseModel
from serving import (
    BASE_URL,
    KEY,
    MODEL,
    POLICY,
    ROOT_URL,
    SLOW,
    WRONG_KEY,
    Q,
    failed,
    of_module,
    serve,
)


class Total(BaseModel):
    sum: int


def _model(name=MODEL, base_url=BASE_URL, key=KEY, **options):
    return Chat(
        f"loopline/{name}",
        key=key,
        model_name=name,
        api_base=base_url,
        supports_tools=True,
        supports_schema=True,
        **options,
    )


def _ask(text, *model, stream=False, **options):
    return _model(*model).prompt(text, stream=stream, **options).text()


def plain_question():
    return _ask(Q["plain"])


def system_message():
    return _model().prompt(Q["greeting"], system=Q["instruction"], stream=False).text()


def history():
    conversation = _model().conversation()
    conversation.prompt(Q["name"], stream=False).text()
    return conversation.prompt(Q["asks_name"], stream=False).text()


def streaming():
    return [text for text in _model(SLOW).prompt(Q["counting"], stream=True) if text]


def stream_usage():
    usages = []
    for stream in (False, True):
        response = _model().prompt(Q["counting"], stream=stream)
        response.text()
        usage = response.usage()
        usages.append({"prompt_tokens": usage.input, "completion_tokens": usage.output})
    return usages


def _round_trip(stream):
    calls = []

    def weather(city: str) -> str:
        """The weather of a city."""
        calls.append(["weather", {"city": city}])
        return Q["rain"]

    text = _model().chain(Q["weather"], tools=[weather], stream=stream).text()
    return calls, text


def tool_round_trip():
    calls, text = _round_trip(stream=False)
    return [calls[0][1], text]


def streamed_tool_call():
    return _round_trip(stream=True)[0]


def structured_output():
    response = _model().prompt(Q["sum"], schema=Total, stream=False)
    return Total.model_validate_json(response.text()).model_dump()


def seed():
    return [_ask(Q["sampled"], seed=5) for _ in range(3)]


def stop():
    return _ask(Q["counting"], stop=" four")


def length():
    response = _model().prompt(Q["counting"], stream=False, max_tokens=3)
    text = response.text()
    return [response.response_json["choices"][0]["finish_reason"], text]


def unknown_model():
    return failed(lambda: _ask(Q["greeting"], "nobody"))


def policy():
    return [_ask(Q["plain"], name) for name in (POLICY, f"{POLICY}@0")]


def other_version():
    return failed(lambda: _ask(Q["greeting"], f"{POLICY}@3"))


def wrong_key():
    return failed(lambda: _ask(Q["greeting"], MODEL, BASE_URL, WRONG_KEY))


def overload():
    return _ask(Q["plain"])


def session():
    model = _model(base_url=f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1")
    conversation = model.conversation()
    ids = []
    for text in (Q["plain"], "Are you sure?"):
        response = conversation.prompt(text, stream=False)
        response.text()
        ids.append(response.response_json["id"])
    return ids


def idempotency_key():
    model = _model(headers={"Idempotency-Key": str(uuid.uuid4())})
    responses = [model.prompt(Q["sampled"], stream=False) for _ in range(2)]
    return [response.text() and response.response_json["id"] for response in responses]


def workflow():
    return _ask(Q["plain"], "workflow/solo")


def unicode():
    return _ask(Q["unicode"], stream=True)


serve(of_module(globals()))
