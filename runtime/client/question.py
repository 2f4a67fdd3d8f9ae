"""A question from the command line, from stdin (text, and not too long), from a file of messages,
or from the API simulator."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.agents.records import MAX_PROMPT_CHARS, JsonObject, Message, Outcome, Trajectory
from loopline.runtime.errors import InputError
from loopline.workers.bounded_file import FileTooLarge, read_bounded_file

if TYPE_CHECKING:
    from loopline.agents.environments.api_worlds import Instance

MAX_BYTES_PER_CHAR = 4
MAX_CONVERSATION_BYTES = 10_000_000
"""Limit of a file of messages; the bus has a lower limit, which its error names."""


@dataclass(frozen=True)
class SimulatedQuestion:
    """An instruction of the API simulator from the split `unseen_worlds`: no model is trained in
    its world."""

    _instance: Instance

    @property
    def environment(self) -> str:
        return self._instance.task.environment

    @property
    def instance(self) -> JsonObject:
        """Data from which the world and its tools are rebuilt."""
        return self._instance.task.instance

    def verify(self, trajectory: Trajectory) -> str:
        """Return the faults of a run, judged by the state of its world and the facts in its answer;
        empty if it followed the instruction."""
        from loopline.agents.roles.umi.transcript import calls_of

        if trajectory.outcome not in (Outcome.ANSWERED, Outcome.GAVE_UP):
            return f"the run ended as {trajectory.outcome}"
        answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
        return self._instance.verify(answer, calls_of(trajectory.steps)).reason


@dataclass(frozen=True)
class Query:
    """The question from the command line."""

    text: str
    """The question; in a conversation, the last user message."""
    messages: tuple[Message, ...] = ()
    """The whole conversation, if there is more than the question."""
    simulated: SimulatedQuestion | None = None


def resolve_question(
    argument: str | None,
    world: int | None = None,
    *,
    system: str | None = None,
    messages: Path | None = None,
) -> Query:
    """Return the question with the conversation before it. Without either, read the question from
    stdin unless that is a terminal. Raises `InputError` without a question, for a question together
    with --world, and what `read_question` and `read_conversation` raise.
    """
    if world is not None:
        return _simulated_question(argument, world, system, messages)
    if argument is None and messages is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise _no_question()
        argument = _read_stdin()
        if not argument.strip():
            raise _no_question()
    turns = [] if messages is None else read_conversation(messages)
    if argument is not None:
        turns.append(Message(role="user", content=read_question(argument)))
    text = next((turn.content for turn in reversed(turns) if turn.role == "user"), "")
    if not any(turn.role != "system" for turn in turns):
        raise InputError(
            f"{messages} has only system messages: there is no question",
            hint='give one too: runtime ask "…" --messages FILE.',
        )
    if system is not None:
        turns.insert(0, Message(role="system", content=_decodable(system, "--system")))
    alone = len(turns) == 1 and turns[0].content == text
    return Query(text, () if alone else tuple(turns))


def _simulated_question(
    argument: str | None, world: int, system: str | None, messages: Path | None
) -> Query:
    if argument is not None:
        raise InputError(
            "give a question or --world, not both",
            hint='runtime ask "…", or runtime ask --world 7 for one of the simulator.',
        )
    if system is not None or messages is not None:
        option = "--system" if messages is None else "--messages"
        raise InputError(
            f"--world has its own instruction: leave out {option}",
        )
    from loopline.agents.environments.api_worlds import Split, instances

    instance = instances(Split.UNSEEN_WORLDS, world, 1)[0]
    return Query(instance.instruction, simulated=SimulatedQuestion(instance))


def _no_question() -> InputError:
    return InputError(
        "there is no question",
        hint='runtime ask "…", or runtime ask --world 7 for one of the simulator.',
    )


def read_question(argument: str) -> str:
    """Read the question; `-` reads stdin. Raises `InputError` when it is not UTF-8, empty, or
    longer than `MAX_PROMPT_CHARS`.
    """
    text = _decodable(_read_stdin() if argument == "-" else argument, "the question").strip()
    if not text:
        raise InputError("the question is empty")
    if len(text) > MAX_PROMPT_CHARS:
        raise InputError(
            f"the question has {len(text):,} characters; the limit is {MAX_PROMPT_CHARS:,}",
            hint="ask for a part of it, or split it into several questions.",
        )
    return text


def read_conversation(path: Path) -> list[Message]:
    """Read the messages of a file in the format of OpenAI's API: a JSON list of messages, or an
    object with the list under "messages". Raises `InputError` with the position of the error."""
    try:
        raw = read_bounded_file(path, MAX_CONVERSATION_BYTES)
    except OSError as error:
        raise InputError(f"--messages {path}: {error.strerror or error}") from error
    except FileTooLarge as error:
        raise InputError(
            f"--messages {path}: it has more than {MAX_CONVERSATION_BYTES:,} bytes",
            hint="leave out the oldest messages.",
        ) from error
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"--messages {path}: it is not JSON ({error})",
            hint='write [{"role": "user", "content": "…"}, …].',
        ) from error
    from loopline.runtime.gateway.chat_request import ChatRequest
    from loopline.runtime.gateway.errors import ApiError, validated

    turns: object = body["messages"] if isinstance(body, dict) and "messages" in body else body
    request = {"model": "-", "messages": turns}
    try:
        chat = validated(ChatRequest, request, strict=True)
    except ApiError as error:
        raise InputError(f"--messages {path}: {error.message}") from error
    try:
        conversation = chat.conversation
        if any(message.parts for message in conversation):
            raise InputError(
                f"--messages {path}: a message contains an image, and workflows take only text",
                hint="`/v1/chat/completions` of the gateway takes images.",
            )
        return [*conversation]
    except ApiError as error:
        where = f"{error.param}: " if error.param else ""
        raise InputError(f"--messages {path}: {where}{error.message}") from error


def _decodable(text: str, what: str) -> str:
    """Raises `InputError` for an argument that contained bytes that were not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} is not UTF-8 (at character {error.start})",
            hint="convert it first, for example with `iconv -t UTF-8`.",
        ) from error
    return text


def _read_stdin() -> str:
    """Read one byte more than is allowed, so that a huge input is refused without being read in
    full."""
    limit = MAX_PROMPT_CHARS * MAX_BYTES_PER_CHAR
    raw = b"" if sys.stdin is None else sys.stdin.buffer.read(limit + 1)
    if len(raw) > limit:
        raise InputError(
            f"the question on stdin has more than {limit:,} bytes; the limit is"
            f" {MAX_PROMPT_CHARS:,} characters",
            hint="ask for a part of it, or split it into several questions.",
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"the question on stdin is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x})",
            hint="convert it first, for example with `iconv -t UTF-8`.",
        ) from error
