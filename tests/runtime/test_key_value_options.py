"""Options of the form NAME=VALUE."""

from __future__ import annotations

import pytest

from loopline.runtime.config.key_value_options import (
    key_value_options,
    key_value_texts,
    policy_options,
)
from loopline.runtime.errors import InputError


def test_values_of_options_are_json_or_text() -> None:
    assert key_value_options("--setting", ["turns=4", "brief=true", "team=[1]", "x=y=z"]) == {
        "turns": 4, "brief": True, "team": [1], "x": "y=z",
    }  # fmt: skip


def test_a_setting_may_be_empty_but_a_file_name_may_not() -> None:
    assert key_value_options("--setting", ["note="]) == {"note": ""}
    with pytest.raises(InputError, match="--prompt: 'solo=' is not NAME=FILE"):
        key_value_texts("--prompt", ["solo="], form="NAME=FILE", example="solo=terse.md")


def test_the_error_for_an_option_without_a_value_shows_an_example() -> None:
    with pytest.raises(InputError) as refused:
        key_value_options("--setting", ["turns"])
    assert str(refused.value) == (
        "--setting: 'turns' is not NAME=VALUE\n  → as in --setting turns=40."
    )


def test_a_policy_option_must_name_a_pool_of_the_deployment() -> None:
    assert policy_options(["solo=slm", "critic=slm/critic"], {"slm": 1}) == {
        "solo": "slm", "critic": "slm/critic",
    }  # fmt: skip
    with pytest.raises(InputError, match="--policy solo=llm: there is no pool 'llm'"):
        policy_options(["solo=llm"], {"slm": 1})
