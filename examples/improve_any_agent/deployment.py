"""The deployment that serves and records the agent."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

PROFILE, CPU = Path(__file__).with_name("deployment.toml"), "cpu-minutes.txt"


@contextmanager
def deployment(folder: Path) -> Iterator[None]:
    """Until the block ends. The environment leads OpenAI's client, and so the agent, to it."""
    state, began = folder / "state", _cpu_minutes()
    os.environ["LOOPLINE_STATE"] = str(state)
    subprocess.run(["runtime", "down"], capture_output=True, check=False)  # of a killed start
    with (folder / "deployment.log").open("a") as log:
        up = subprocess.Popen(["runtime", "up", "--profile", PROFILE], stdout=log, stderr=log)
    try:
        while (url := gateway(status())) is None:
            if up.poll() is not None:
                raise SystemExit(f"the deployment has ended: see {log.name}")
            time.sleep(1)
        os.environ["OPENAI_BASE_URL"] = url
        os.environ["OPENAI_API_KEY"] = (state / "gateway.key").read_text().strip()
        yield
    finally:
        up.terminate()
        up.wait()
        with (folder / CPU).open("a") as file:
            print(_cpu_minutes() - began, file=file)


def status() -> dict[str, Any]:
    """Of the deployment; empty where none runs yet."""
    done = subprocess.run(["runtime", "status", "--json"], capture_output=True, check=False)
    return json.loads(done.stdout or "{}")


def gateway(now: dict[str, Any]) -> str | None:
    """Its address; none before all workers are there."""
    if now.get("phase") == "ready" and not now["gateway"]:
        raise SystemExit("the deployment has no gateway: its [workers.gateway] has a count of 0")
    return now["gateway"]["url"] if now.get("phase") == "ready" else None


def cpu_minutes(folder: Path) -> float:
    """Of all processes that ran for the folder. A start that was killed is not counted."""
    return sum(map(float, (folder / CPU).read_text().split()))


def _cpu_minutes() -> float:
    """Of this process and of those that it has started and that have ended."""
    return sum(sum(getrusage(who)[:2]) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)) / 60
