"""`train router`: the file that it writes, and the decisions of that file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from loopline.agents.records import Run, SamplingParams, Trajectory
from loopline.agents.router.features import AnswerEvidence, hashed_words, numeric_features
from loopline.agents.router.router import Router, combine
from loopline.agents.workflow_runner import run_locally
from loopline.trainers.cli import app
from loopline.trainers.router.fitting import extract, learn
from loopline.trainers.router.labelled import read_labelled
from loopline.trainers.router.recorded import read_recorded
from loopline.trainers.router.training import train_router
from tests.agents.conversations import ScriptedHost, a_run, says
from tests.trainers.grpo.recorded import record
from tests.trainers.labelled_answers import labelled_rows, write_rows


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    return write_rows(folder / "labelled.jsonl", labelled_rows(400, signal=True))


def train(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["router", *arguments])
    return done.exit_code, done.output


def test_a_trained_router_keeps_its_bound_on_answers_that_it_has_never_seen(
    labels: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.router.json"
    code, output = train(str(path), "--data", str(labels), "--json")
    assert code == 0, output
    facts = json.loads(output.splitlines()[-1])
    assert facts["accepts"]
    assert facts["wrong"] <= facts["allowed"]
    router = Router.model_validate_json(path.read_bytes())
    fresh = labelled_rows(600, signal=True, seed=9)
    accepted = [
        router.judge(AnswerEvidence(row["question"], row["small"]["text"])).accepted
        and router.asks_small(row["question"])
        for row in fresh
    ]
    wrong = sum(
        accepts and not row["small"]["right"] for accepts, row in zip(accepted, fresh, strict=True)
    )
    assert sum(accepted) > 100
    assert wrong / len(fresh) <= 0.1


def test_a_saved_and_loaded_router_scores_like_the_trained_one(labels: Path) -> None:
    rows = read_labelled(labels)
    evidence = [row.evidence for row in rows]
    right = np.array([[row.small_right, row.big_right] for row in rows], dtype=np.float64)
    features = extract(evidence)
    fitted = learn(features, right)
    scorer = fitted.scorer(2.0)
    read = type(scorer).model_validate_json(scorer.model_dump_json())
    for entry, (small, big) in zip(evidence[:40], fitted.predict(features), strict=False):
        score = read.score(numeric_features(entry), hashed_words(entry))
        assert score == pytest.approx(combine(small, big, 2.0), abs=1e-4)


def test_the_leave_one_out_formula_equals_a_refit_without_the_answer() -> None:
    generator = np.random.Generator(np.random.PCG64(4))
    values = generator.normal(size=(30, 30))
    kernel = values @ values.T / 30
    targets, penalty = generator.normal(size=30), 0.7
    dual = np.linalg.solve(kernel + penalty * np.eye(30), targets)
    inverse = np.linalg.inv(kernel + penalty * np.eye(30))
    closed = targets - dual / np.diag(inverse)
    for at in range(0, 30, 7):
        rest = np.delete(np.arange(30), at)
        part = kernel[np.ix_(rest, rest)] + penalty * np.eye(29)
        refitted = kernel[at, rest] @ np.linalg.solve(part, targets[rest])
        assert closed[at] == pytest.approx(refitted)


def test_labels_without_a_signal_give_a_router_that_accepts_nothing(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "null.jsonl", labelled_rows(400, signal=False))
    output = tmp_path / "null.router.json"
    code, text = train(str(output), "--data", str(path))
    assert code == 0
    assert "accepts nothing" in text
    assert Router.model_validate_json(output.read_bytes()).threshold is None


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({"feature_version": 99}, "train it again"),
        ({"kind": "adapter"}, "Input should be 'router'"),
        ({"slope": "steep"}, "valid number"),
        ({"extra": 1}, "Extra inputs"),
    ],
)
def test_a_router_file_of_another_kind_or_version_is_refused(
    labels: Path, change: dict[str, object], trouble: str
) -> None:
    router = train_router(read_labelled(labels)[:80], alpha=0.2, delta=0.1, seed=1, where="labels")
    with pytest.raises(ValidationError, match=trouble):
        Router.model_validate({**router.model_dump(mode="json"), **change})


@pytest.mark.parametrize(
    "arguments", [(), ("--data", "a", "--from-store", "b"), ("--data", "missing.jsonl")]
)
def test_without_exactly_one_readable_source_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = tmp_path / "none.router.json"
    assert train(str(path), *arguments)[0] != 0
    assert not path.exists()


@given(st.text(max_size=300), st.text(max_size=600))
@settings(max_examples=150, deadline=None)
def test_every_text_has_the_same_finite_features(question: str, text: str) -> None:
    evidence = AnswerEvidence(question, text, (-1.0, 0.0), (text, question))
    features = numeric_features(evidence)
    assert features.keys() == numeric_features(AnswerEvidence("", "")).keys()
    assert np.isfinite(list(features.values())).all()
    assert np.isfinite(list(hashed_words(evidence).values())).all()


@pytest.mark.parametrize(
    "text",
    [
        "9" * 50_000, "<<" * 30_000, "<<1/0=1>>", "1/0 = 5\n#### 1/0", "((" * 20_000,
        "<<9**9**9=1>>", "\\boxed{" * 20_000, "1,000," * 20_000, "#### " * 20_000, "\0\ud7ff",
        "3 = " * 30_000, "$-" * 30_000,
    ],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_a_hostile_text_costs_little_and_raises_nothing(text: str) -> None:
    features = numeric_features(AnswerEvidence(text, text, (), (text,) * 3))
    assert np.isfinite(list(features.values())).all()


async def cascade_run(number: int, small: str, big: str, *, audit: float) -> Trajectory:
    run: Run = a_run("cascade", f"What is {number} + 1?", expected_type="number", audit=audit)
    run = run.model_copy(update={"id": f"01890000-0000-7000-8000-{number:012d}"})
    return await run_locally(
        run, {"first": ScriptedHost([says(small)]), "solo": ScriptedHost([says(big)])}
    )


async def test_audited_runs_of_a_cascade_are_labelled_answers(tmp_path: Path) -> None:
    runs = [
        await cascade_run(1, r"1 + 1 = \boxed{2}", r"\boxed{2}", audit=1.0),
        await cascade_run(2, r"2 + 1 = \boxed{4}", r"\boxed{3}", audit=1.0),
    ]
    await record(tmp_path, runs)
    recorded = read_recorded(tmp_path)
    rows = {row.evidence.question: row for row in recorded.rows}
    assert rows["What is 1 + 1?"].small_right
    assert not rows["What is 2 + 1?"].small_right
    assert "2 of them without feedback" in recorded.summary
    assert "2 questions that both models answered" in recorded.summary


async def test_runs_that_were_escalated_without_an_audit_are_left_out(tmp_path: Path) -> None:
    await record(tmp_path, [await cascade_run(1, r"1 + 1 = \boxed{3}", r"\boxed{2}", audit=0.0)])
    assert read_recorded(tmp_path).rows == []


async def test_further_samples_of_a_recorded_answer_are_evidence_and_not_the_answer(
    tmp_path: Path,
) -> None:
    hot = SamplingParams(temperature=0.8)
    samples = tuple(says(rf"\boxed{{{n}}}").model_copy(update={"sampling": hot}) for n in (2, 2, 5))
    run = a_run("cascade", "What is 1 + 1?", expected_type="number", audit=1.0, samples=3)
    small = ScriptedHost([says(r"\boxed{2}"), samples])
    hosts = {"first": small, "solo": ScriptedHost([says(r"\boxed{2}")])}
    await record(tmp_path, [await run_locally(run, hosts)])
    (row,) = read_recorded(tmp_path).rows
    assert row.evidence.text == r"\boxed{2}"
    assert row.evidence.samples == (r"\boxed{2}", r"\boxed{2}", r"\boxed{5}")
