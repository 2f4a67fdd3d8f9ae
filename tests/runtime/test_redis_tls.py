"""A Redis whose certificate only the deployment's own authority vouches for, and which asks for one
in turn."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from bus import Bus
from runtime import jobs
from runtime.config import Settings, load
from runtime.errors import EXIT_UNREACHABLE
from tests.redis_process import running, tls_server
from tests.runtime.conftest import Deployment


class Certificate(NamedTuple):
    """Files in PEM."""

    authority: Path
    own: Path
    """Of localhost, with its key."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        folder / "localhost.pem"
    )
    return Certificate(folder / "authority.pem", folder / "localhost.pem")


@pytest.fixture
def port(certificate: Certificate, tmp_path: Path) -> Iterator[int]:
    """Of a server that talks to nobody without a certificate."""
    binary = tls_server()
    if binary is None:
        pytest.skip("no TLS server on this machine (install redis-server)")
    own = str(certificate.own)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    options = [
        "--tls-port", str(port), "--tls-cert-file", own, "--tls-key-file", own,
        "--tls-ca-cert-file", str(certificate.authority), "--tls-auth-clients", "yes",
    ]  # fmt: skip
    with running(binary, tmp_path / "redis", *options):
        yield port


def settings_of(port: int, *options: str) -> Settings:
    return load(redis_url=f"rediss://localhost:{port}/0?{'&'.join(options)}")


async def test_the_bus_and_its_jobs_heed_what_the_url_says_of_certificates(
    certificate: Certificate, port: int
) -> None:
    authority, own = certificate
    settings = settings_of(
        port, f"ssl_ca_certs={authority}", f"ssl_certfile={own}", f"ssl_keyfile={own}"
    )
    async with Bus(settings.bus) as bus:
        assert await bus.redis.ping()
    queue = await jobs.connect(settings)
    assert await queue.ping()
    await queue.aclose(close_connection_pool=True)


def test_a_certificate_that_nobody_vouches_for_is_one_clear_error(
    deployment: Deployment, port: int
) -> None:
    url = f"rediss://localhost:{port}/0"
    done = deployment.run("jobs", env={"SWITCHYARD_BUS__REDIS_URL": url})
    assert done.returncode == EXIT_UNREACHABLE
    assert done.stderr.startswith(f"error: Redis at {url} does not answer: ")
    assert "certificate verify failed" in done.stderr
