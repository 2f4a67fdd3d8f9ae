"""A client of a deployment creates runs with the deployment's settings."""

from __future__ import annotations

import pytest

from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import Settings
from loopline.runtime.errors import InputError

SETTINGS = Settings.model_validate({"options": {"solo": {"prompts": "mathematics"}}})


def test_options_of_the_deployment_apply_only_to_runs_of_their_workflow() -> None:
    client = Client.of(SETTINGS)
    run = client.new_run("What is 1 + 1?", workflow="solo")
    assert run.options["prompts"] == "mathematics"
    other = client.new_run("What is 1 + 1?", workflow="delegate")
    assert other.options["prompts"] == "general"


def test_options_of_a_run_override_those_of_the_deployment() -> None:
    run = Client.of(SETTINGS).new_run("?", workflow="solo", options={"prompts": "general"})
    assert run.options["prompts"] == "general"


def test_an_unknown_option_of_the_deployment_is_refused_by_name() -> None:
    client = Client.of(Settings())
    client.options = {"solo": {"colour": "red"}}
    with pytest.raises(InputError, match="colour"):
        client.new_run("?", workflow="solo")
