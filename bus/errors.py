"""Errors of the bus. Each has its own type, so that no caller has to parse a message."""

from __future__ import annotations


class BusError(Exception):
    """Base class of all errors that the bus itself raises."""


class BusUnavailable(BusError):
    """Redis can't be reached or refuses access; the message states where and what to do."""


class DeploymentMismatch(BusError):
    """A process names a different value than its deployment has. The message shows both, and what
    to do."""


class DeploymentChanged(BusError):
    """The deployment's agreed settings have changed since this process joined: join again."""


class LeaseLost(BusError):
    """Another worker holds this delivery now. Nothing was changed; drop the work."""


class NotDelivered(BusError):
    """The message that a handler started on before its delivery is not this process's after all.
    Nothing was changed; drop the work."""


class RunEnded(BusError):
    """The run has ended: finished, in error, or for one of the reasons below. Nothing was
    changed."""


class UserCancelled(RunEnded):
    """The run was cancelled by its user."""


class DeadlineExceeded(RunEnded):
    """The deadline of the run and its requests has passed: the run has ended, or is about to."""


class BudgetExceeded(RunEnded):
    """A budget does not allow the request: nothing was paid. Or the run has used up its tokens or
    money."""

    by_day = False
    """Whether the budget is reset at midnight (UTC)."""


def run_ended(run_id: str, outcome: str) -> RunEnded:
    """The error of a run with this outcome. An empty outcome: the bus no longer knows the run."""
    kinds = {
        "cancelled": UserCancelled,
        "deadline": DeadlineExceeded,
        "budget": BudgetExceeded,
    }
    return kinds.get(outcome, RunEnded)(f"run {run_id} is over ({outcome or 'forgotten'})")


class BackgroundEnded(BusError):
    """A background task or thread that this process needs has ended by itself, which is a bug. The
    process must exit, too."""


class Overloaded(BusError):
    """Admission was refused: too many runs are in flight. Try again later."""


class RewardConflict(BusError):
    """Another reward for the same target has this id. Nothing was changed."""


class MessageTooLarge(BusError):
    """A payload exceeds the size limit."""


class MalformedEnvelope(BusError):
    """Bytes on a stream are not an envelope."""


class OtherVersion(BusError):
    """Raised by a handler: a worker of another version may be able to take this delivery; this one
    can't. The message goes back to its stream, which does not count as a failure; if no worker has
    taken it within `version_seconds`, it becomes a dead letter. The error text names the
    versions."""


class UnknownPayload(OtherVersion):
    """No model is registered for this payload type, or its version can't be read."""


class Retry(BusError):
    """Raised by a handler: retry this delivery after `delay` seconds (`None`: backoff). If not
    `counted`, the delivery only waits for something, which does not count as a failure."""

    def __init__(self, reason: str, delay: float | None = None, *, counted: bool = True) -> None:
        super().__init__(reason)
        self.delay = delay
        self.counted = counted


class NoRoom(Retry):
    """Calls in progress hold the rest of a budget: this delivery comes back when they leave room
    for it, or in a few seconds."""

    def __init__(self, reason: str, most: tuple[int, int]) -> None:
        """`most`: the call's maximum tokens and micro-dollars, as scripts represent them."""
        super().__init__(reason, counted=False)
        self.most = most


class Reject(BusError):
    """Raised by a handler: retrying can't help, send this delivery to the dead letters."""


class RequestError(BusError):
    """A request was answered with an error. `kind` is the responder's error code."""

    def __init__(self, kind: str, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
