"""Errors of the bus. Each has its own type, so that no caller has to parse a message."""

from __future__ import annotations


class BusError(Exception):
    """Base of every error that the bus raises itself."""


class BusUnavailable(BusError):
    """Redis can't be reached or refuses us; the message says where and what to do."""


class DeploymentMismatch(BusError):
    """A process names another value than its deployment has. The message has both, and says what
    to do."""


class DeploymentChanged(BusError):
    """The agreed settings of the deployment were changed since this process joined: join again."""


class LeaseLost(BusError):
    """Another worker holds this delivery now. Nothing was changed; drop the work."""


class NotDelivered(BusError):
    """The message that a handler began with ahead of its delivery is not this process's after all.
    Nothing was changed; drop the work."""


class RunEnded(BusError):
    """The run is over: finished, in error, or for one of the reasons below. Nothing was changed."""


class UserCancelled(RunEnded):
    """The run was cancelled by its user."""


class DeadlineExceeded(RunEnded):
    """The run's deadline has passed, which its requests have as well: it is over, or about to
    be."""


class BudgetExceeded(RunEnded):
    """A budget does not allow the request: nothing was paid. Or the run has used up its tokens or
    its money."""

    by_day = False
    """Whether the budget is another day's again after midnight (UTC)."""


def run_ended(run_id: str, outcome: str) -> RunEnded:
    """The error of a run with this outcome; empty: of one that the bus no longer knows."""
    kinds = {
        "cancelled": UserCancelled,
        "deadline": DeadlineExceeded,
        "budget": BudgetExceeded,
    }
    return kinds.get(outcome, RunEnded)(f"run {run_id} is over ({outcome or 'forgotten'})")


class BackgroundEnded(BusError):
    """A background task or thread that this process needs has ended by itself, which is a bug. The
    process must end, too."""


class Overloaded(BusError):
    """Admission was refused: too many runs are in flight. Ask again later."""


class RewardConflict(BusError):
    """Another reward of the same target has this id. Nothing was changed."""


class MessageTooLarge(BusError):
    """A payload exceeds the size limit."""


class MalformedEnvelope(BusError):
    """Bytes on a stream are not an envelope."""


class OtherVersion(BusError):
    """Raised by a handler: a worker of another version may take this delivery, and this one can't.
    It goes back to its stream, which is not a failure of the message; if nobody has taken it within
    `version_seconds`, to the dead letters. The message names the versions."""


class UnknownPayload(OtherVersion):
    """No model is registered for this payload type, or its version can't be read."""


class Retry(BusError):
    """Raised by a handler: try this delivery again after `delay` seconds (`None`: backoff). Where
    it is not `counted`, it only waits for something: that is not a failure of the message."""

    def __init__(self, reason: str, delay: float | None = None, *, counted: bool = True) -> None:
        super().__init__(reason)
        self.delay = delay
        self.counted = counted


class NoRoom(Retry):
    """Calls that are under way hold what is left of a budget: this one comes back when they leave
    room for it, or in a few seconds."""

    def __init__(self, reason: str, most: tuple[int, int]) -> None:
        """`most`: tokens and micro-dollars that it comes to at most, as scripts have them."""
        super().__init__(reason, counted=False)
        self.most = most


class Reject(BusError):
    """Raised by a handler: no retry can help, send this delivery to the dead letters."""


class RequestError(BusError):
    """A request was answered with an error. `kind` is the responder's word for it."""

    def __init__(self, kind: str, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
