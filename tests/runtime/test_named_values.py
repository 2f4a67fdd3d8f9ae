"""Options that name what they set."""

from __future__ import annotations

import pytest

from loopline.runtime.errors import InputError
from loopline.runtime.named_values import named_values


def test_values_of_options_are_json_or_text() -> None:
    assert named_values("--setting", ["turns=4", "brief=true", "team=[1]", "x=y=z"]) == {
        "turns": 4, "brief": True, "team": [1], "x": "y=z",
    }  # fmt: skip


def test_a_word_without_a_value_is_named() -> None:
    with pytest.raises(InputError, match="--setting: 'turns' is not NAME=VALUE, as in turns=40"):
        named_values("--setting", ["turns"])
