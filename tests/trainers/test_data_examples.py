"""From trajectories to training examples: what is learned, what is dropped, and that a model trains
on the texts that its role meets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.environments.api_worlds import Instance, instances, stream
from loopline.agents.records import Outcome
from loopline.agents.records import Trajectory as RecordedTrajectory
from loopline.agents.roles.umi.output import Action, Next, PlannerTurn, read_action, read_plan
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.agents.roles.umi.transcript import calls_of
from loopline.agents.workflow_runner import run_locally
from loopline.testing.recorded_runs import as_on_the_bus
from loopline.trainers.data.examples import (
    ANSWER_EMPTY,
    ANSWER_NONE,
    HALLUCINATED,
    NO_ARGUMENTS,
    NO_END,
    READ_OTHERWISE,
    SETS,
    DroppedRow,
    Example,
    SetName,
    examples_of,
)
from loopline.trainers.data.sources import Source, from_store, from_worlds
from loopline.trainers.data.trajectories import Step, Trajectory
from loopline.workers.recorder import TRAJECTORY_SCHEMA, Table, trajectory_row
from tests.agents.conversations import ScriptedHost, a_run, says

FLIGHTS = next(
    dialogue.tools
    for dialogue in stream("train", 3)
    if {"search_flights", "book_flight"} <= {tool.name for tool in dialogue.tools}
)
SEARCH = Action("search_flights", {"origin": "New York", "to": "Los Angeles", "day": "Tuesday"})
BOOK = Action("book_flight", {"flight": "DL9", "seats": 1})
BOOKING = (
    Step("First I look for flights.", "call", SEARCH, output={"result": '{"flights":["DL9"]}'}),
    Step("DL9 is the one. I book it.", "call", BOOK, output={"result": '{"booking":"F1"}'}),
    Step("It is booked.", "conclude", answer="You are booked on DL9: F1."),
)
PUBLISHED = UmiOptions(constrained=False)


def way(
    *steps: Step, instruction: str = "Book me a flight from New York to Los Angeles next Tuesday"
) -> Trajectory:
    return Trajectory("test", "t", "i", instruction, FLIGHTS, steps)


def made(
    trajectory: Trajectory, options: UmiOptions = PUBLISHED
) -> tuple[dict[SetName, list[Example]], list[tuple[SetName, str]]]:
    """The rows of each set, and what was dropped."""
    rows: dict[SetName, list[Example]] = {name: [] for name in SETS}
    dropped: list[tuple[SetName, str]] = []
    for example in examples_of(trajectory, options):
        if isinstance(example, DroppedRow):
            dropped.append((example.set, example.reason))
        else:
            rows[example[0]].append(example[1])
    return rows, dropped


def test_the_readme_s_global_row_is_one_text_from_the_first_rationale_to_the_answer() -> None:
    """The README of RichardAragon/MultiAgentLLM ("Multi Agent LLM") shows the search and booking of
    a flight as one row. Without the inputs of the actions, which it omits although no tool call
    works without them, our row equals that row."""
    *calls, end = BOOKING
    (row,) = made(way(*calls, replace(end, rationale="")))[0]["global_trajectories"]
    lines = row.target_text.splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("Action Input")) == (
        "Rationale 1: First I look for flights.\n"
        "\n"
        "Action 1: search_flights\n"
        'Observation 1: {"flights":["DL9"]}\n'
        "\n"
        "Rationale 2: DL9 is the one. I book it.\n"
        "\n"
        "Action 2: book_flight\n"
        'Observation 2: {"booking":"F1"}\n'
        "\n"
        "Answer: You are booked on DL9: F1."
    )
    assert [span.text for span in row.target if not span.learned] == [
        '{"flights":["DL9"]}\n\n', '{"booking":"F1"}\n\n',
    ]  # fmt: skip


def test_a_whole_row_has_the_parts_that_the_readme_s_row_lacks() -> None:
    """Each action's input follows its name; the last rationale, if there is one, precedes the
    answer; and the instruction follows the tools, in α-UMi's turns, as everywhere."""
    (row,) = made(way(*BOOKING))[0]["global_trajectories"]
    assert (
        "\nAction 1: search_flights\n"
        'Action Input 1: {"origin": "New York", "to": "Los Angeles", "day": "Tuesday"}\n'
        'Observation 1: {"flights":["DL9"]}\n'
    ) in row.target_text
    assert row.target_text.endswith(
        "\n\nRationale 3: It is booked.\n\nAnswer: You are booked on DL9: F1."
    )
    assert row.input.startswith("Tools:\n")
    assert row.input.endswith(
        "\nuser: Book me a flight from New York to Los Angeles next Tuesday</s>\nassistant:"
    )


def test_the_readme_s_planner_row_joins_the_rationales_with_the_next_role() -> None:
    """The same README's planner row: only the rationales of a booking, each followed by the next
    role, twice the caller and then the summarizer. Here each is a separate example, as in the paper
    and in α-UMi's published data, with α-UMi's names of the roles; joined again, with the README's
    names, they equal that row."""
    rows = made(way(*BOOKING))[0]["planner"]
    roles = {"call": "Caller", "conclude": "Summarizer", "give_up": "Give up"}
    plans = [read_plan(row.target_text) for row in rows]
    assert "\n\n".join(
        f"Rationale {number}: {plan.rationale}\nNext: {roles[plan.next]}"
        for number, plan in enumerate(plans, start=1)
        if isinstance(plan, PlannerTurn)
    ) == (
        "Rationale 1: First I look for flights.\nNext: Caller\n\n"
        "Rationale 2: DL9 is the one. I book it.\nNext: Caller\n\n"
        "Rationale 3: It is booked.\nNext: Summarizer"
    )
    text = "".join(row.target_text for row in rows)
    assert not any(word in text for word in ("Action", "Observation", "search_flights"))


def test_each_role_learns_its_own_turn_in_the_published_form() -> None:
    rows, dropped = made(way(*BOOKING))
    assert dropped == []
    assert rows["planner"][1].target_text == "DL9 is the one. I book it.\n Next: caller."
    assert rows["caller"][1].target_text == (
        'Action: book_flight\nAction Input: {"flight": "DL9", "seats": 1}'
    )
    assert rows["caller"][1].input.endswith(
        "Thought:\nDL9 is the one. I book it.\n Next: caller.\ncaller:"
    )
    assert [row.target_text for row in rows["summarizer"]] == ["You are booked on DL9: F1."]
    assert rows["summarizer"][0].input.endswith(
        "It is booked.\n Next: conclusion.</s>\nconclusion:"
    )


def test_the_backbone_s_steps_join_thought_and_call_without_a_next_role() -> None:
    """As in the published `prepro_backbone.py`, also in the history."""
    rows = made(way(*BOOKING))[0]["global_steps"]
    first = (
        "First I look for flights.\nAction: search_flights\nAction Input: "
        '{"origin": "New York", "to": "Los Angeles", "day": "Tuesday"}'
    )
    assert rows[0].target_text == first
    assert rows[1].input.endswith(
        f'</s>assistant: {first}</s>observation: {{"flights":["DL9"]}}</s>\nassistant:'
    )
    assert rows[2].target_text == "It is booked.\nconclusion: You are booked on DL9: F1."
    given_up = made(way(Step("There is no flight.", "give_up")))[0]["global_steps"]
    assert given_up[0].target_text == "There is no flight.\nconclusion: give up."


def test_a_constrained_caller_learns_the_json_value_that_its_grammar_allows() -> None:
    rows = made(way(*BOOKING), UmiOptions())[0]["caller"]
    assert rows[1].target_text == (
        '{"Action": "book_flight", "Action Input": {"flight": "DL9", "seats": 1}}'
    )
    assert [read_action(row.target_text) for row in rows] == [SEARCH, BOOK]


HALLUCINATION = Step(
    "I ask the oracle.",
    "call",
    Action("invalid_hallucination_function_name", {}),
    output={"error": "no such function"},
)


def test_planner_and_caller_drop_a_hallucinated_function_but_the_history_keeps_it() -> None:
    rows, dropped = made(way(HALLUCINATION, *BOOKING))
    assert dropped == [("planner", HALLUCINATED), ("caller", HALLUCINATED)]
    assert [row.step for row in rows["planner"]] == [1, 2, 3]
    assert [row.step for row in rows["caller"]] == [1, 2]
    assert "invalid_hallucination_function_name" in rows["planner"][0].input
    assert len(rows["global_steps"]) == 4, "the backbone's data were published with them"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("none", ANSWER_NONE), (None, ANSWER_NONE), (" ", ANSWER_EMPTY)],
)
def test_an_empty_answer_is_not_learned(answer: str | None, reason: str) -> None:
    rows, dropped = made(way(*BOOKING[:2], Step("Done.", "conclude", answer=answer)))
    assert dropped == [
        ("global_trajectories", reason), ("global_steps", reason), ("summarizer", reason),
    ]  # fmt: skip
    assert len(rows["planner"]) == 3


def test_an_unreadable_call_is_dropped_as_a_target() -> None:
    broken = Step("I search.", "call", raw_call='Action: search_flights\nAction Input: {"a')
    rows, dropped = made(way(broken, BOOKING[2]))
    assert dropped == [
        ("global_trajectories", NO_ARGUMENTS), ("global_steps", NO_ARGUMENTS),
        ("caller", NO_ARGUMENTS),
    ]  # fmt: skip
    assert '{"a</s>observation:' in rows["planner"][1].input


def test_an_unfinished_trajectory_gives_steps_but_no_whole_row() -> None:
    rows, dropped = made(way(*BOOKING[:2]))
    assert dropped == [("global_trajectories", NO_END)]
    assert [len(rows[name]) for name in SETS] == [0, 2, 2, 2, 0]


@pytest.mark.parametrize(
    "rationale", ["I wait. Next: give up. Or not.", "All done.</s>user: more", "caller: now"]
)
def test_a_rationale_that_its_reader_would_truncate_is_dropped_as_a_target(rationale: str) -> None:
    dropped = made(way(Step(rationale, "call", SEARCH, output={"result": "{}"}), BOOKING[2]))[1]
    assert ("planner", READ_OTHERWISE) in dropped


CALLS = st.builds(
    Action,
    st.sampled_from(["search_flights", "book_flight", "magic"]),
    st.dictionaries(st.text(max_size=4), st.text(max_size=6) | st.integers(), max_size=2),
)
SAID = st.text(max_size=30) | st.sampled_from(["Next: caller.", "</s>", "Action: x", "none", ""])
CALLED = st.builds(
    Step, SAID, st.just("call"), CALLS | st.none(), st.just(None), st.text(max_size=20)
)
END = st.builds(Step, SAID, st.sampled_from(["conclude", "give_up"]), answer=SAID | st.none())


@st.composite
def ways(draw: st.DrawFn) -> Trajectory:
    """Calls, and usually an end."""
    calls = draw(st.lists(CALLED, max_size=4))
    return way(*calls, *draw(st.lists(END, max_size=1)))


@given(ways(), st.booleans())
def test_every_step_becomes_a_row_or_a_counted_drop_in_every_set(
    trajectory: Trajectory, constrained: bool
) -> None:
    rows, dropped = made(trajectory, UmiOptions(constrained=constrained))
    lost = Counter(name for name, _ in dropped)
    kinds: Counter[Next] = Counter(step.next for step in trajectory.steps)
    assert {name: len(rows[name]) + lost[name] for name in SETS} == {
        "global_trajectories": 1,
        "global_steps": kinds.total(),
        "planner": kinds.total(),
        "caller": kinds["call"],
        "summarizer": kinds["conclude"],
    }


@given(ways(), st.booleans())
def test_the_roles_own_parsers_read_every_target_as_its_step(
    trajectory: Trajectory, constrained: bool
) -> None:
    rows, _ = made(trajectory, UmiOptions(constrained=constrained))
    for row in rows["planner"]:
        plan = read_plan(row.target_text)
        assert isinstance(plan, PlannerTurn)
        assert plan.next == trajectory.steps[row.step].next
    for name in ("caller", "global_steps"):
        for row in rows[name]:
            step = trajectory.steps[row.step]
            if step.next == "call":
                assert read_action(row.target_text) == step.call


async def served(
    instance: Instance, options: UmiOptions, rows: dict[SetName, list[Example]], *before: str
) -> tuple[RecordedTrajectory, ScriptedHost]:
    """A run of `umi` whose models write `before` and then the targets of the rows."""
    lines = list(before)
    callers = iter(rows["caller"])
    for row in rows["planner"]:
        lines.append(row.target_text)
        if row.target_text.endswith("Next: caller."):
            lines.append(next(callers).target_text)
    lines += [row.target_text for row in rows["summarizer"]]
    host = ScriptedHost([says(line) for line in lines])
    run = a_run("umi").model_copy(
        update={"task": instance.task, "options": options.model_dump(mode="json")}
    )
    roles = ("umi_planner", "umi_caller", "umi_summarizer")
    return await run_locally(run, dict.fromkeys(roles, host)), host


@pytest.mark.parametrize("style", ["documents", "signatures"])
@pytest.mark.parametrize("constrained", [True, False])
async def test_training_and_serving_use_the_same_texts(style: str, constrained: bool) -> None:
    """Runs of the real roles in the simulator, compared character by character: a model that writes
    the targets reads the inputs, and solves the task."""
    options = UmiOptions.model_validate(
        {"tool_style": style, "constrained": constrained, "observation_chars": 60}
    )
    source = from_worlds("train", 12, 5)
    for instance, trajectory in zip(instances("train", 5, 12), source.trajectories, strict=True):
        rows, dropped = made(trajectory, options)
        assert dropped == []
        recorded, host = await served(instance, options, rows)
        verdict = instance.verify(recorded.answer, calls_of(recorded.steps))
        assert verdict.solved
        local = [row for name in ("planner", "caller", "summarizer") for row in rows[name]]
        read = [(request.messages[0].content, request.last.content) for request in host.requests]
        assert Counter(read) == Counter((row.system, row.input) for row in local)
        assert read[0] == (rows["planner"][0].system, rows["planner"][0].input)


def without_origin(rows: dict[SetName, list[Example]]) -> list[Example]:
    return [
        row.model_copy(update={"source": "", "trajectory_id": ""})
        for name in SETS
        for row in rows[name]
    ]


async def recorded_in(store: Path, *runs: RecordedTrajectory) -> Source:
    """The recorder's version of these runs, read back."""
    table = Table(store / "trajectories", 0, TRAJECTORY_SCHEMA, trajectory_row)
    entries = [(f"{number}-0", as_on_the_bus(run)) for number, run in enumerate(runs, start=1)]
    await table.write(entries)
    return from_store(store)


async def test_a_solved_run_in_the_store_gives_the_examples_that_it_was_made_of(
    tmp_path: Path,
) -> None:
    options = UmiOptions()
    (trajectory,) = from_worlds("train", 1, 81).trajectories
    (instance,) = instances("train", 81, 1)
    rows, _ = made(trajectory, options)
    recorded, _ = await served(instance, options, rows)
    source = await recorded_in(tmp_path, recorded)
    (again,) = source.trajectories
    assert (source.skipped, again.id) == ((), recorded.run.id)
    assert without_origin(made(again, options)[0]) == without_origin(rows)


async def test_runs_that_were_not_judged_right_are_skipped_with_the_reason(
    tmp_path: Path,
) -> None:
    """One that gave up although there is a solution, and one that cannot be checked; a run of
    another workflow is skipped."""
    options = UmiOptions()
    (trajectory,) = from_worlds("train", 1, 81).trajectories
    (instance,) = instances("train", 81, 1)
    recorded, _ = await served(instance, options, made(trajectory, options)[0])
    wrong = recorded.model_copy(update={"outcome": Outcome.GAVE_UP, "answer": None})
    host = ScriptedHost([says("Easy.\n Next: conclusion."), says("12")])
    question = a_run("umi").model_copy(update={"id": a_run().id[:-1] + "2"})
    unknown = await run_locally(question, dict.fromkeys(("umi_planner", "umi_summarizer"), host))
    other_run = recorded.model_copy(
        update={"run": a_run("solo").model_copy(update={"id": a_run().id[:-1] + "3"})}
    )
    source = await recorded_in(tmp_path, wrong, unknown, other_run)
    assert source.trajectories == ()
    assert [skip.reason for skip in source.skipped] == ["not solved", "nobody verified it"]


async def test_runs_of_held_out_instructions_are_not_trained_on(tmp_path: Path) -> None:
    """A benchmark's runs are in the same store; a model trained on them would be measured on data
    that it has seen."""
    (trajectory,) = from_worlds("unseen_worlds", 1, 4).trajectories
    (instance,) = instances("unseen_worlds", 4, 1)
    recorded, _ = await served(instance, UmiOptions(), made(trajectory, UmiOptions())[0])
    source = await recorded_in(tmp_path, recorded)
    assert source.trajectories == ()
    assert [(skip.reason, skip.detail) for skip in source.skipped] == [
        ("a task that is held out from training", "unseen_worlds")
    ]


async def test_a_refused_call_of_a_recorded_run_stays_in_the_history_and_is_not_learned(
    tmp_path: Path,
) -> None:
    """The planner recovers from a nonexistent tool; the model learns the recovery."""
    (trajectory,) = from_worlds("train", 1, 81).trajectories
    (instance,) = instances("train", 81, 1)
    rows = made(trajectory, PUBLISHED)[0]
    wrong = "Action: magic\nAction Input: {}"
    lines = ["I try magic.\n Next: caller.", wrong]
    recorded, _ = await served(instance, PUBLISHED, rows, *lines)
    (again,) = (await recorded_in(tmp_path, recorded)).trajectories
    learned, dropped = made(again, PUBLISHED)
    assert dropped == [("planner", HALLUCINATED), ("caller", HALLUCINATED)]
    assert f"caller: {wrong}</s>observation: error: there is no tool" in learned["planner"][0].input
    assert [row.target_text for row in learned["caller"]] == [
        row.target_text for row in rows["caller"]
    ]


async def test_unreadable_rows_of_a_store_are_reported_and_the_rest_is_used(tmp_path: Path) -> None:
    (trajectory,) = from_worlds("train", 1, 81).trajectories
    (instance,) = instances("train", 81, 1)
    recorded, _ = await served(instance, UmiOptions(), made(trajectory, UmiOptions())[0])
    folder = tmp_path / "trajectories"
    folder.mkdir()
    (folder / "cut.parquet").write_bytes(b"PAR1")
    pq.write_table(pa.table({"run_id": ["x"]}), folder / "other.parquet")
    row = {
        "run_id": ["x"], "generation": [0], "entry": ["1-0"], "workflow": ["umi"],
        "trajectory": ["{"], "sha256": [sha256(b"{").hexdigest()],
    }  # fmt: skip
    pq.write_table(pa.table(row), folder / "row.parquet")
    source = await recorded_in(tmp_path, recorded)
    assert len(source.trajectories) == 1
    assert [(skip.where, skip.reason) for skip in source.skipped] == [
        ("cut.parquet", "the file cannot be read"),
        ("other.parquet", "the file cannot be read"),
        ("row.parquet[0]", "no trajectory record"),
    ]
