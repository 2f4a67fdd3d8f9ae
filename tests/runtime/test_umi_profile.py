"""The profile `umi`: three policies on one model, and each role has its own workers."""

from __future__ import annotations

import json

from loopline.agents.workflows import workflows
from loopline.runtime.config import settings as config
from tests.runtime.conftest import Deployment


def test_every_role_of_the_workflow_is_served_by_an_adapter_of_one_model() -> None:
    settings = config.load("umi", environ={})
    umi_workflows = [workflows.get(name) for name in ("umi", "umi_single")]
    roles = [role for workflow in umi_workflows for role in workflow.roles]
    hosted = [role for worker in settings.workers.values() for role in worker.roles]
    assert sorted(hosted) == sorted([*roles, "completion"])
    assert settings.workers["gpu"].models == ("umi",)
    assert settings.policies == {
        role: policy
        for umi_workflow in umi_workflows
        for role, policy in umi_workflow.default_policies.items()
    }


def test_each_of_its_adapters_starts_as_the_model_itself() -> None:
    settings = config.load("umi", environ={})
    assert {f"umi/{name}" for name in settings.models["umi"].base_until_published} == set(
        settings.policies.values()
    )


def test_ask_runs_an_instruction_of_the_simulator_and_its_world_judges_it(
    deployment: Deployment,
) -> None:
    """The scripted oracle knows the instructions of one number and gives up on others."""
    worlds = json.dumps([{"split": "unseen_worlds", "samples": 1, "seed": 7}])
    idle = (f"workers.{kind}.count=0" for kind in ("single", "recorder", "jobs"))
    deployment.up(
        f"models.umi.scripted.worlds={worlds}",
        "options.umi.max_calls=5",
        *idle,
        profile="umi_scripted",
    )
    output = deployment.ok("ask", "--world", "7", "--option", "tool_style=signatures")
    assert output.endswith("the simulator reports: done\n")
    failed = deployment.run("ask", "--world", "8")
    assert failed.returncode == 1
    assert failed.stdout.splitlines()[-1].startswith("not done: ")
    record = json.loads(deployment.ok("ask", "--world", "7", "--json", "--option", "max_calls=4"))
    assert record["run"]["options"]["max_calls"] == 4
    record = json.loads(deployment.ok("ask", "--world", "7", "--json"))
    assert record["run"]["options"]["max_calls"] == 5, "the profile's"
