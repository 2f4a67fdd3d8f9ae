"""Plain curl."""

import json
import subprocess
import uuid

from serving import (
    ASLEEP,
    BASE_URL,
    DRIP,
    KEY,
    MODEL,
    POLICY,
    ROOT_URL,
    SLOW,
    TIMEOUT,
    WRONG_KEY,
    Q,
    of_module,
    serve,
)

SEPARATOR = "\n==curl== "


def _user(text):
    return {"role": "user", "content": text}


def _curl(path, body=None, *options, key=KEY, root=BASE_URL):
    words = ["curl", "--silent", "--show-error", "--no-buffer", f"{root}/{path}"]
    words += [
        "--header",
        f"Authorization: Bearer {key}",
        "--header",
        "Content-Type: application/json",
    ]
    if body is not None:
        words += ["--data-binary", "@-"]
    write_out = SEPARATOR + "%{http_code} %header{x-request-id}"
    done = subprocess.run(
        [*words, "--write-out", write_out, *options],
        input=json.dumps(body).encode() if body is not None else b"",
        capture_output=True,
        check=False,
    )
    text, _, status = done.stdout.decode().rpartition(SEPARATOR)
    return done, text, status.split()


def _body(text, model=MODEL, **fields):
    return {"model": model, "messages": [_user(text)], **fields}


def _post(body, *options, **how):
    done, text, status = _curl("chat/completions", body, *options, **how)
    assert status[0] == "200", done
    return json.loads(text)


def _ask(text, *options, model=MODEL, **fields):
    return _post(_body(text, model, **fields), *options)


def _choice(completion):
    return completion["choices"][0]


def _text(completion):
    return _choice(completion)["message"]["content"]


def _called(calls):
    return [[c["function"]["name"], json.loads(c["function"]["arguments"])] for c in calls]


def _calls(completion):
    return _called(_choice(completion)["message"].get("tool_calls", []))


def _stream(text, *options, model=MODEL, **fields):
    _, text, status = _curl("chat/completions", _body(text, model, stream=True, **fields), *options)
    data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]", (text, status)
    return [json.loads(piece) for piece in data[:-1]]


def _failure(body, path="chat/completions", **how):
    _, text, status = _curl(path, body, **how)
    return {"status": int(status[0]), **json.loads(text)["error"]}


def plain_question():
    return _text(_ask(Q["plain"]))


def _instructed(role):
    body = _body(Q["greeting"])
    body["messages"].insert(0, {"role": role, "content": Q["instruction"]})
    return _text(_post(body))


def system_message():
    return _instructed("system")


def developer_message():
    return _instructed("developer")


def history():
    first = _choice(_ask(Q["name"]))["message"]
    messages = [_user(Q["name"]), first, _user(Q["asks_name"])]
    return _text(_post({"model": MODEL, "messages": messages}))


def streaming():
    chunks = _stream(Q["counting"], model=SLOW)
    texts = [_choice(chunk)["delta"].get("content") for chunk in chunks]
    return [text for text in texts if text]


def stream_usage():
    chunks = _stream(Q["counting"], stream_options={"include_usage": True})
    return [_ask(Q["counting"])["usage"], chunks[-1]["usage"]]


def tool_round_trip():
    body = _body(Q["weather"], tools=[Q["weather_tool"]])
    message = _choice(_post(body))["message"]
    call = message["tool_calls"][0]
    result = {"role": "tool", "tool_call_id": call["id"], "content": Q["rain"]}
    body["messages"] += [message, result]
    return [json.loads(call["function"]["arguments"]), _text(_post(body))]


def streamed_tool_call():
    chunks = _stream(Q["weather"], tools=[Q["weather_tool"]])
    calls = [call for chunk in chunks for call in _choice(chunk)["delta"].get("tool_calls", [])]
    return _called(calls)


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
    schema = {"name": "total", "strict": True, "schema": Q["sum_schema"]}
    form = {"type": "json_schema", "json_schema": schema}
    return json.loads(_text(_ask(Q["sum"], response_format=form)))


def several_choices():
    return [choice["message"]["content"] for choice in _ask(Q["fruit"], n=2)["choices"]]


def seed():
    return [_text(_ask(Q["sampled"], seed=5)) for _ in range(3)]


def stop():
    return _text(_ask(Q["counting"], stop=[" four"]))


def length():
    choice = _choice(_ask(Q["counting"], max_completion_tokens=3))
    return [choice["finish_reason"], choice["message"]["content"]]


def logprobs():
    tokens = _choice(_ask(Q["counting"], logprobs=True))["logprobs"]["content"]
    return ["".join(token["token"] for token in tokens), [token["logprob"] for token in tokens]]


def unknown_model():
    return _failure(_body(Q["greeting"], "nobody"))


def policy():
    return [_text(_ask(Q["plain"], model=name)) for name in (POLICY, f"{POLICY}@0")]


def other_version():
    return _failure(_body(Q["greeting"], f"{POLICY}@3"))


def embeddings():
    return _failure({"model": MODEL, "input": "x"}, path="embeddings")


def wrong_key():
    return _failure(_body(Q["greeting"]), key=WRONG_KEY)


def invalid_field():
    return _failure(_body(Q["greeting"], temperature=9))


def overload():
    return _text(_ask(Q["plain"], "--retry", "3", "--fail"))


def timeout():
    done, _, _ = _curl("chat/completions", _body(Q["greeting"], ASLEEP), "--max-time", str(TIMEOUT))
    return {"class": "", "message": done.stderr.decode()}


def request_id():
    _, text, status = _curl("chat/completions", _body(Q["greeting"]))
    return [json.loads(text)["id"], status[1]]


def models():
    return [model["id"] for model in json.loads(_curl("models")[1])["data"]]


def session():
    root = f"{ROOT_URL}/sessions/s-{uuid.uuid4()}/v1"
    body = _body(Q["plain"])
    first = _post(body, root=root)
    body["messages"] += [_choice(first)["message"], _user("Are you sure?")]
    return [first["id"], _post(body, root=root)["id"]]


def idempotency_key():
    header = f"Idempotency-Key: {uuid.uuid4()}"
    return [_ask(Q["sampled"], "--header", header)["id"] for _ in range(2)]


def workflow():
    return _text(_ask(Q["plain"], model="workflow/solo"))


def unicode():
    return _text(_ask(Q["unicode"]))


def abandoned_stream():
    words = ["curl", "--silent", "--no-buffer", f"{BASE_URL}/chat/completions"]
    words += ["--header", f"Authorization: Bearer {KEY}", "--data-binary", "@-"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(json.dumps(_body(Q["counting"], DRIP, stream=True)).encode())
        process.stdin.close()
        chunks = (json.loads(line[6:]) for line in process.stdout if line.startswith(b"data: "))
        texts = (_choice(chunk)["delta"].get("content") for chunk in chunks)
        text = next(text for text in texts if text)
        process.kill()
    return text


serve(of_module(globals()))
