"""A Redis whose certificate the deployment's own authority has signed, and which requires a client
certificate."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import redis
import trustme
import uvloop

from loopline.bus import Bus, BusUnavailable
from loopline.bus.connection import renewal_client
from loopline.runtime.config.settings import Settings, load
from loopline.runtime.errors import EXIT_UNREACHABLE, Unreachable
from loopline.runtime.jobs import queue as jobs
from loopline.runtime.redis.binary import RedisBinary
from loopline.testing import installed_servers, running_redis
from tests.runtime.conftest import Deployment

pytestmark = pytest.mark.system


class Certificate(NamedTuple):
    """Files in PEM."""

    authority: Path
    localhost: Path
    """Certificate of localhost, with its key."""
    of_another: Path
    """Certificate of another host, with its key."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name in ("localhost", "bus.example"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(
            folder / f"{name}.pem"
        )
    names = ("authority", "localhost", "bus.example")
    return Certificate(*(folder / f"{name}.pem" for name in names))


def tls_server() -> RedisBinary | None:
    """A server that was built with TLS: it exits for lack of a certificate, another one for lack of
    TLS."""
    for binary in installed_servers().values():
        ended = subprocess.run(
            [str(binary.path), "--port", "0", "--tls-port", "1", "--save", ""],
            capture_output=True,
            text=True,
            timeout=10,
        )
        if "tls-cert-file" in ended.stdout + ended.stderr:
            return binary
    return None


@contextmanager
def serving(certificate_path: Path, authority: Path, folder: Path) -> Generator[int]:
    """The port of a server that requires a client certificate."""
    binary = tls_server()
    if binary is None:
        pytest.skip("no TLS server on this machine (install redis-server)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    options = [
        "--tls-port", str(port),
        "--tls-cert-file", str(certificate_path), "--tls-key-file", str(certificate_path),
        "--tls-ca-cert-file", str(authority), "--tls-auth-clients", "yes",
    ]  # fmt: skip
    with running_redis(folder, *options, binary=binary):
        yield port


@pytest.fixture
def port(certificate: Certificate, tmp_path: Path) -> Iterator[int]:
    with serving(certificate.localhost, certificate.authority, tmp_path / "redis") as port:
        yield port


@pytest.fixture
def strange_port(certificate: Certificate, tmp_path: Path) -> Iterator[int]:
    """The server at localhost shows a certificate of another host, by the same authority."""
    with serving(certificate.of_another, certificate.authority, tmp_path / "redis") as port:
        yield port


def settings_of(port: int, *options: str) -> Settings:
    return load(redis_url=f"rediss://localhost:{port}/0?{'&'.join(options)}")


def options_of(certificate: Certificate) -> tuple[str, ...]:
    authority, certificate_path, _ = certificate
    return (
        f"ssl_ca_certs={authority}",
        f"ssl_certfile={certificate_path}",
        f"ssl_keyfile={certificate_path}",
    )


async def test_the_bus_and_its_jobs_use_the_certificates_of_the_url(
    certificate: Certificate, port: int
) -> None:
    settings = settings_of(port, *options_of(certificate))
    async with Bus(settings.bus) as bus:
        assert await bus.redis.ping()
    with renewal_client(settings.bus) as keeper:
        assert keeper.ping()
    queue = await jobs.connect(settings)
    assert await queue.ping()
    await queue.aclose(close_connection_pool=True)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_scripts_share_an_encrypted_connection(
    certificate: Certificate, port: int, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    settings = settings_of(port, *options_of(certificate))
    texts = [str(number) * 20_000 for number in range(60)]

    async def main() -> list[bytes]:
        async with Bus(settings.bus) as bus:
            return await asyncio.gather(
                *(bus.redis.eval("return ARGV[1]", 0, text) for text in texts)  # pyright: ignore
            )

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) == [text.encode() for text in texts]


async def test_every_client_refuses_a_certificate_of_another_host(
    certificate: Certificate, strange_port: int
) -> None:
    settings = settings_of(strange_port, *options_of(certificate))
    with pytest.raises(BusUnavailable, match="for another host"):
        async with Bus(settings.bus):
            pass
    with renewal_client(settings.bus) as keeper, pytest.raises(redis.RedisError, match="mismatch"):
        keeper.ping()
    with pytest.raises(Unreachable, match="mismatch"):
        await jobs.connect(settings)


async def test_a_url_can_disable_the_check_of_the_host(
    certificate: Certificate, strange_port: int
) -> None:
    for query in ("ssl_check_hostname=no", "ssl_check_hostname=no&ssl_cert_reqs=none"):
        settings = settings_of(strange_port, *options_of(certificate), query)
        assert not settings.bus.checks_host
        async with Bus(settings.bus) as bus:
            assert await bus.redis.ping()
        with renewal_client(settings.bus) as keeper:
            assert keeper.ping()


def test_an_untrusted_certificate_is_one_clear_error(deployment: Deployment, port: int) -> None:
    url = f"rediss://localhost:{port}/0"
    process = deployment.run("jobs", env={"LOOPLINE_BUS__REDIS_URL": url})
    assert process.returncode == EXIT_UNREACHABLE
    assert process.stderr.startswith(f"error: Redis at {url} does not answer: ")
    assert "certificate verify failed" in process.stderr
