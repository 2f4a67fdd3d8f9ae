"""`bench` as its user runs it: a separate process that finds a deployment through its
environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loopline.bus import BusSettings
from loopline.runtime.config.settings import load
from loopline.testing import installed_servers, running_redis

COMMAND = [sys.executable, "-c", "from loopline.bench.cli import main; main()"]


@contextmanager
def deployable(
    folder: Path, profile: str, **variables: str
) -> Generator[tuple[BusSettings, dict[str, str]]]:
    """A separate server, and the environment in which commands find it; their state is in
    `folder`."""
    binary = next(iter(installed_servers().values()))
    with (
        TemporaryDirectory(prefix="sw-") as place,
        running_redis(Path(place), binary=binary) as server,
    ):
        yield (
            # As the profile sets them: all processes of a deployment must agree on them.
            load(profile, redis_url=server.url, environ={}).bus,
            {
                **os.environ,
                "LOOPLINE_BUS__REDIS_URL": server.url,
                "LOOPLINE_STATE": str(folder / "state"),
                "LOOPLINE_PROFILE": profile,
                **variables,
            },
        )


def killed_at(results: int, output: Path, environment: dict[str, str], *arguments: str) -> None:
    """Run the bench until that many results are on disk, then send SIGKILL."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    items = output / "items.jsonl"
    while process.poll() is None:
        if items.exists() and items.read_bytes().count(b'"result"') >= results:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.005)
    errors = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, errors


def errors_of(environment: dict[str, str], *arguments: str) -> str:
    """The output of a command that fails."""
    process = subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, check=False, text=True
    )
    assert process.returncode != 0, process.stdout
    return process.stderr


def last_line(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """The last line of `--json`."""
    process = subprocess.run(
        [*COMMAND, *arguments, "--json"],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])
