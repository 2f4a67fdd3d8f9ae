"""The password of Redis: a malformed one is one error, and none appears in any output."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
import redis

from loopline.runtime.config.secrets import Redactor, secret_values
from loopline.runtime.config.settings import load
from loopline.runtime.errors import EXIT_CONFIG
from loopline.runtime.jobs import queue as jobs
from loopline.testing import RedisProcess
from tests.runtime.conftest import Deployment

pytestmark = pytest.mark.system

PASSWORD = "s3/cr#3t?pw@+%x"


@pytest.fixture
def guarded(any_server: RedisProcess) -> Iterator[str]:
    """The path of the socket of a server whose user `signs` has that password."""
    with redis.Redis.from_url(any_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "signs", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        yield str(any_server.socket)
        admin.execute_command("ACL", "DELUSER", "signs")


@pytest.mark.parametrize("command", [["status"], ["ask", "hi"], ["worker", "slm"], ["up"]])
def test_a_password_that_is_not_percent_encoded_is_one_error_that_hides_it(
    deployment: Deployment, command: list[str]
) -> None:
    url = "redis://:s3cr3tpw/abc@127.0.0.1:6379/0"
    process = deployment.run(*command, env={"LOOPLINE_BUS__REDIS_URL": url})
    assert process.returncode == EXIT_CONFIG
    assert "s3cr3tpw" not in process.stdout + process.stderr
    assert process.stderr.startswith("error: environment: LOOPLINE_BUS__REDIS_URL: ")
    assert "percent-encode the password" in process.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_config_hides_a_password_in_the_query_of_a_url(
    deployment: Deployment, options: list[str]
) -> None:
    url = "redis://h/0?password=hunter2secret&client_name=me"
    output = deployment.ok("config", *options, env={"LOOPLINE_BUS__REDIS_URL": url})
    assert "hunter2secret" not in output
    assert "redis://h/0?password=***&client_name=me" in output


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3%2Fcr3t@h/0",
        "redis://h/0?password=s3%2Fcr3t",
        "rediss://h/0?db=1&ssl_password=s3%2Fcr3t&protocol=3",
    ],
)
def test_a_password_is_a_secret_both_encoded_and_decoded(url: str) -> None:
    assert sorted(secret_values(url, [])) == ["s3%2Fcr3t", "s3/cr3t"]


def test_a_password_with_an_at_sign_is_a_secret_as_a_whole() -> None:
    assert secret_values("redis://:s3@cr3t@h/0", []) == ["s3@cr3t"]


def test_a_password_in_the_query_of_a_url_is_hidden_in_any_text() -> None:
    output = Redactor().text("joining 'redis://h/0?db=1&password=short', at once")
    assert output == "joining 'redis://h/0?db=1&password=***', at once"


@pytest.mark.parametrize(
    "form",
    ["unix://signs:{}@{}?db=0", "unix://{1}?username=signs&password={0}"],
    ids=["before the host", "behind the question mark"],
)
async def test_the_job_queue_can_be_reached_with_any_percent_encoded_password(
    guarded: str, form: str
) -> None:
    url = form.format(quote(PASSWORD, safe=""), guarded)
    settings = load("scripted", redis_url=url, environ={})
    pool = await jobs.connect(settings)
    assert await pool.execute_command("ACL", "WHOAMI") == b"signs"
    await pool.aclose(close_connection_pool=True)
