"""The worker kind `improve`: the closed loop as a part of a deployment."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from loopline.runtime.config.settings import Settings
from loopline.runtime.jobs.improve_worker import command_line
from tests.runtime.conftest import Deployment, until

pytestmark = pytest.mark.timeout(300)

CASCADE = """
extends = "micro"

[models.slm]
base_until_published = ["improve", "improve-candidate"]

[policies]
first = "slm/improve"

[options.cascade]
router = "{folder}/cascade.router.json"
audit = 0.1

[workers.improve]
count = 1

[improve]
look = 0.2
{options}
"""


def up(deployment: Deployment, options: str = "") -> None:
    """A deployment without models: the loop has nothing to learn, and keeps looking."""
    profile = deployment.state.path / "loop.toml"
    profile.write_text(CASCADE.format(folder=deployment.state.path, options=options))
    deployment.up(profile=str(profile), kinds=())


def loops(deployment: Deployment) -> list[psutil.Process]:
    """The running processes of the loop."""
    processes: list[psutil.Process] = []
    for process in deployment.processes():
        with suppress(psutil.NoSuchProcess):
            if any("loopline.trainers.cli" in word for word in process.cmdline()):
                processes.append(process)
    return processes


def printed(deployment: Deployment) -> str:
    log = deployment.state.logs / "train-improve.log"
    return log.read_text() if log.exists() else ""


def test_a_killed_loop_is_restarted_and_ends_with_its_deployment(
    deployment: Deployment,
) -> None:
    up(deployment)
    (first,) = until(lambda: loops(deployment), "loop")
    assert "error" not in printed(deployment)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: [p for p in loops(deployment) if p.pid != first.pid], "loop again")
    deployment.ok("down")
    assert loops(deployment) == []


def test_a_finished_loop_leaves_its_worker_idle(deployment: Deployment) -> None:
    up(deployment, "once = true")
    (worker,) = until(
        lambda: [w for w in deployment.workers("improve") if "improve" in w["details"]], "end"
    )
    assert worker["details"]["improve"] == "no round is due"
    assert worker["busy"] == 0
    assert (deployment.state.path / "improve").is_dir()


def test_an_unknown_option_of_the_loop_is_reported(deployment: Deployment) -> None:
    up(deployment, "evry = 3")
    until(lambda: deployment.workers("improve", "broken"), "end of the worker")
    assert "No such option: --evry" in printed(deployment)


def test_a_deployment_can_have_only_one_loop() -> None:
    with pytest.raises(ValueError, match=r"workers\.improve\.count must be at most 1"):
        Settings.model_validate({"workers": {"improve": {"count": 2}}})


def test_options_of_the_profile_become_options_of_the_command() -> None:
    settings = Settings.model_validate(
        {"improve": {"max_usd": "5", "confirmed": "true", "margin": 0.02, "trackers": ["mlflow"]}}
    )
    words = command_line(Path("/state/improve"), {**settings.improve, "once": False})
    assert words == [
        "improve", "/state/improve", "--max-usd=5", "--confirmed", "--margin=0.02",
        "--trackers=mlflow",
    ]  # fmt: skip
