"""Log files of a deployment are put aside while its processes go on writing."""

from __future__ import annotations

import json
import os
import signal

import pytest
import redis

from tests.runtime.conftest import Deployment, until

pytestmark = pytest.mark.timeout(400)


def test_logs_are_rotated_while_the_deployment_runs(deployment: Deployment) -> None:
    deployment.up("supervisor.log_bytes=10000", "supervisor.log_files=2", kinds=("slm",))
    logs = deployment.state.logs
    running = deployment.state.running()
    assert running is not None
    with redis.Redis.from_url(running.redis_url) as connection:
        connection.config_set("loglevel", "debug")
        for _ in range(200):
            with redis.Redis.from_url(running.redis_url) as other:
                other.ping()
        connection.config_set("loglevel", "notice")
        until((logs / "redis.log.1").exists, "rotation of redis.log")
        before = (logs / "redis.log").stat().st_size
        connection.bgrewriteaof()
        until(lambda: (logs / "redis.log").stat().st_size > before, "line in the new redis.log")
    with deployment.state.supervisor_log.open("ab") as log:
        log.write(b"x" * 20_000 + b"\n")
    until((logs / "supervisor.log.1").exists, "rotation of supervisor.log")
    (worker,) = deployment.workers("slm")
    os.kill(worker["pid"], signal.SIGKILL)
    until(lambda: worker["name"] in deployment.state.supervisor_log.read_text(), "its death")
    lines = deployment.state.supervisor_log.read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    assert (logs / "supervisor.log.1").read_bytes().endswith(b"x" * 20_000 + b"\n")
