"""The refusal of a folder that was started with other settings."""

from __future__ import annotations

from loopline.trainers.core.checkpoints import changed_settings


def test_changed_settings_are_reported_with_both_values_and_their_path() -> None:
    before = {"seed": 1, "rate": 0.1, "game": {"rows": 7, "setting": {"turns": 4, "view": 2}}}
    now = {"seed": 2, "rate": 0.1, "game": {"rows": 7, "setting": {"turns": 8, "brief": True}}}
    assert changed_settings(before, now) == [
        "seed (1 → 2)",
        "game.setting.turns (4 → 8)",
        "game.setting.brief (None → True)",
        "game.setting.view (2 → None)",
    ]
    assert changed_settings(now, now) == []


def test_a_value_in_place_of_a_group_of_values_is_reported_as_a_whole() -> None:
    assert changed_settings({"tasks": {"count": 3}}, {"tasks": None}) == [
        "tasks ({'count': 3} → None)"
    ]
