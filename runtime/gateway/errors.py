"""Errors in the format of OpenAI's API: `{"error": {message, type, param, code}}` and a status."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from loopline.agents.errors import AgentError, UnsupportedGeneration
from loopline.agents.records import Outcome
from loopline.bus import (
    BudgetExceeded,
    BusError,
    BusUnavailable,
    DeploymentChanged,
    MessageTooLarge,
    Overloaded,
)
from loopline.bus.budgets import is_of_a_day
from loopline.runtime.client.run_records import RunUnknown
from loopline.runtime.client.waiting import ApprovalConflict, ApprovalUnknown
from loopline.runtime.errors import InputError, UserError

Model = TypeVar("Model", bound=BaseModel)

RETRY_SECONDS = 1
"""Default of `retry-after` in seconds: places become free whenever a run ends."""
_DAY_SECONDS = 86_400
_NO_RETRY = {"x-should-retry": "false"}
"""Header that keeps OpenAI's clients from repeating a 429 immediately."""


class ApiError(Exception):
    """Error that answers a request instead of a result."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "api_error" if self.status >= 500 else _INVALID),
                "param": self.param,
                "code": self.code,
            }
        }


_INVALID = "invalid_request_error"
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: _INVALID,
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


def defect() -> ApiError:
    """Return the error for a failure of the gateway itself: the traceback is in its log."""
    return ApiError(500, "the gateway failed; its log says why", code="internal_error")


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error for a request that can't be answered in this form."""
    return ApiError(400, message, param=param, code=code)


_PARAMETERS = {"token_texts": "logprobs", "template_options": "chat_template_kwargs"}
"""Names of `GenerationOptions` fields in OpenAI's API, if they differ."""


def unusable(error: InputError, within: str = "") -> ApiError:
    """Return the error for a request that can't become a run; fields of the request are below
    `within`."""
    cause = error.__cause__
    if not isinstance(cause, UnsupportedGeneration):
        return invalid(str(error))
    name = within + _PARAMETERS.get(cause.field, cause.field)
    return invalid(f"Unsupported parameter: '{name}': {error}", name, "unsupported_parameter")


def not_allowed(model: str) -> ApiError:
    """Return the error for a model that the caller's key does not allow."""
    message = f"this API key may not use the model '{model[:256]}'"
    return ApiError(403, message, code="model_not_allowed")


def overloaded(message: str) -> ApiError:
    return ApiError(
        429,
        message,
        code="rate_limit_exceeded",
        headers={"retry-after": str(RETRY_SECONDS)},
    )


def unavailable(message: str) -> ApiError:
    return ApiError(
        503, message, code="service_unavailable", headers={"retry-after": str(RETRY_SECONDS)}
    )


def lost(message: str) -> ApiError:
    """Return the error for a run that is no longer on the bus: Redis lost its last acknowledged
    data in a restart. A repeated request starts it again."""
    return unavailable(f"{message}; Redis has lost it: try again")


def translated(error: Exception) -> ApiError | None:
    """Translate an error of `Client` to the HTTP caller's error; None for a defect."""
    match error:
        case Overloaded():
            return overloaded(str(error))
        case BudgetExceeded():
            return quota_exceeded(error)
        case MessageTooLarge():
            return too_large(str(error))
        case BusUnavailable() | DeploymentChanged():
            return unavailable(str(error))
        case RunUnknown() | ApprovalUnknown():
            return ApiError(404, str(error), code=f"{_kind(error)}_not_found")
        case ApprovalConflict():
            return ApiError(409, str(error), code="approval_conflict")
        case InputError():
            return unusable(error, "generation.")
        case AgentError():
            return invalid(str(error))
        case UserError() | BusError():
            return ApiError(409, str(error), code="conflict")
        case _:
            return None


def _kind(error: RunUnknown | ApprovalUnknown) -> str:
    return "run" if isinstance(error, RunUnknown) else "approval"


def too_large(message: str) -> ApiError:
    return ApiError(413, message, code="request_too_large")


def validated(
    model: type[Model], value: object, within: str = "", *, strict: bool | None = None
) -> Model:
    """Read a body, or the part of it at `within`. Raises `ApiError` with the wrong field. `strict`:
    a text is not accepted as a number."""
    try:
        return model.model_validate(value, strict=strict)
    except ValidationError as error:
        raise _validation_error(error, value, within) from error


def _validation_error(error: ValidationError, body: object, within: str) -> ApiError:
    """Return the first error in a body, or in the part of it at `within`, with the field's path."""
    errors = error.errors(include_url=False, include_input=False)
    paths = [_path_of(body, fault) for fault in errors]
    # If a field may have several forms, each form reports an error. The form that matched furthest
    # into the field is the intended one.
    alternatives = [at for at, path in enumerate(paths) if path[: len(paths[0])] == paths[0]]
    furthest = max(alternatives, key=lambda at: len(paths[at]))
    fault, path = errors[furthest], _written_path(paths[furthest], within)
    if fault["type"] == "extra_forbidden":
        return invalid(f"Unknown parameter: '{path}'.", path, "unknown_parameter")
    if fault["type"] == "missing":
        return invalid(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
    if fault["type"] == "none_required":
        message = f"Unsupported parameter: '{path}': nothing here applies it; leave it out"
        return invalid(message, path, "unsupported_parameter")
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "model_type":
        message = "it must be an object"  # pydantic's message names a class of the gateway
    where = f"'{path}': " if path else ""
    return invalid(f"Invalid value for {where}{message}", path or None, "invalid_value")


def field_error(param: str, reason: str) -> PydanticCustomError:
    """Return an error about several fields of a body, attributed to `param`."""
    return PydanticCustomError("field_error", "{reason}", {"reason": reason, "param": param})


def _path_of(body: object, fault: ErrorDetails) -> tuple[int | str, ...]:
    """Return the path of a fault, without the names of alternative forms that pydantic tried, since
    the body does not contain them. The body does not contain a missing field either."""
    if fault["type"] == "field_error":
        return (*fault["loc"], fault.get("ctx", {})["param"])
    location = fault["loc"]
    missing = location[-1:] if fault["type"] == "missing" else ()
    path: list[int | str] = []
    value: Any = body
    for part in location[: len(location) - len(missing)]:
        if isinstance(part, int) and isinstance(value, list):
            value = cast(list[Any], value)[part]
        elif isinstance(value, dict) and part in value:
            value = cast(dict[str, Any], value)[str(part)]
        else:
            continue
        path.append(part)
    return (*path, *missing)


def _written_path(path: tuple[int | str, ...], within: str) -> str:
    text = within
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text[:256]


_STATUS = {
    "bad_request": (400, "invalid_value"),
    "too_large": (413, "request_too_large"),
    "context_overflow": (400, "context_length_exceeded"),
    "unknown_adapter": (404, "model_not_found"),
    "content_filter": (400, "content_filter"),
    "rate_limited": (429, "rate_limit_exceeded"),
    "auth": (502, "upstream_authentication"),
    "unavailable": (503, "service_unavailable"),
    "garbage": (502, "bad_upstream_response"),
    "timeout": (504, "timeout"),
    "deadline": (504, "timeout"),
}
"""Status and code by kind of engine error."""


def quota_exceeded(error: BudgetExceeded) -> ApiError:
    """Return the error for a used-up budget; daily budgets restart at midnight UTC. OpenAI's
    clients don't retry this error."""
    if not error.by_day:
        return ApiError(429, str(error), code="insufficient_quota", headers=_NO_RETRY)
    message = f"{error}; the day ends at midnight UTC"
    return ApiError(429, message, code="insufficient_quota", headers=_next_day())


def _next_day() -> dict[str, str]:
    seconds = _DAY_SECONDS - int(time.time()) % _DAY_SECONDS
    return {**_NO_RETRY, "retry-after": str(seconds)}


def failure_error(kind: str, message: str) -> ApiError:
    """Return the error for a call that the model's engine refused or failed to answer."""
    status, code = _STATUS.get(kind, (500, "internal_error"))
    headers = {"retry-after": str(RETRY_SECONDS)} if status in (429, 503) else None
    return ApiError(status, message, code=code, headers=headers)


_LAST_FAILURE = re.compile(r"dead letter: failed attempts: [0-9]+; last: ([a-z_]+): ")
"""Start of a run's reason if its last attempt failed, with the kind of the engine error."""


def outcome_error(outcome: Outcome, reason: str | None) -> ApiError:
    """Return the error for a run that ended without an answer, where no step gives the reason."""
    message = f"the run ended as {outcome}: {reason or 'no reason is given'}"
    failure = _LAST_FAILURE.match(reason or "")
    if outcome is Outcome.ERROR and failure is not None:
        return failure_error(failure[1], message)
    match outcome:
        case Outcome.BUDGET:
            headers = _next_day() if is_of_a_day(reason or "") else _NO_RETRY
            return ApiError(429, message, code="insufficient_quota", headers=headers)
        case Outcome.DEADLINE:
            return ApiError(504, message, code="timeout")
        case Outcome.CANCELLED:
            return ApiError(409, message, code="cancelled")
        case Outcome.GAVE_UP:
            return ApiError(422, message, code="no_answer")
        case _:
            return ApiError(500, message, code="internal_error")
