"""A training's progress is bars on a terminal and lines elsewhere, always on stderr."""

from __future__ import annotations

import io
import sys

import pytest

from loopline.trainers.core.training_progress import ShownProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, *, is_visible: bool = True) -> str:
    """The output of a training that sends every kind of message."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stderr)
    with ShownProgress(
        "{task.description}", "{task.percentage:>3.0f} % {task.fields[said]}", visible=is_visible
    ) as bars:
        bars.line("in place of a bar")
        bars.bar("[red]team[/red]", 1, 4, "loss 0.5")
        bars.bar("[red]team[/red]", 3, 4, "loss [0.4]")
        bars.say("above: [bold]")
    return stderr.getvalue()


def test_a_terminal_shows_a_bar_per_part_with_its_latest_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = shown(monkeypatch, Terminal())
    assert "in place of a bar" not in written
    assert "above: [bold]" in written
    last = written.split("[red]team[/red]")[-1]
    assert "75 % loss [0.4]" in last


@pytest.mark.parametrize(("stderr", "is_visible"), [(io.StringIO(), True), (Terminal(), False)])
def test_without_a_visible_terminal_only_plain_lines_are_written(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, *, is_visible: bool
) -> None:
    assert shown(monkeypatch, stderr, is_visible=is_visible) == "in place of a bar\nabove: [bold]\n"
