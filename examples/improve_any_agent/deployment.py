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
    """Run a deployment during the block; the agent's OpenAI client finds it by variables."""
    state, began = folder / "state", _cpu_minutes()
    os.environ["LOOPLINE_STATE"] = str(state)
    subprocess.run(["runtime", "down"], capture_output=True, check=False)  # left by a killed start
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
    """Status of the deployment; empty if none is running yet."""
    done = subprocess.run(["runtime", "status", "--json"], capture_output=True, check=False)
    return json.loads(done.stdout or "{}")


def gateway(now: dict[str, Any]) -> str | None:
    """Address of the gateway; None before all workers are ready."""
    if now.get("phase") == "ready" and not now["gateway"]:
        raise SystemExit("the deployment has no gateway: its [workers.gateway] has a count of 0")
    return now["gateway"]["url"] if now.get("phase") == "ready" else None


def cpu_minutes(folder: Path) -> float:
    """CPU minutes of all processes that ran for the folder, except those of killed starts."""
    return sum(map(float, (folder / CPU).read_text().split()))


def _cpu_minutes() -> float:
    """CPU minutes of this process and of its child processes that have ended."""
    return sum(sum(getrusage(who)[:2]) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)) / 60
