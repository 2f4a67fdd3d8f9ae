"""The error of a command when Redis refuses a request or disconnects."""

from __future__ import annotations

import pytest
import redis.exceptions

from loopline.runtime.errors import EXIT_UNREACHABLE
from loopline.runtime.program import explain_error

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (redis.exceptions.OutOfMemoryError("command not allowed"), "raise its maxmemory"),
        (redis.exceptions.ReadOnlyError("no writes here"), "it is a replica"),
        (redis.exceptions.ConnectionError("Connection closed by server."), "`runtime doctor`"),
        (
            redis.exceptions.ResponseError("MISCONF Errors writing: No space left on device"),
            "the disk that holds its data is full",
        ),
        (redis.exceptions.ResponseError("MISCONF Errors writing to the AOF"), "its folder"),
        (redis.exceptions.ResponseError("NOREPLICAS Not enough"), "min-replicas-to-write"),
        (redis.exceptions.BusyLoadingError("loading the dataset"), "still loading its data"),
        (redis.exceptions.ConnectionError("max number of clients reached"), "its maxclients"),
        (redis.exceptions.NoPermissionError("this user has no permissions"), "lacks a right"),
        (redis.exceptions.TimeoutError("Timeout reading from socket"), "does not answer"),
    ],
    ids=["full", "a replica", "gone", "its disk is full", "its disk is broken", "no replicas",
         "loading", "no more clients", "no right", "frozen"],
)  # fmt: skip
def test_a_refusal_by_redis_is_one_message_with_a_remedy(error: Exception, says: str) -> None:
    message, code = explain_error(error)
    assert code == EXIT_UNREACHABLE
    assert message.startswith("Redis refused this")
    assert str(error) in message
    assert says in message


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ResponseError("user_script:7: a nil value, on @user_script:7."),
        redis.exceptions.DataError("an argument is neither text, bytes nor number"),
    ],
    ids=["a script's fault", "an argument that can't be sent"],
)
def test_a_defect_in_our_code_keeps_its_traceback(error: Exception) -> None:
    _, code = explain_error(error)
    assert code is None
