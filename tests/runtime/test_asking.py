"""`runtime ask` with more than a question: a system message, a conversation, sampling options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import Message
from loopline.runtime.client.question import MAX_CONVERSATION_BYTES, Query, resolve_question
from loopline.runtime.errors import EXIT_USAGE, InputError
from tests.runtime.conftest import Deployment

HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 3 * 4?"},
    {"role": "assistant", "content": "12"},
]


def file_of(folder: Path, content: object) -> Path:
    path = folder / "messages.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_question_on_its_own_has_no_conversation(tmp_path: Path) -> None:
    assert resolve_question("Hi?") == Query("Hi?")
    path = file_of(tmp_path, [{"role": "user", "content": "Hi?"}])
    assert resolve_question(None, messages=path) == Query("Hi?")


@pytest.mark.parametrize("within", ["a list", "an object"])
def test_the_system_message_precedes_the_conversation_and_the_question_follows_it(
    tmp_path: Path, within: str
) -> None:
    path = file_of(tmp_path, HISTORY if within == "a list" else {"messages": HISTORY})
    query = resolve_question("And 3 * 5?", system="Speak French.", messages=path)
    assert query.text == "And 3 * 5?"
    assert query.messages == (
        Message(role="system", content="Speak French."),
        Message(role="system", content="Be brief."),
        Message(role="user", content="What is 3 * 4?"),
        Message(role="assistant", content="12"),
        Message(role="user", content="And 3 * 5?"),
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("3", "Invalid value for 'messages'"),
        ("[]", "Invalid value for 'messages'"),
        ([{"role": "poet", "content": "?"}], "'messages[0].role'"),
        ([{"role": "user"}], "'messages[0].content'"),
        ([*HISTORY, {"role": "tool", "content": "?", "tool_call_id": "x"}], "messages[3]"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "text and images"),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://x"}}],
                }
            ],
            "workflows take only text",
        ),
        (HISTORY[:1], "only system messages"),
        (" " * (MAX_CONVERSATION_BYTES + 1), "more than 10,000,000 bytes"),
    ],
)
def test_a_file_that_is_not_a_conversation_is_refused_with_its_path(
    tmp_path: Path, content: object, says: str
) -> None:
    path = file_of(tmp_path, content)
    with pytest.raises(InputError) as why:
        resolve_question(None, messages=path)
    assert says in str(why.value)
    assert str(path) in str(why.value)


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        resolve_question("?", messages=tmp_path / "none.json")


def calls(trajectory: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (step["agent"], call["sampling"])
        for step in trajectory["steps"]
        for candidate in step["candidates"]
        for call in candidate["calls"]
    ]


def test_a_run_gets_the_conversation_and_every_agent_the_sampling_options(
    shared: Deployment, tmp_path: Path
) -> None:
    path = file_of(tmp_path, HISTORY)
    trajectory = shared.ask(
        "What is 12 * 7 + 5 * 3?",
        *("--messages", str(path), "--system", "Speak French.", "--temperature", "0.5"),
        *("--max-tokens", "300", "--top-p", "0.9", "--stop", "Ende", "--seed", "7"),
    )
    assert [turn["role"] for turn in trajectory["run"]["task"]["messages"]] == [
        "system", "system", "user", "assistant", "user",
    ]  # fmt: skip
    samplings = calls(trajectory)
    assert {agent for agent, _ in samplings} >= {"planner", "slm"}
    for agent, sampling in samplings:
        assert (sampling["temperature"], sampling["top_p"]) == (0.5, 0.9)
        answers = agent == "planner"
        assert (sampling["max_tokens"] == 300, sampling["stop"] == ["Ende"]) == (answers, answers)
    assert trajectory["run"]["seed"] == 7


def test_a_question_is_read_from_a_pipe(shared: Deployment) -> None:
    assert shared.ok("ask", "-q", stdin=b"What is 6 * 7?").strip() == "42"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["?", "--temperature", "9"], "--temperature"),
        (["?", "--top-p", "0"], "--top-p 0 leaves no token"),
        (["?", "--stop", ""], "--stop: an empty text"),
        (["?", "--workflow", "pair", "--temperature", "1"], "cannot honour 'temperature'"),
        (["--world", "1", "--workflow", "umi", "--system", "x"], "leave out --system"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_one_error(
    shared: Deployment, words: list[str], says: str
) -> None:
    process = shared.run("ask", *words)
    assert process.returncode == EXIT_USAGE
    assert says in process.stderr
