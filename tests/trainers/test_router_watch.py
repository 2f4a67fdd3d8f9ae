"""The watch over a router in use: silent while the bound holds, soon alarmed when it does not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from loopline.agents.records import Trajectory
from loopline.agents.router.features import AnswerEvidence
from loopline.agents.router.router import Router
from loopline.agents.router.watching import Audited, Watch, watched
from loopline.agents.workflow_runner import run_locally
from loopline.trainers.cli import app
from loopline.trainers.router.labelled import BadLabels, Labelled, read_labelled, without_waiting
from loopline.trainers.router.recorded import watch
from loopline.trainers.router.training import first_run_id, train_router
from loopline.workers.router_watch import RouterWatch
from tests.agents.conversations import ScriptedHost, a_run, says
from tests.trainers.grpo.recorded import record
from tests.trainers.labelled_answers import labelled_rows, write_rows


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Router:
    path = tmp_path_factory.mktemp("labels") / "rows.jsonl"
    rows = read_labelled(write_rows(path, labelled_rows(300, signal=True)))
    trained = train_router(rows, alpha=0.1, delta=0.05, seed=1, where="rows")
    assert trained.threshold is not None
    return trained


def audits(router: Router, count: int, *, small: float, signal: bool, seed: int) -> list[Audited]:
    runs: list[Audited] = []
    rows = labelled_rows(count, signal=signal, small=small, seed=seed)
    for at, row in enumerate(rows):
        evidence = AnswerEvidence(row["question"], row["small"]["text"])
        accepted = router.judge(evidence).accepted and router.asks_small(row["question"])
        runs.append(Audited(f"{at:08d}", accepted, not row["small"]["right"], evidence))
    return runs


def test_while_the_bound_holds_the_alarm_probability_is_at_most_delta() -> None:
    generator = np.random.Generator(np.random.PCG64(5))
    alarms = 0
    for _ in range(300):
        test = Watch(0.1, 0.05)
        alarms += any(test.add(error) for error in (generator.random(400) < 0.1).tolist())
    assert alarms <= 0.05 * 300 + 4.8 * (0.05 * 0.95 * 300) ** 0.5


def test_a_risk_of_three_times_the_bound_raises_the_alarm_within_two_hundred_runs() -> None:
    generator = np.random.Generator(np.random.PCG64(6))
    for _ in range(50):
        test = Watch(0.1, 0.05)
        assert any(test.add(error) for error in (generator.random(200) < 0.3).tolist())


def test_traffic_distributed_like_the_labels_raises_no_alarm(router: Router) -> None:
    result = watched(router, audits(router, 600, small=0.6, signal=True, seed=7))
    assert result.alarm is None
    assert result.router == router


def test_when_traffic_drifts_the_threshold_rises_and_the_watch_restarts(
    router: Router,
) -> None:
    drifted = audits(router, 400, small=0.3, signal=False, seed=8)
    result = watched(router, drifted)
    assert result.alarm is not None
    assert result.router.alarms == 1
    assert router.threshold is not None
    assert result.router.threshold is None or result.router.threshold > router.threshold
    accepted = [result.router.judge(run.evidence).accepted for run in drifted]
    assert sum(accepted) < sum(run.accepted for run in drifted)
    later = watched(result.router, drifted)
    assert later.runs < len(drifted)


def test_runs_from_before_the_router_s_training_are_ignored(router: Router) -> None:
    runs = audits(router, 50, small=0.3, signal=False, seed=8)
    after = router.model_copy(update={"watched_after": runs[-1].run_id})
    assert watched(after, runs).runs == 0


def test_run_ids_sort_by_admission_time() -> None:
    assert first_run_id(1.0) < first_run_id(2.0) < first_run_id(1e9)


async def audited_cascades(store: Path, name: str | None = None, *, count: int = 60) -> None:
    """The texts are those of right answers, and the big model usually answers differently. `name`:
    the router that the runs record."""
    runs: list[Trajectory] = []
    for number, row in enumerate(labelled_rows(count, signal=False, small=0.3)):
        run = a_run("cascade", row["question"], prompts="general", audit=1.0)
        run = run.model_copy(
            update={
                "id": f"01890000-0000-7000-8000-{number:012d}",
                "options": {**run.options, "router": None},
            }
        )
        text = row["small"]["text"]
        big = text if row["small"]["right"] else "#### 1"
        hosts = {"first": ScriptedHost([says(text)]), "solo": ScriptedHost([says(big)])}
        played = await run_locally(run, hosts)
        named = played.run.model_copy(update={"options": {**run.options, "router": name}})
        runs.append(played.model_copy(update={"run": named, "ended": time.time()}))
    await record(store, runs)


async def looked(recorder: RouterWatch) -> None:
    """Let it run until it prints a message."""
    running = asyncio.create_task(recorder.run())
    async with asyncio.timeout(60):
        while True:
            if recorder.details():
                break
            await asyncio.sleep(0.02)
    recorder.drain()
    await running


async def test_the_command_tightens_the_file_and_exits_with_an_error(
    router: Router, tmp_path: Path
) -> None:
    await audited_cascades(tmp_path)
    path = tmp_path / "used.router.json"
    path.write_text(router.model_dump_json())
    arguments = ["watch-router", str(path), "--from-store", str(tmp_path)]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 1
    assert "ALARM" in ended.output
    tightened = Router.model_validate_json(path.read_bytes())
    assert (tightened.alarms, tightened.threshold) == (1, None)
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert "holds as far as can be told" in again.output


async def test_a_recorder_tightens_the_router_of_its_recorded_cascades(
    router: Router, tmp_path: Path
) -> None:
    path = tmp_path / "used.router.json"
    path.write_text(router.model_dump_json())
    await audited_cascades(tmp_path, str(path))
    recorders = [RouterWatch(tmp_path, time.time(), 0.02) for _ in range(2)]
    await asyncio.gather(*map(looked, recorders))
    tightened = Router.model_validate_json(path.read_bytes())
    assert (tightened.alarms, tightened.threshold) == (1, None), "once, by one of both"
    for recorder in recorders:
        facts = recorder.details()[str(path)]
        assert (facts["alarms"], facts["threshold"]) == (1, None)


async def test_a_router_that_the_recorder_cannot_read_is_reported(tmp_path: Path) -> None:
    await audited_cascades(tmp_path, "/nowhere/at/all.router.json", count=3)
    recorder = RouterWatch(tmp_path, time.time(), 0.02)
    await looked(recorder)
    facts = recorder.details()["/nowhere/at/all.router.json"]
    assert "can't be watched from the recorder's machine" in str(facts["error"])


def test_a_bound_from_feedback_is_tested_only_by_runs_with_feedback(router: Router) -> None:
    promise = router.guarantee.model_copy(update={"by_feedback": True})
    by_feedback = router.model_copy(update={"guarantee": promise})
    fitting = audits(router, 600, small=0.6, signal=True, seed=7)
    # The big model is wrong here, so the small one's right answer differs from it.
    differ = [
        replace(run, run_id=f"{run.run_id}-late", accepted=True, wrong=True) for run in fitting[:90]
    ]
    runs = sorted(
        [*(replace(run, has_feedback=True) for run in fitting), *differ], key=lambda run: run.run_id
    )
    result = watched(by_feedback, runs)
    assert (result.alarm, result.runs, result.waiting) == (None, 600, 90)
    assert "90 more wait for feedback" in result.summary
    assert watched(router, runs).alarm is not None
    drifted = audits(router, 400, small=0.3, signal=False, seed=8)
    alarmed = watched(by_feedback, [replace(run, has_feedback=True) for run in drifted])
    assert alarmed.alarm is not None
    assert alarmed.router.guarantee.by_feedback


def test_questions_that_still_await_feedback_are_left_out_of_the_calibration() -> None:
    def rows(count: int, waiting: int) -> list[Labelled]:
        evidence = AnswerEvidence("q", "a")
        labels = [at < count for at in range(count + waiting)]
        return [Labelled("", evidence, True, True, 0, 0, has_feedback=label) for label in labels]

    assert without_waiting(rows(90, 10)) == (rows(90, 0), True)
    assert without_waiting(rows(80, 20)) == (rows(80, 20), False)
    assert without_waiting(rows(0, 20)) == (rows(0, 20), False)
    assert without_waiting([]) == ([], False)


def test_feedback_on_an_audited_run_overrides_the_comparison_where_it_decides() -> None:
    same = Audited("r", accepted=True, wrong=False, evidence=AnswerEvidence("q", "a"))
    other = Audited("r", accepted=True, wrong=True, evidence=AnswerEvidence("q", "a"))
    assert same.judged(None) == same
    assert other.judged(None) == other
    assert same.judged(True) == replace(same, has_feedback=True)
    assert other.judged(True) == replace(other, has_feedback=True)
    assert same.judged(False) == replace(same, has_feedback=True, wrong=True)
    assert other.judged(False) is None, "if one answer is wrong, another may be right"


def test_a_file_that_is_not_a_router_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "bad.router.json"
    path.write_text("{}")
    with pytest.raises(BadLabels, match="damaged"):
        watch(path, tmp_path)
    assert path.read_text() == "{}"
