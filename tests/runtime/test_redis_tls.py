"""A Redis whose certificate only the deployment's own authority vouches for, and which asks for one
in turn."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import Bus
from runtime import jobs
from runtime.config import Settings, load
from runtime.errors import EXIT_UNREACHABLE
from tests.redis_process import running, servers
from tests.runtime.conftest import Deployment


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of localhost, signed by itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on this machine")
    folder = tmp_path_factory.mktemp("tls")
    signed, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", str(key), "-out", str(signed),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return signed, key


@pytest.fixture
def port(certificate: tuple[Path, Path], tmp_path: Path) -> Iterator[int]:
    """Of a server that talks to nobody without a certificate."""
    signed, key = certificate
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    options = [
        "--tls-port", str(port), "--tls-cert-file", str(signed), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(signed), "--tls-auth-clients", "yes",
    ]  # fmt: skip
    with running(next(iter(servers().values())), tmp_path / "redis", *options):
        yield port


def settings_of(port: int, *options: str) -> Settings:
    return load(redis_url=f"rediss://localhost:{port}/0?{'&'.join(options)}")


async def test_the_bus_and_its_jobs_heed_what_the_url_says_of_certificates(
    certificate: tuple[Path, Path], port: int
) -> None:
    signed, key = certificate
    settings = settings_of(
        port, f"ssl_ca_certs={signed}", f"ssl_certfile={signed}", f"ssl_keyfile={key}"
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
