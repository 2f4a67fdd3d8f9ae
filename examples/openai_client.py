"""OpenAI's own client, unmodified, against a running deployment.

OPENAI_BASE_URL and OPENAI_API_KEY point to the deployment; the key is in `.loopline/gateway.key`.
"""

from __future__ import annotations

import sys

from openai import OpenAI


def main() -> None:
    question = sys.argv[1]
    client = OpenAI()
    print("models:", ", ".join(model.id for model in client.models.list()))
    # One model, with its text streamed.
    stream = client.chat.completions.create(
        model="slm", messages=[{"role": "user", "content": question}], stream=True
    )
    print("slm: ", end="")
    for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()
    # A whole team behind a model name.
    answer = client.chat.completions.create(
        model="workflow/solo", messages=[{"role": "user", "content": question}]
    )
    print("team:", answer.choices[0].message.content)
    assert answer.usage is not None
    print("tokens:", answer.usage.total_tokens)


if __name__ == "__main__":
    main()
