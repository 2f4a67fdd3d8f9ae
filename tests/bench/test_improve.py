"""`bench improve`: its questions, its big model, its figures, and one real stream."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from loopline.agents.answers import last_boxed
from loopline.agents.arithmetic import evaluate, format_number
from loopline.agents.records import Message
from loopline.agents.tools.calculator import calculate
from loopline.bench.experiments.document import html
from loopline.bench.improve.big_model import BigModel, with_wrong_operation
from loopline.bench.improve.figures import ImproveReport, difference
from loopline.bench.improve.problems import draw_questions, kind_of
from loopline.bench.improve.report import document
from loopline.bench.improve.settings import MICRO_TRAINING, StreamSettings
from loopline.bench.improve.stream import Served, StreamResult, play
from loopline.trainers.errors import TrainingError
from loopline.trainers.improve.settings import LoopSettings
from loopline.workers.isolated_python import OWN_PYTHON
from tests.forked import TORCH_WORKERS, ready
from tests.trainers.test_improve import decision

QUESTIONS = draw_questions(1, 60, 40)


def answer_of(big: BigModel, question: str) -> str | None:
    """The answer of a conversation, the calculator included."""
    messages = [Message(role="user", content=question)]
    for _ in range(12):
        reply = big.reply(messages, (calculate.spec,))
        messages.append(Message(role="assistant", content=reply.text))
        if not reply.calls:
            return last_boxed(reply.text)
        value = evaluate(str(reply.calls[0].arguments["expression"]))
        messages.append(Message(role="tool", content=format_number(value)))
    return None


def test_no_question_is_both_served_and_held_out_and_the_draw_follows_from_the_seed() -> None:
    prompts = {problem.prompt for problem in QUESTIONS.stream}
    assert not prompts & {problem.prompt for problem in QUESTIONS.held_out}
    assert draw_questions(1, 60, 40) == QUESTIONS
    assert {problem.steps for problem in QUESTIONS.stream} == {1}
    assert len({kind_of(problem) for problem in QUESTIONS.stream}) == 6


def test_the_big_model_is_right_in_the_stated_share_and_wrong_in_the_others() -> None:
    problems = draw_questions(2, 300, 1).stream
    big = BigModel(problems, 0.8, seed=3)
    right = [answer_of(big, problem.prompt) == problem.answer for problem in problems]
    assert right == [big.is_right(problem) for problem in problems]
    assert 0.72 < sum(right) / len(right) < 0.88


def test_a_problem_with_a_wrong_operation_has_another_answer() -> None:
    for problem in QUESTIONS.stream:
        assert with_wrong_operation(problem).answer != problem.answer


def entry(at: int, *, small: bool, cheap: bool) -> Served:
    return Served.model_validate(
        {
            "index": at, "run": f"r{at}", "kind": "k", "outcome": "answered", "right": True,
            "accepted": small, "audited": False, "micro_dollars": 100 if cheap else 3_000,
        }
    )  # fmt: skip


def result(*, cheap: bool = True, gain: bool = True, lost: int = 0) -> StreamResult:
    """A thousand questions; in the second half the small model answers."""
    settings = StreamSettings(questions=1_000, batch=100, held_out=100)
    return StreamResult(
        settings=settings,
        questions=tuple(
            entry(at, small=at >= 500, cheap=cheap and at >= 500) for at in range(1_000)
        ),
        rounds=((500, decision()),),
        before=(False,) * 100,
        after=(gain,) * 100,
        poisoned=decision(promoted=False),
        serving_at_end="0001",
        attacks={"kill": 3, "redis": 1},
        lost=lost,
        altered=0,
        cpu_seconds=60.0,
    )


def test_a_stream_that_pays_off_meets_every_bar_and_reports_it() -> None:
    report = ImproveReport(results=(result(), result()))
    line = report.as_json()
    assert report.passed
    assert line["dollars_ratio"] == pytest.approx(100 / 3_000)
    assert line["accuracy_change_low"] >= -1.0
    assert line["small_model_gain_low"] == pytest.approx(100.0)
    assert line["lost"] == 0
    assert line["poison_caught"] is True
    json.dumps(line)
    page = html(document(report))
    assert page.count("<svg") == 3
    assert "Missed" not in page


@pytest.mark.parametrize(
    ("missing", "bar"),
    [
        (result(cheap=False), "dollars_ratio"),
        (result(gain=False), "small_model_gain_low"),
        (result(lost=1), "lost"),
    ],
)
def test_each_missed_bar_is_reported(missing: StreamResult, bar: str) -> None:
    report = ImproveReport(results=(missing, missing))
    assert not report.passed
    assert [name for name, passed in report.bars.items() if not passed] == [bar]
    assert "Missed" in html(document(report))


def test_a_round_s_cost_counts_in_the_quarter_that_led_to_it() -> None:
    second, third = ImproveReport(results=(result(),)).quarters[1:3]
    assert second.learning_usd == pytest.approx(30.0 * 2.5 / 3600 + 0.005)
    assert third.learning_usd == 0.0


def test_the_interval_of_a_difference_follows_newcombe() -> None:
    """Newcombe's example: 56 of 70 against 48 of 80 (Statistics in Medicine 17, table II, a)."""
    gap = difference(56, 70, 48, 80)
    assert (gap.low, gap.high) == pytest.approx((5.24, 33.39), abs=0.01)


TINY = StreamSettings(
    questions=90,
    batch=30,
    held_out=10,
    early_audit=0.5,
    attack_every=20,
    loop=LoopSettings(
        every=5,
        least_held_back=20,
        training=MICRO_TRAINING.model_copy(update={"tokens": 4_000}),
    ),
)
CHILD = """
import sys
from pathlib import Path
from loopline.bench.improve.settings import StreamSettings
from loopline.bench.improve.stream import play
play(Path(sys.argv[1]), StreamSettings.model_validate_json(sys.argv[2]), print)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_stream_resumes_and_loses_no_question(tmp_path: Path) -> None:
    ready(TORCH_WORKERS)
    folder = tmp_path / "seed-1"
    command = [*OWN_PYTHON, "-c", CHILD, str(folder), TINY.model_dump_json()]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        log = folder / "served.jsonl"
        while child.poll() is None and (not log.exists() or len(log.read_bytes().splitlines()) < 5):
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    assert not (folder / "result.json").exists()
    result = play(folder, TINY, lambda text: None)
    assert result.lost == 0
    assert [entry.index for entry in result.questions] == list(range(90))
    assert len({entry.run for entry in result.questions}) == 90
    assert sum(result.attacks.values()) >= 1
    assert result.altered == 0
    assert result.rounds
    assert result.poisoned is not None
    assert play(folder, TINY, lambda text: None) == result
    with pytest.raises(TrainingError, match="started with other settings"):
        play(folder, TINY.model_copy(update={"accuracy": 0.5}), lambda text: None)
