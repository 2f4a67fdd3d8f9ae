"""Errors inside an agent, each with its own type.

The host defines its own error types (a lost lease, a shutdown, a cancelled run); they pass through
a role unchanged.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from loopline.agents.records import Outcome


class AgentError(Exception):
    """Base class of all errors that this package raises."""


class RequestFailed(AgentError):
    """A completion that the host could not get.

    `kind` is the engine's error code (`context_overflow`, `auth`, `rate_limited`, …). `retryable`
    means that the same request may succeed later: such an error propagates out of the role, so the
    host repeats the step, with its earlier completions already stored. An error that is not
    retryable ends the step with a reason.
    """

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.retryable = retryable


class MalformedModelOutput(AgentError):
    """A host answered a completion request with an object that is not a completion."""


class UnknownName(AgentError, LookupError):
    """A role, tool, workflow or payload type that is not registered."""

    def __init__(self, what: str, name: str, valid_names: Iterable[str]) -> None:
        names = sorted(valid_names)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"there is no {what} {name!r}{hint} (known: {', '.join(names) or 'none'})")
        self.name = name


class PluginError(AgentError):
    """An entry point that cannot be loaded, or that has the name of another item."""


class EnvironmentFault(AgentError):
    """An environment's code, including its rewards, raised an error. Any text is a valid action, so
    the environment is at fault, and the same run would raise the error again."""

    def __init__(self, environment: str, when: str, error: Exception) -> None:
        """`when`: what the environment was asked to do, such as `on an action of tool_agent`."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        super().__init__(
            f"the environment {environment!r} raised {type(error).__name__} {when}: {error} "
            f"({Path(where.filename).name}:{where.lineno}, in {where.name}); fix it, or leave "
            "such tasks out: a retry would raise the same error"
        )


@contextmanager
def environment_code(environment: str, when: str) -> Generator[None]:
    """Turn any exception of the block that is not an `AgentError` into an `EnvironmentFault`."""
    try:
        yield
    except AgentError:
        raise
    except Exception as error:
        raise EnvironmentFault(environment, when, error) from error


class InvalidOptions(AgentError, ValueError):
    """Options that the workflow does not know, or values that it cannot use."""


class UnsupportedGeneration(InvalidOptions):
    """A caller set a completion option that the run's workflow can't apply."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        """Field of `loopline.agents.records.GenerationOptions`."""


class InvalidTask(AgentError, ValueError):
    """A task whose instance a workflow cannot start from."""


class InvalidPrompt(AgentError, ValueError):
    """A prompt file without its header, or with an empty text."""


class VersionMismatch(AgentError):
    """This process got data of another version, which only a worker of that version, or one that
    declares it in `continues`, can process. The message names both versions."""


class PromptMismatch(VersionMismatch):
    """This process has a different text for a prompt than the one the run was admitted with."""

    def __init__(self, message: str, file: str, digest: str) -> None:
        """`file` and `digest` identify the text that is missing here."""
        super().__init__(message)
        self.file = file
        self.digest = digest


class UnexpectedPayload(AgentError, TypeError):
    """A role got a payload that it cannot start from."""


class JournalIncomplete(AgentError):
    """A role was resumed although the journal lacks an answer that it is waiting for."""


class NoRoute(AgentError):
    """A workflow has no next step after a decision."""


class ReplayDiverged(AgentError):
    """A replayed run made a different request than its journal recorded."""


class ForkImpossible(AgentError, ValueError):
    """The run cannot be forked at that turn."""


def outcome_of_failure(kind: str) -> Outcome:
    """Outcome of a run in which a request failed permanently."""
    ends = {
        "deadline": Outcome.DEADLINE,
        "cancelled": Outcome.CANCELLED,
        "budget": Outcome.BUDGET,
    }
    return ends.get(kind, Outcome.ERROR)
