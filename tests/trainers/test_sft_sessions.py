"""`train sft MODEL --from-store`: a model learns from recorded sessions with good rewards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.agents.records import Trajectory
from loopline.agents.rewards import Reward
from loopline.trainers.cli import app
from loopline.trainers.data.feedback import PostedFeedback, RewardThreshold
from loopline.trainers.data.token_rows import RecordedRows
from loopline.trainers.errors import UnreadableData
from loopline.trainers.glpft.report import read_report
from loopline.trainers.sft.sessions import read_sessions
from loopline.workers.store.rewards import read_rewards

from .grpo.recorded import a_candidate, a_run, a_step, record
from .grpo.tiny_grpo import load, write_base
from .test_posted_rewards import record_rewards
from .test_sessions import chat


def reward(session: str, value: float) -> Reward:
    return Reward(id=f"{session}/{value}", source="user", session=session, value=value)


def in_store(store: Path, runs: list[Trajectory], rewards: list[Reward]) -> Path:
    asyncio.run(record(store, runs))
    if rewards:
        asyncio.run(record_rewards(store, *rewards))
    return store


SESSIONS = [
    chat(1, [5, 6], [7], session="good"),
    chat(2, [5, 6, 7, 8], [9, 10], session="good"),
    chat(3, [5, 6], [11], session="bad"),
    chat(4, [5, 6], [12], session="unjudged"),
    a_run(5, a_step([a_candidate(1.0)]), workflow="solo"),
]
REWARDS = [reward("good", 1.0), reward("bad", 0.25)]


def threshold(store: Path, least: float) -> RewardThreshold:
    return RewardThreshold(PostedFeedback(read_rewards(store)), least)


def test_calls_of_a_session_form_one_row_and_sessions_below_the_threshold_are_counted(
    tmp_path: Path,
) -> None:
    store = in_store(tmp_path, SESSIONS, REWARDS)
    reading = read_sessions(store, lambda call: True, threshold=threshold(store, 0.5))
    [recorded] = reading.records
    assert recorded.row.ids == (5, 6, 7, 8, 9, 10)
    assert recorded.row.learned == (False, False, True, False, True, True)
    assert recorded.policy == "llm"
    assert [(entry.where[-1], entry.reason) for entry in reading.skipped] == [
        ("3", "run with a posted reward below 0.5"),
        ("4", "run without a posted reward"),
    ]


def test_without_rewards_every_session_is_a_row_and_agents_can_be_selected(tmp_path: Path) -> None:
    critic = chat(6, [5], [6], session="good", agent="critic")
    store = in_store(tmp_path, [*SESSIONS, critic], [])
    assert len(read_sessions(store, lambda call: True).records) == 4
    [recorded] = read_sessions(store, lambda call: True, agents=["critic"]).records
    assert recorded.row.ids == (5, 6)


def test_calls_that_cannot_be_imitated_are_left_out_with_the_reason(tmp_path: Path) -> None:
    without_ids = chat(7, [], [], session="s")
    store = in_store(tmp_path, [without_ids, chat(8, [5], [6])], [])
    reading = read_sessions(store, lambda call: 6 not in call.output_ids)
    assert reading.records == ()
    assert sorted(entry.reason for entry in reading.skipped) == [
        "completion without token ids or log-probabilities",
        "token ids of another tokenizer",
    ]


def test_rows_are_read_back_as_written_and_damage_is_reported(tmp_path: Path) -> None:
    store = in_store(tmp_path / "store", SESSIONS, [])
    rows = RecordedRows(read_sessions(store, lambda call: True).records)
    rows.write(tmp_path / "data")
    assert RecordedRows.read(tmp_path / "data") == rows
    (tmp_path / "data" / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(UnreadableData, match="--restart reads the store again"):
        RecordedRows.read(tmp_path / "data")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("sft") / "base")


def said_by(base: Path, run: Trajectory) -> Trajectory:
    """The run with texts that its ids decode to with the tokenizer of the base."""
    codec = load(base).codec
    steps = [
        step.model_copy(
            update={
                "candidates": tuple(
                    candidate.model_copy(
                        update={
                            "calls": tuple(
                                call.model_copy(
                                    update={
                                        "text": codec.decode(
                                            [*call.output_ids], call.prompt_ids[-1]
                                        )
                                    }
                                )
                                for call in candidate.calls
                            )
                        }
                    )
                    for candidate in step.candidates
                )
            }
        )
        for step in run.steps
    ]
    return run.model_copy(update={"steps": tuple(steps)})


def command(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["sft", *map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 1, str(ended.exception)
    return ended.exit_code, ended.output


def test_a_model_learns_rewarded_sessions_and_resumes_with_the_rows_it_started_with(
    base: Path, tmp_path: Path
) -> None:
    store = in_store(tmp_path / "store", [said_by(base, run) for run in SESSIONS], REWARDS)
    out = tmp_path / "out"
    arguments = (
        base, "--output", out, "--from-store", store, "--reward-from", "feedback",
        "--min-reward", 0.5, "--weights", "full", "--schedules", "micro", "--tokens", 8_000,
        "--batch", 4, "--validation", 0,
    )  # fmt: skip
    code, output = command(*arguments)
    assert code == 0, output
    assert "2 posted rewards" in output
    assert "1 conversation to learn from" in output
    assert "left out: 1 × run with a posted reward below 0.5, such as" in output
    assert "left out: 1 × run without a posted reward, such as" in output
    report = read_report(out)
    assert report is not None
    [stage] = report.stages
    assert stage.rows == 1
    assert stage.losses[-1] < 0.5 * stage.losses[0]
    (out / "report.json").unlink()
    asyncio.run(record(store, [said_by(base, chat(9, [5], [6], session="good"))], batch=2))
    code, again = command(*arguments)
    assert code == 0, again
    assert read_report(out) == report, "what is recorded later belongs to another training"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reward-from", "feedback"), "needs --min-reward X"),
        (("--min-reward", 1), "--min-reward only applies with --reward-from feedback"),
        (("--steps", 5), "--steps only applies with a recipe, not with --from-store"),
        (("--reward-from", "feedback", "--min-reward", 2), "no session in"),
        (("--policy", "slm"), "--policy only applies with --publish"),
    ],
)
def test_untrainable_sessions_are_reported_and_nothing_is_written(
    base: Path, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    store = in_store(tmp_path / "store", SESSIONS, REWARDS)
    out = tmp_path / "out"
    code, answer = command(base, "--output", out, "--from-store", store, *arguments)
    assert code != 0
    assert message in answer
    assert not out.exists()


def test_session_options_are_refused_for_a_recipe(tmp_path: Path) -> None:
    for more in (("--rate", 2), ("--weights", "full"), ("--agent", "a"), ("--publish",)):
        code, answer = command("micro-slm", "--output", tmp_path / "out", *more)
        assert code != 0
        assert f"{more[0]} only applies with --from-store" in answer
