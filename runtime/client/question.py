"""A question: of the command line, of stdin (text, and not too long), or of the API simulator."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.agents.records import MAX_PROMPT_CHARS, JsonObject, Outcome, Trajectory
from loopline.runtime.errors import InputError

if TYPE_CHECKING:
    from loopline.agents.environments.api_worlds import Instance

MAX_BYTES_PER_CHAR = 4


@dataclass(frozen=True)
class SimulatedQuestion:
    """An instruction of the API simulator, of the split `unseen_worlds`: its world is one that
    models are not trained in."""

    _instance: Instance

    @property
    def environment(self) -> str:
        return self._instance.task.environment

    @property
    def instance(self) -> JsonObject:
        """What the world and its tools are rebuilt from."""
        return self._instance.task.instance

    def verify(self, trajectory: Trajectory) -> str:
        """What is wrong with how a run ended, by the state of its world and by the facts in its
        answer; empty if it did what was asked."""
        from loopline.agents.roles.umi.transcript import calls_of

        if trajectory.outcome not in (Outcome.ANSWERED, Outcome.GAVE_UP):
            return f"the run ended as {trajectory.outcome}"
        answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
        return self._instance.verify(answer, calls_of(trajectory.steps)).reason


def resolve_question(
    argument: str | None, world: int | None
) -> tuple[str, SimulatedQuestion | None]:
    """The question that is asked, and where it comes from if it is the simulator's.

    Raises `InputError` unless exactly one of the two is given, and what `read_question` raises.
    """
    if (argument is None) == (world is None):
        raise InputError(
            "there is no question"
            if argument is None
            else "a question and --world: which of both?",
            hint='runtime ask "…", or runtime ask --world 7 for one of the simulator.',
        )
    if argument is not None:
        return read_question(argument), None
    from loopline.agents.environments.api_worlds import Split, instances

    assert world is not None
    instance = instances(Split.UNSEEN_WORLDS, world, 1)[0]
    return instance.instruction, SimulatedQuestion(instance)


def read_question(argument: str) -> str:
    """The question; `-` reads stdin.

    Raises `InputError` when it is not UTF-8, empty, or longer than `MAX_PROMPT_CHARS`.
    """
    text = _read_stdin() if argument == "-" else argument
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of an argument that were not an UTF-8
        raise InputError(
            f"the question is not UTF-8 (at character {error.start})",
            hint="convert it first, for example with `iconv -t UTF-8`.",
        ) from error
    text = text.strip()
    if not text:
        raise InputError("the question is empty")
    if len(text) > MAX_PROMPT_CHARS:
        raise InputError(
            f"the question has {len(text):,} characters; the limit is {MAX_PROMPT_CHARS:,}",
            hint="ask for a part of it, or hand it over in several questions.",
        )
    return text


def _read_stdin() -> str:
    """Reads one byte more than could be allowed, so that a huge input is refused unread."""
    limit = MAX_PROMPT_CHARS * MAX_BYTES_PER_CHAR
    raw = sys.stdin.buffer.read(limit + 1)
    if len(raw) > limit:
        raise InputError(
            f"the question on stdin has more than {limit:,} bytes; the limit is"
            f" {MAX_PROMPT_CHARS:,} characters",
            hint="ask for a part of it, or hand it over in several questions.",
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"the question on stdin is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x})",
            hint="convert it first, for example with `iconv -t UTF-8`.",
        ) from error
