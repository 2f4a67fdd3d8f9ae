"""The watch over a router in use: silent while the bound holds, soon alarmed when it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from loopline.agents.records import Trajectory
from loopline.agents.router.evidence import AnswerEvidence
from loopline.agents.router.router import Router
from loopline.agents.router.watching import Audited, Watch, watched
from loopline.agents.workflow_runner import run_locally
from loopline.trainers.cli import app
from loopline.trainers.router.labelled import BadLabels, read_labelled
from loopline.trainers.router.recorded import watch
from loopline.trainers.router.training import first_run_id, train_router
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


def test_while_the_bound_holds_the_alarm_is_raised_with_probability_delta_at_most() -> None:
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


def test_traffic_like_that_of_the_labels_raises_no_alarm(router: Router) -> None:
    result = watched(router, audits(router, 600, small=0.6, signal=True, seed=7))
    assert result.alarm is None
    assert result.router == router


def test_when_traffic_drifts_the_threshold_rises_and_what_follows_is_watched_anew(
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


def test_runs_before_the_router_was_trained_say_nothing_of_it(router: Router) -> None:
    runs = audits(router, 50, small=0.3, signal=False, seed=8)
    after = router.model_copy(update={"watched_after": runs[-1].run_id})
    assert watched(after, runs).runs == 0


def test_ids_of_runs_sort_by_the_time_of_their_admission() -> None:
    assert first_run_id(1.0) < first_run_id(2.0) < first_run_id(1e9)


async def test_the_command_tightens_the_file_and_ends_with_an_error(
    router: Router, tmp_path: Path
) -> None:
    """The texts are those of right answers, and the big model mostly answers otherwise."""
    runs: list[Trajectory] = []
    for number, row in enumerate(labelled_rows(60, signal=False, small=0.3)):
        run = a_run("cascade", row["question"], prompts="general", audit=1.0)
        run = run.model_copy(update={"id": f"01890000-0000-7000-8000-{number:012d}"})
        text = row["small"]["text"]
        big = text if row["small"]["right"] else "#### 1"
        hosts = {"first": ScriptedHost([says(text)]), "solo": ScriptedHost([says(big)])}
        runs.append(await run_locally(run, hosts))
    await record(tmp_path, runs)
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


def test_a_file_that_is_no_router_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "bad.router.json"
    path.write_text("{}")
    with pytest.raises(BadLabels, match="damaged"):
        watch(path, tmp_path)
    assert path.read_text() == "{}"
