"""A reserved port is available when its server starts to listen."""

from __future__ import annotations

import gc
import socket
import sys
from pathlib import Path

import pytest

from loopline.workers.engines.local.model_text import ModelText
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.managed import ManagedServer
from loopline.workers.reserved_port import reserve_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reserves ports")


class Owner:
    pass


def listens(port: int, **options: bool) -> bool:
    try:
        socket.create_server(("127.0.0.1", port), **options).close()
    except OSError:
        return False
    return True


def takes(port: int) -> bool:
    """Tell whether a process that does not ask for a used port gets it."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_reserved_port_belongs_to_its_server_across_restarts() -> None:
    owner = Owner()
    port = reserve_port(owner)
    for _ in range(2):
        assert not takes(port)
        assert listens(port)
        assert listens(port, reuse_port=True)
    del owner
    gc.collect()
    assert takes(port)


def test_no_port_is_reserved_twice() -> None:
    owners = [Owner() for _ in range(200)]
    assert len({reserve_port(owner) for owner in owners}) == len(owners)


def test_a_managed_server_keeps_its_port_until_it_binds(tmp_path: Path) -> None:
    settings = ModelSettings(engine="vllm", model=str(tmp_path))
    text = ModelText.__new__(ModelText)  # its tokenizer does not matter here
    server = ManagedServer(settings, tmp_path, text)
    port = int(server.url.rsplit(":", 1)[1].removesuffix("/v1"))
    assert not takes(port)
    assert listens(port)
