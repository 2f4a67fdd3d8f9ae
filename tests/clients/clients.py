"""The matrix of the suite: the clients, and the behaviours that each can't express."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_HEADERS = "it does not show the headers of a response"
NO_LISTING = "it lists no models of an endpoint"
NO_OPTION = "it has no option for it"
ONE_ANSWER = "it asks for one answer"
NO_EMBEDDINGS = "it asks an endpoint for no embeddings by its chat settings"


@dataclass(frozen=True)
class ClientUnderTest:
    """A client as users install it, and the program that uses it."""

    name: str
    environment: str
    program: str
    """A file in `programs`."""
    without: Mapping[str, str] = field(default_factory=dict[str, str])
    """Behaviour → why this client can't express it."""


CLIENTS = (
    ClientUnderTest("openai", "openai", "openai_sync.py"),
    ClientUnderTest("openai-async", "openai", "openai_async.py"),
    ClientUnderTest("npm-openai", "npm-openai", "npm_openai.mjs"),
    ClientUnderTest("curl", "curl", "curl.py"),
    ClientUnderTest(
        "langchain-openai", "langchain-openai", "langchain_client.py", {"models": NO_LISTING}
    ),
    ClientUnderTest(
        "pydantic-ai",
        "pydantic-ai",
        "pydantic_ai_client.py",
        {
            "several_choices": ONE_ANSWER,
            "request_id": NO_HEADERS,
            "models": NO_LISTING,
            "embeddings": NO_EMBEDDINGS,
        },
    ),
    ClientUnderTest("litellm", "litellm", "litellm_client.py", {"models": NO_LISTING}),
    ClientUnderTest(
        "openai-agents",
        "openai-agents",
        "agents_client.py",
        {
            "several_choices": ONE_ANSWER,
            "length": "it shows no reason of the end",
            "logprobs": "it keeps none of its chat completions model's",
            "request_id": "it shows the request's id, and not the completion's, too",
            "models": NO_LISTING,
            "embeddings": NO_EMBEDDINGS,
        },
    ),
    ClientUnderTest(
        "llm",
        "llm",
        "llm_client.py",
        {
            "developer_message": "its system prompts are system messages",
            "tool_choice_none": NO_OPTION,
            "tool_choice_required": NO_OPTION,
            "tool_choice_named": NO_OPTION,
            "parallel_tool_calls": NO_OPTION,
            "several_choices": ONE_ANSWER,
            "logprobs": NO_OPTION,
            "invalid_field": "it checks the bounds of options itself",
            "timeout": NO_OPTION,
            "request_id": NO_HEADERS,
            "models": NO_LISTING,
            "embeddings": NO_EMBEDDINGS,
            "abandoned_stream": "it reads a stream to its end",
        },
    ),
)
