"""`train distill`: the small model learns answers that the ladder refused and the big model
corrected, without benchmark questions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.agents.environments.word_problems import Split, generate
from loopline.agents.records import Message, Run, ToolCall, Trajectory
from loopline.agents.rewards import Reward
from loopline.agents.tools.calculator import calculate
from loopline.agents.workflow_runner import run_locally
from loopline.trainers.cli import app
from loopline.trainers.core.batches import encode_all
from loopline.trainers.core.models import load_tokenizer
from loopline.trainers.core.network import load_base
from loopline.trainers.data.json_files import Skipped
from loopline.trainers.data.token_rows import RecordedRows
from loopline.trainers.distill.escalations import HeldOut, read_escalations
from loopline.trainers.distill.examples import conversation_row, imitations, preferences
from loopline.trainers.glpft.preference_training import pair_of
from loopline.trainers.sft.dialogues import dialogue
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.text.tool_markup import parse_tool_calls
from tests.agents.conversations import ScriptedHost, a_run, asks, says
from tests.trainers.grpo.recorded import record
from tests.trainers.grpo.tiny_grpo import write_base
from tests.trainers.test_posted_rewards import record_rewards

WRONG_SUM = r"2 + 2 = 5, so \boxed{5}"
"""The arithmetic rung refuses it."""


async def cascade(
    number: int,
    small: str = WRONG_SUM,
    big: str = r"\boxed{4}",
    *,
    question: str | None = None,
    tags: dict[str, str] | None = None,
    audit: float = 0.0,
) -> Trajectory:
    question = question or f"What is {number} + 2?"
    run: Run = a_run("cascade", question, expected_type="number", audit=audit)
    run = run.model_copy(
        update={"id": f"01890000-0000-7000-8000-{number:012d}", "tags": tags or {}}
    )
    calls = [says("Adding.", asks("calculate", expression="2 + 2")), says(big)]
    return await run_locally(
        run, {"first": ScriptedHost([says(small)]), "solo": ScriptedHost(calls)}
    )


def reasons(skipped: Sequence[Skipped]) -> dict[str, str]:
    return {entry.where[-2:]: entry.reason for entry in skipped}


async def test_examples_are_corrected_refused_answers_without_benchmark_questions(
    tmp_path: Path,
) -> None:
    runs = [
        await cascade(1),
        await cascade(2, small=r"\boxed{4}"),
        await cascade(3, audit=1.0),
        await cascade(4, tags={"kind": "new"}),
        await cascade(5),
        await cascade(6, tags={"bench": "wordproblems", "split": "unseen_structures"}),
        await cascade(7, question="What  is 6 + 2?"),
        await cascade(8),
    ]
    await record(tmp_path, runs)
    wrong = Reward(id="w", source="user", run_id=runs[4].run.id, value=0.0)
    await record_rewards(tmp_path, wrong)
    reading = read_escalations(tmp_path, HeldOut.of(["new"], ["what is 8 + 2?"]))
    assert [escalation.run.task.prompt for escalation in reading.records] == ["What is 1 + 2?"]
    assert reasons(reading.skipped) == {
        "02": "run whose small answer the ladder accepted",
        "03": "audited run: it measures",
        "04": "question of a kind that is held out",
        "05": "escalation whose answer feedback calls wrong",
        "06": "a task that is held out from training",
        "07": "question that is held out",
        "08": "question that is held out",
    }


async def test_a_repeated_question_is_learned_once_with_its_last_answer(
    tmp_path: Path,
) -> None:
    await record(
        tmp_path,
        [
            await cascade(1, big=r"\boxed{3}", question="What is 2 + 2?"),
            await cascade(2, big=r"\boxed{4}", question="what is 2 +  2?"),
        ],
    )
    [escalation] = read_escalations(tmp_path).records
    assert escalation.accepted.said == r"\boxed{4}"


async def test_on_request_only_answers_with_positive_feedback_are_learned(
    tmp_path: Path,
) -> None:
    runs = [await cascade(1), await cascade(2)]
    await record(tmp_path, runs)
    await record_rewards(tmp_path, Reward(id="r", source="user", run_id=runs[1].run.id, value=1.0))
    [escalation] = read_escalations(tmp_path, confirmed=True).records
    assert escalation.run.id == runs[1].run.id


async def test_a_pair_prefers_the_accepted_answer_unless_both_are_equal(tmp_path: Path) -> None:
    await record(tmp_path, [await cascade(1), await cascade(2, small=r"2 + 2 = 5, \boxed{4}")])
    model = load_base("micro:slm")
    skipped: list[Skipped] = []
    [recorded] = preferences(read_escalations(tmp_path).records, model, skipped)
    assert reasons(skipped) == {"02": "escalation whose two answers are the same"}
    preferred, rejected = pair_of(recorded.row.ids, recorded.row.learned)
    written = [
        model.codec.decode([i for i, learned in zip(row.ids, row.learned, strict=True) if learned])
        for row in (preferred, rejected)
    ]
    assert r"\boxed{4}" in written[0]
    assert "calculate" in written[0]
    assert written[1].startswith(WRONG_SUM)
    prompt = rejected.learned.index(True)
    assert preferred.ids[:prompt] == rejected.ids[:prompt]


def test_a_worked_answer_has_exactly_the_ids_that_the_small_model_was_trained_on() -> None:
    model, tokenizer = load_base("micro:slm"), load_tokenizer(MICRO_MODELS / "slm")
    for problem in generate(Split.TRAIN, 5, seed=3):
        worked = dialogue("solo", problem, random.Random(1))
        [(ids, learned)] = encode_all(tokenizer, [worked])
        turns = [_as_message(turn.role, turn.text) for turn in worked.turns]
        opening = [Message(role="system", content="You solve problems."), turns[0]]
        row = conversation_row(opening, (calculate.spec,), turns[1:], model)
        assert row.ids == tuple(ids)
        assert row.learned == tuple(learned)


def _as_message(role: str, text: str) -> Message:
    """A turn as an endpoint returns it: its calls and its text."""
    calls = tuple(
        ToolCall(id=c.id, name=c.name, arguments=c.arguments, raw_arguments=c.raw_arguments)
        for c in parse_tool_calls(text, id_seed="")
    )
    before = text.partition("<tool_call>")[0].removesuffix("\n") if calls else text
    return Message.model_validate({"role": role, "content": before, "tool_calls": calls})


async def store_of_escalations(folder: Path) -> Path:
    await record(folder, [await cascade(number) for number in range(1, 9)])
    return folder


async def test_the_command_trains_an_adapter_and_resumes_with_the_rows_that_it_started_with(
    tmp_path: Path,
) -> None:
    store = await store_of_escalations(tmp_path / "store")
    base, output = write_base(tmp_path / "base"), tmp_path / "out"
    arguments = [
        "distill", str(base), "--from-store", str(store), "--output", str(output),
        "--schedules", "micro", "--tokens", "2000", "--validation", "0",
    ]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "8 escalations to learn from" in done.output
    assert (output / "single" / "adapter_model.safetensors").exists()
    rows = RecordedRows.read(output / "data")
    await record(store, [await cascade(20)], batch=2)
    again = CliRunner().invoke(app, arguments)
    assert "is finished" in again.output
    assert RecordedRows.read(output / "data").sha256 == rows.sha256


async def test_a_store_without_an_escalation_is_refused_with_advice(tmp_path: Path) -> None:
    await record(tmp_path / "store", [await cascade(1, small=r"\boxed{4}")])
    base = write_base(tmp_path / "base")
    done = CliRunner().invoke(
        app,
        [
            "distill",
            str(base),
            "--from-store",
            str(tmp_path / "store"),
            "--output",
            str(tmp_path / "o"),
        ],
    )
    assert done.exit_code != 0
    assert "no escalation" in str(done.exception) + done.output


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_an_unreadable_file_of_held_out_questions_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "held_out.txt"
    if content is not None:
        file.write_bytes(content)
    done = CliRunner().invoke(
        app,
        [
            "distill",
            "micro:slm",
            "--from-store",
            str(tmp_path),
            "--output",
            str(tmp_path / "o"),
            "--hold-out",
            str(file),
        ],
    )
    assert done.exit_code != 0
    assert "--hold-out" in str(done.exception) + done.output


async def test_an_escalation_that_exceeds_the_context_is_reported(tmp_path: Path) -> None:
    await record(tmp_path / "store", [await cascade(1, question="How many? " * 200)])
    model = load_base(str(write_base(tmp_path / "base")))
    skipped: list[Skipped] = []
    assert imitations(read_escalations(tmp_path / "store").records, model, skipped) == []
    assert reasons(skipped) == {"01": "conversation longer than the model's context"}


async def test_a_refused_subtask_of_a_delegation_is_an_example_with_its_own_question(
    tmp_path: Path,
) -> None:
    ask = asks("delegate", problem="What is 2 + 2?", expected_type="integer")
    hosts = {
        "planner": ScriptedHost([says("", ask), says(r"\boxed{12}")]),
        "slm": ScriptedHost([says(WRONG_SUM)]),
        "expert": ScriptedHost([says(r"2 + 2 = 4, \boxed{4}")]),
    }
    await record(tmp_path, [await run_locally(a_run(question="What is 2 + 2 + 8?"), hosts)])
    reading = read_escalations(tmp_path)
    [escalation] = reading.records
    assert escalation.question == "What is 2 + 2?"
    model = load_base("micro:slm")
    skipped: list[Skipped] = []
    [imitation] = imitations(reading.records, model, skipped)
    [_] = preferences(reading.records, model, skipped)
    assert skipped == []
    text = model.codec.decode(imitation.row.ids)
    assert "What is 2 + 2?\nAnswer type: integer." in text
    assert "2 + 2 + 8" not in text
    held_out = HeldOut.of([], ["what is 2 + 2?"])
    assert read_escalations(tmp_path, held_out).records == ()


async def test_a_step_of_the_big_model_is_an_example_that_starts_from_its_context(
    tmp_path: Path,
) -> None:
    run = a_run("cascade", "What is 3 * 4?", expected_type="number", escalate="step")
    slip = says("3 * 4 = 14", asks("calculate", expression="14"))
    better = says("", asks("calculate", expression="3 * 4"))
    first = says("", asks("calculate", expression="1 + 1"))
    small = ScriptedHost(
        [first, slip, says(r"\boxed{12}")], others={"solo": ScriptedHost([better])}
    )
    await record(tmp_path, [await run_locally(run, {"first": small})])
    reading = read_escalations(tmp_path)
    [escalation] = reading.records
    assert escalation.accepted.tool_calls[0].arguments == {"expression": "3 * 4"}
    model = load_base("micro:slm")
    skipped: list[Skipped] = []
    [imitation] = imitations(reading.records, model, skipped)
    [pair] = preferences(reading.records, model, skipped)
    assert skipped == []
    learned = [i for i, yes in zip(imitation.row.ids, imitation.row.learned, strict=True) if yes]
    assert "3 * 4" in model.codec.decode(learned)
    assert "1 + 1" not in model.codec.decode(learned)
    assert "1 + 1" in model.codec.decode(imitation.row.ids)
    _, rejected = pair_of(pair.row.ids, pair.row.learned)
    written = [i for i, yes in zip(rejected.ids, rejected.learned, strict=True) if yes]
    assert "3 * 4 = 14" in model.codec.decode(written)


async def test_an_audited_question_is_not_learned(tmp_path: Path) -> None:
    runs = [
        await cascade(1, question="What is 2 + 2?"),
        await cascade(2, question="what is  2 + 2?", audit=1.0),
    ]
    await record(tmp_path, runs)
    assert read_escalations(tmp_path).records == ()
