"""The deployment that serves and records the agent, by the commands of Loopline."""

import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


def run(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


@contextmanager
def deployment(folder: Path) -> Iterator[None]:
    """Runs, and is in the environment of the OpenAI client, until the block ends."""
    os.environ["LOOPLINE_STATE"] = str(folder / "state")
    log = (folder / "deployment.log").open("a")
    profile = str(HERE / "deployment.toml")
    process = subprocess.Popen(["runtime", "up", "--profile", profile], stdout=log, stderr=log)
    try:
        while (now := status())["phase"] != "ready":
            if process.poll() is not None:
                raise SystemExit(f"the deployment has ended: see {folder / 'deployment.log'}")
            time.sleep(0.5)
        [gateway] = [worker for worker in now["workers"] if worker["kind"] == "gateway"]
        os.environ["OPENAI_BASE_URL"] = gateway["details"]["url"]
        os.environ["OPENAI_API_KEY"] = (folder / "state/gateway.key").read_text().strip()
        yield
    finally:
        process.terminate()
        process.wait()


def status() -> dict:
    done = subprocess.run(["runtime", "status", "--json"], stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout or '{"phase": "starting"}')


def wait_until_recorded() -> None:
    while status()["unrecorded"]:
        time.sleep(0.5)


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
