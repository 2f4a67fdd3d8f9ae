"""A client of a deployment makes runs as the deployment's settings say."""

from __future__ import annotations

import pytest

from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import Settings
from loopline.runtime.errors import InputError

SETTINGS = Settings.model_validate({"options": {"solo": {"prompts": "mathematics"}}})


def test_options_of_the_deployment_hold_for_runs_of_their_workflow_alone() -> None:
    client = Client.of(SETTINGS)
    run = client.new_run("What is 1 + 1?", workflow="solo")
    assert run.options["prompts"] == "mathematics"
    other = client.new_run("What is 1 + 1?", workflow="delegate")
    assert other.options["prompts"] == "general"


def test_options_of_a_run_stand_over_those_of_the_deployment() -> None:
    run = Client.of(SETTINGS).new_run("?", workflow="solo", options={"prompts": "general"})
    assert run.options["prompts"] == "general"


def test_an_option_of_the_deployment_that_no_workflow_has_is_refused_with_its_name() -> None:
    client = Client.of(Settings())
    client.options = {"solo": {"colour": "red"}}
    with pytest.raises(InputError, match="colour"):
        client.new_run("?", workflow="solo")
