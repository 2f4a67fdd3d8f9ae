"""A round of the closed loop that is killed between its comparison and its decision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loopline.bus import Bus, policies
from loopline.runtime.client.client import Client
from loopline.trainers.improve import loop as loops
from loopline.trainers.improve.asking import SmallAnswer
from loopline.trainers.improve.held_back import HeldBack
from loopline.trainers.improve.loop import ImprovementLoop
from loopline.trainers.improve.settings import LoopSettings

QUESTIONS = 80
SETTINGS = LoopSettings(wait=0.01, least_held_back=20)


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


class Killed(Exception):
    pass


class Loop(ImprovementLoop):
    """A loop whose models and judge are scripted: version 1 of the policy has learned everything,
    the pool's own model nothing."""

    dies = True

    async def _train(self, folder: Path, store: Path) -> float:
        make(folder)
        return 0.0

    async def _held_back(self) -> Sequence[HeldBack]:
        return cast("Sequence[HeldBack]", range(QUESTIONS))

    async def _answers(
        self, version: str, pin: str, questions: Sequence[HeldBack]
    ) -> dict[str, SmallAnswer]:
        return {"right": SmallAnswer("" if pin.endswith("@0") else "right", (), 0)}

    def _right(
        self, questions: Sequence[HeldBack], answers: dict[str, SmallAnswer]
    ) -> list[bool | None]:
        return [bool(answers["right"].text)] * len(questions)

    def _calibrate(
        self, questions: Sequence[HeldBack], answers: dict[str, SmallAnswer]
    ) -> tuple[str, float]:
        if self.dies:
            raise Killed
        return answers["right"].text, 0.0


async def test_a_killed_improvement_decides_by_the_comparison_that_it_had_acted_on(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def facts(folder: Path) -> Any:
        return SimpleNamespace(rows=7)

    monkeypatch.setattr(loops, "read_facts", facts)
    client = cast("Client", SimpleNamespace(bus=bus))
    loop = Loop(
        SETTINGS, tmp_path / "loop", client=client, store=tmp_path, router=tmp_path / "router.json"
    )
    with pytest.raises(Killed):
        await loop.run_round()
    serving = await policies.load_policy(bus, SETTINGS.policy)
    assert serving is not None
    assert serving.current == 1, "the candidate serves already"
    loop.dies = False
    decision = await loop.run_round()
    # Compared once more, the candidate would be no better than itself.
    assert (decision.promoted, decision.serving) == (True, "0001")
    assert decision.router == "right", "calibrated on the answers of what serves"
    assert decision.gate.candidate - decision.gate.serving == 1.0
