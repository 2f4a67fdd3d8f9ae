"""The URL of Redis: what is no such URL is refused, and no password is ever shown."""

from __future__ import annotations

import pydantic
import pytest
from redis.asyncio.connection import parse_url

from bus import BusSettings

WRONG = [
    "redis://:s3cr3t/pw@host:6379/0",
    "redis://:1234/pw@host:6379/0",
    "redis://:/s3cr3t@host:6379/0",
    "redis://user:s3cr3t/pw@host:6379/0",
    "redis://:s3cr3t#pw@host:6379/0",
    "redis://:1234#pw@host:6379/0",
    "redis://:s3cr3t?pw@host:6379/0",
    "redis://:1234?pw=@host:6379/0",
    "redis://:p@s3cr3t?pw@host:6379/0",
    "redis://[s3cr3t@host:6379/0",
    "redis://:s3cr3t@host:pw/0",
    "redis://:s3cr3t@host:66379/0",
    "redis://:s3cr3t/0",
    "redis://:s3cr3t@host/0?db=one",
    "redis://host/0?password=s3cr3t#pw",
    "unix://:s3cr3t/pw@/run/redis.sock",
    "unix://user/s3cr3t@/run/redis.sock",
    "unix://:p@s3cr3t/pw@/run/redis.sock",
    "unix://:1234#pw@/run/redis.sock",
]
RIGHT = {
    "redis://host": "redis://host",
    "redis://host:6379/0": "redis://host:6379/0",
    "rediss://:s3cr3t@host:6379/0": "rediss://:***@host:6379/0",
    "redis://user:s3cr3t@[::1]:6379/0": "redis://user:***@[::1]:6379/0",
    "redis://:s3%2Fcr%233t@host:6379/0": "redis://:***@host:6379/0",
    "redis://:s3@cr3t@host:6379/0": "redis://:***@host:6379/0",
    "redis://s3cr3t@host:6379/0": "redis://***@host:6379/0",
    "redis://host/0?password=s3cr3t&protocol=3": "redis://host/0?password=***&protocol=3",
    "redis://host/0?protocol=3&password=s3@cr3t": "redis://host/0?protocol=3&password=***",
    "rediss://host/0?ssl_password=s3cr3t": "rediss://host/0?ssl_password=***",
    "unix:///run/redis.sock?db=0": "unix:///run/redis.sock?db=0",
    "unix:///run/me@here.sock": "unix:///run/me@here.sock",
    "unix://:s3cr3t@/run/redis.sock?db=0": "unix://:***@/run/redis.sock?db=0",
}


@pytest.mark.parametrize("url", WRONG)
def test_a_url_that_would_be_misread_is_refused(url: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="percent-encode the password"):
        BusSettings(redis_url=url)


@pytest.mark.parametrize("url", WRONG)
def test_a_refused_url_is_not_repeated(url: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        BusSettings(redis_url=url)
    assert "s3cr3t" not in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("url", [*RIGHT, "redis://:s3cr3t@host/0?client_name=me@here"])
def test_a_url_of_a_server_is_taken_as_it_is(url: str) -> None:
    assert BusSettings(redis_url=url).redis_url == url
    assert parse_url(url)


@pytest.mark.parametrize(("url", "shown"), RIGHT.items())
def test_a_url_is_shown_whole_but_for_its_password(url: str, shown: str) -> None:
    assert BusSettings(redis_url=url).safe_url == shown


@pytest.mark.parametrize("url", [url for url in WRONG if "@" in url])
def test_not_even_a_url_that_nobody_checked_is_shown_with_its_password(url: str) -> None:
    shown = BusSettings.model_construct(redis_url=url).safe_url
    assert "s3cr3t" not in shown
