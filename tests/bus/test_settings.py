"""The URL of Redis: any other URL is refused, and no password is ever shown."""

from __future__ import annotations

import pydantic
import pytest
from redis.asyncio.connection import SSLConnection, parse_url

from loopline.bus import BusSettings, connection_pool
from loopline.bus.settings import OPTIONS

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
    "redis://host/0/1",
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
    "redis://host/0?password=s3cr3t&client_name=me": "redis://host/0?password=***&client_name=me",
    "redis://host/0?client_name=me&password=s3@cr3t": "redis://host/0?client_name=me&password=***",
    "rediss://host/0?ssl_ca_certs=/ca.pem&db=1": "rediss://host/0?ssl_ca_certs=/ca.pem&db=1",
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


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://h:0/0", "has the port 0"),
        ("rediss://:pw@h:0/0", "has the port 0"),
        ("redis://h:70000/0", "has the port 70000"),
        ("redis://h:-1/0", "has the port -1"),
        ("redis://h/one", "has the database 'one'"),
        ("redis://h:6379/-1", "has the database '-1'"),
        ("redis://h/99999999999", "has the database '99999999999'"),
        ("redis://h/?db=-1", "has the database '-1'"),
        ("unix:///run/r.sock?db=x", "has the database 'x'"),
        ("redis://h:6379/0 ", "contains ' '"),
        ("redis://h\n/0", r"contains '\\n'"),
        ("redis://:p w@h/0", r"contains ' '.*\(%20\)"),
        ("unix:///run/r.sock\u200b", "contains"),
        ("redis://", "names no host"),
        ("redis://:6379/0", "names no host"),
        ("redis://:pw@/0", "names no host"),
        ("redis://a,b:6379/0", "has the host 'a,b'"),
        ("redis://h%20x/0", "has the host 'h%20x'"),
        ("unix://", "names no socket file"),
        ("unix://run/redis.sock", "names no socket file"),
    ],
)
def test_a_url_without_a_valid_server_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=why) as caught:
        BusSettings(redis_url=url)
    assert "redis_url" in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_socket_file_s_name_may_contain_spaces() -> None:
    url = "unix:///run/my team/redis.sock?db=0"
    assert BusSettings(redis_url=url).redis_url == url


@pytest.mark.parametrize("url", [*RIGHT, "redis://:s3cr3t@host/0?client_name=me@here"])
def test_a_valid_server_url_is_kept_unchanged(url: str) -> None:
    assert BusSettings(redis_url=url).redis_url == url
    assert parse_url(url)


@pytest.mark.parametrize(("url", "display"), RIGHT.items())
def test_a_url_is_shown_complete_except_for_its_password(url: str, display: str) -> None:
    assert BusSettings(redis_url=url).safe_url == display


@pytest.mark.parametrize("url", [url for url in WRONG if "@" in url])
def test_an_unchecked_url_is_shown_without_its_password(url: str) -> None:
    text = BusSettings.model_construct(redis_url=url).safe_url
    assert "s3cr3t" not in text


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("protocol=3", "changes how replies are read"),
        ("decode_responses=True", "changes how replies are read"),
        ("encoding=latin-1", "changes how replies are read"),
        ("retry_on_timeout=yes", "itself decides what to retry"),
        ("health_check_interval=1", "itself decides what to retry"),
        ("socket_timeout=1", "sets that itself"),
        ("max_connections=1", "sets that itself"),
        ("ssl_cert_reqs=none", "requires a rediss:// URL"),
        ("databse=1", "the option databse"),
        ("protocol=", "changes how replies are read"),
        ("client_name=a&client_name=b", "more than once"),
    ],
)
def test_an_unsupported_url_option_is_refused_with_the_reason(option: str, why: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=why):
        BusSettings(redis_url=f"redis://host/0?{option}")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("ssl_cert_reqs=none", "ssl_check_hostname=no alongside it"),
        ("ssl_cert_reqs=none&ssl_check_hostname=yes", "ssl_check_hostname=no alongside it"),
        ("ssl_check_hostname=", "neither yes nor no"),
        ("ssl_check_hostname=never", "neither yes nor no"),
        ("ssl_cert_reqs=", "not required, optional or none"),
    ],
)
def test_disabling_the_certificate_check_requires_explicit_options(options: str, why: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=why):
        BusSettings(redis_url=f"rediss://host/0?{options}")


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("rediss://host/0", True),
        ("rediss://host/0?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required", True),
        ("rediss://host/0?ssl_check_hostname=True", True),
        ("rediss://host/0?ssl_check_hostname=No", False),
        ("rediss://host/0?ssl_check_hostname=no&ssl_cert_reqs=none", False),
    ],
)
def test_a_certificate_is_checked_for_its_host_unless_the_url_disables_it(
    url: str, checked: bool
) -> None:
    assert BusSettings(redis_url=url).checks_host is checked
    connection = connection_pool.pool(url, max_connections=1, wait_seconds=1).make_connection()
    assert isinstance(connection, SSLConnection)
    assert connection.ssl_context.check_hostname is checked


def test_an_option_that_may_be_part_of_a_password_is_not_shown() -> None:
    with pytest.raises(pydantic.ValidationError, match="not shown") as caught:
        BusSettings(redis_url="redis://host/0?password=half&s3cr3t=half")
    assert "s3cr3t" not in str(caught.value)


def test_a_connection_accepts_every_allowed_url_option() -> None:
    """redis-py passes unknown options on to its connections, which then fail."""
    values = {"db": "1", "socket_keepalive": "yes", "ssl_check_hostname": "yes"}
    for scheme, options in OPTIONS.items():
        query = "&".join(f"{name}={values.get(name, 'none')}" for name in sorted(options))
        pool = connection_pool.pool(f"{scheme}://host/0?{query}", max_connections=1, wait_seconds=1)
        assert pool.make_connection()
