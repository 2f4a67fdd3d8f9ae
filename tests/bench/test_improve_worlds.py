"""`bench improve --worlds`: its instructions, its big model, its figures, and a real stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopline.agents.prompts import load_prompt
from loopline.agents.records import Message
from loopline.agents.roles.umi.output import read_plan
from loopline.agents.roles.umi.transcript import Turn, planner_input
from loopline.bench.experiments.document import html
from loopline.bench.improve.options import ImproveOptions
from loopline.bench.improve.worlds.big_team import BigTeam
from loopline.bench.improve.worlds.figures import WorldsReport
from loopline.bench.improve.worlds.instructions import (
    OLD_KIND,
    draw_instructions,
    is_kept_back,
    kind_of,
)
from loopline.bench.improve.worlds.lessons import forms_of
from loopline.bench.improve.worlds.report import document
from loopline.bench.improve.worlds.settings import WorldsSettings
from loopline.bench.improve.worlds.stream import ServedInstruction, WorldsResult, play_stream
from loopline.trainers.improve.gate import GateResult
from loopline.trainers.improve.team import TeamDecision
from loopline.trainers.improve.team_settings import TeamLoopSettings
from tests.forked import TORCH_WORKERS, ready

TINY = WorldsSettings(
    questions=24,
    batch=12,
    held_out=4,
    guard=4,
    kept_back=0.4,
    attack_every=20,
    rehearsal=20,
    loop=TeamLoopSettings(every=3, least=1, tokens=4_000),
)
SMALL = WorldsSettings(questions=40, held_out=10, guard=10)
INSTRUCTIONS = draw_instructions(SMALL)


def test_no_instruction_has_two_uses_and_the_draw_follows_from_the_seed() -> None:
    uses = (
        INSTRUCTIONS.stream, INSTRUCTIONS.new, INSTRUCTIONS.old, INSTRUCTIONS.guard
    )  # fmt: skip
    texts = [instance.instruction for use in uses for instance in use]
    assert len(texts) == len(set(texts))
    again = draw_instructions(SMALL)
    assert [entry.id for entry in again.stream] == [entry.id for entry in INSTRUCTIONS.stream]
    assert len(INSTRUCTIONS.old) == SMALL.old_held_out == 12


def test_a_share_of_the_stream_is_old_tasks_and_only_new_ones_are_held_back() -> None:
    old = [entry for entry in INSTRUCTIONS.stream if kind_of(entry) == OLD_KIND]
    assert len(old) == 10
    assert not any(is_kept_back(entry, SMALL) for entry in old)
    kept_back = [entry for entry in INSTRUCTIONS.stream if is_kept_back(entry, SMALL)]
    assert 0 < len(kept_back) < 15


def first_plan(big: BigTeam, at: int) -> str | None:
    """The big model's first action for an instruction."""
    instance = INSTRUCTIONS.stream[at]
    turns = (Turn("user", instance.instruction),)
    text = planner_input(instance.tools, turns, "signatures")
    messages = [
        Message(role="system", content=load_prompt("umi_planner").text),
        Message(role="user", content=text),
    ]
    return getattr(read_plan(big.reply(messages, ()).text), "next", None)


def test_the_big_model_gives_up_only_if_unsure_or_the_task_is_unsolvable() -> None:
    big = BigTeam(INSTRUCTIONS, accuracy=0.5)
    sure = [big.is_sure(instance) for instance in INSTRUCTIONS.stream]
    assert 8 < sum(sure) < 32
    for at, instance in enumerate(INSTRUCTIONS.stream):
        goes_on = sure[at] and (instance.oracle.steps or instance.oracle.answer is not None)
        assert (first_plan(big, at) != "give_up") == bool(goes_on)


def decision(**changes: object) -> TeamDecision:
    gate = GateResult(
        questions=100, candidate=0.5, serving=0.1, low=0.3, high=0.5, margin=0.02, passed=True
    )
    values: dict[str, object] = {
        "number": 1, "lessons": 100, "gate": gate, "guard": gate, "promoted": True,
        "serving": "0001", "cpu_seconds": 60.0, "micro_dollars": 2_000,
    }  # fmt: skip
    return TeamDecision.model_validate({**values, **changes})


def result(
    *, gain: bool = True, forgets: bool = False, lost: int = 0, altered: int = 0
) -> WorldsResult:
    """The team solves nothing new in the first half, and everything in the second."""
    settings = WorldsSettings(questions=80, batch=20, held_out=100)
    return WorldsResult(
        settings=settings,
        questions=tuple(
            ServedInstruction(
                index=at, run=f"r{at}", kind="hotels", kept_back=False, right=True,
                accepted=at >= 40, altered=False, lost=0,
                micro_dollars=10 if at >= 40 else 1_000,
            )
            for at in range(80)
        ),
        rounds=((40, decision()),),
        new_before=(False,) * 100,
        new_after=(gain,) * 100,
        old_before=(True,) * 100,
        old_after=(*(True,) * 95, *(not forgets,) * 5),
        poisoned=decision(promoted=False),
        serving_at_end="0001",
        attacks={"kill": 3, "reset": 2},
        lost=lost,
        altered=altered,
        cpu_seconds=60.0,
    )  # fmt: skip


def test_a_team_that_learns_and_forgets_nothing_meets_every_bar_and_reports_it() -> None:
    report = WorldsReport(results=(result(), result()))
    line = report.as_json()
    assert report.passed
    assert line["solved_change_low"] == pytest.approx(100.0)
    assert line["old_change"] == 0.0
    assert line["dollars_ratio"] == pytest.approx(0.01)
    assert line["attacks"] == {"kill": 6, "reset": 4}
    json.dumps(line)
    page = html(document(report))
    assert page.count("<svg") == 2
    assert "Missed" not in page


@pytest.mark.parametrize(
    ("missing", "bar"),
    [
        (result(gain=False), "solved_change_low"),
        (result(forgets=True), "old_change"),
        (result(lost=1), "lost"),
        (result(altered=1), "altered"),
    ],
)
def test_each_missed_bar_is_reported(missing: WorldsResult, bar: str) -> None:
    report = WorldsReport(results=(missing,))
    assert [name for name, passed in report.bars.items() if not passed] == [bar]
    assert "Missed" in html(document(report))


@pytest.mark.parametrize("new", [20, 82, 160, 500])
def test_new_lessons_are_repeated_in_forms_until_they_reach_their_share(new: int) -> None:
    forms = forms_of(new, 1_200, 0.3)
    assert abs(new * forms / (new * forms + 1_200) - 0.3) < 0.05 or forms == 1


def test_old_or_new_lessons_on_their_own_have_a_single_form() -> None:
    assert forms_of(50, 0, 0.3) == forms_of(0, 50, 0.3) == 1


def test_options_become_the_settings_of_either_stream() -> None:
    options = ImproveOptions(output=Path("out"), worlds=True, held_out=50, every=7, rehearsal=9)
    settings = options.worlds_stream(3)
    assert (settings.seed, settings.held_out, settings.loop.every) == (3, 50, 7)
    assert settings.rehearsal == 9
    assert settings.questions == WorldsSettings().questions
    assert WorldsSettings.model_validate(settings.model_dump()) == settings
    problems = ImproveOptions(output=Path("out"), every=7).stream(3)
    assert (problems.loop.every, problems.held_out) == (7, 150)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stream_under_attack_serves_all_judges_a_round_and_resumes(
    tmp_path: Path,
) -> None:
    ready(TORCH_WORKERS)
    folder = tmp_path / "seed-1"
    outcome = play_stream(folder, TINY, print)
    assert (outcome.lost, outcome.altered) == (0, 0)
    assert [entry.index for entry in outcome.questions] == list(range(24))
    assert sum(outcome.attacks.values()) >= 1
    [(count, first)] = outcome.rounds
    assert count == 12
    assert first.gate.questions >= 1
    assert outcome.poisoned is not None
    assert not outcome.poisoned.promoted
    assert play_stream(folder, TINY, print) == outcome
