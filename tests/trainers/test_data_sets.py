"""Data sets: their hash, their card, their folder, and the command that makes them."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from loopline.agents.roles.umi.settings import UmiOptions
from loopline.trainers.cli import app
from loopline.trainers.data.datasets import DataSet, build, content_hash, read, write
from loopline.trainers.data.examples import SETS, SetName, Span
from loopline.trainers.data.sources import Source, from_toolbench, from_worlds
from loopline.trainers.data.toolbench import FOLDERS
from loopline.trainers.data.trajectories import HALF_A_PAIR
from loopline.trainers.errors import UnreadableData
from tests.trainers.test_toolbench import call, says
from tests.trainers.test_toolbench import write as write_answer

OPTIONS = UmiOptions()
WORLDS = from_worlds("train", 20, 1)
MADE = build([WORLDS], OPTIONS)
OTHER = from_worlds("unseen_apis", 8, 1)


def identities(data_set: DataSet, name: SetName) -> set[str]:
    return {row.instruction_id for row in data_set.sets[name]}


@given(st.sets(st.integers(0, 19), min_size=8))
def test_the_local_sets_reuse_the_instructions_of_the_global_set(numbers: set[int]) -> None:
    """Every instruction is in the global and the planner's sets; in the caller's, if anything is
    called; in the summarizer's, unless it gives up."""
    ways = tuple(WORLDS.trajectories[number] for number in sorted(numbers))
    data_set = build([replace(WORLDS, trajectories=ways)], OPTIONS)
    everything = {trajectory.instruction_id for trajectory in ways}
    assert identities(data_set, "global_trajectories") == everything
    assert identities(data_set, "global_steps") == identities(data_set, "planner") == everything
    called = {trajectory.instruction_id for trajectory in ways if len(trajectory.steps) > 1}
    summarizer_ids = {
        trajectory.instruction_id for trajectory in ways if trajectory.steps[-1].next == "conclude"
    }
    assert (identities(data_set, "caller"), identities(data_set, "summarizer")) == (
        called,
        summarizer_ids,
    )


BOTH = build([WORLDS, OTHER], OPTIONS)


@settings(max_examples=30)
@given(st.permutations(range(20)), st.booleans())
def test_neither_the_order_of_records_nor_of_sources_changes_a_data_set(
    order: list[int], swapped: bool
) -> None:
    shuffled = replace(WORLDS, trajectories=tuple(WORLDS.trajectories[n] for n in order))
    sources = [OTHER, shuffled] if swapped else [shuffled, OTHER]
    assert build(sources, OPTIONS) == BOTH


@given(st.data())
def test_a_change_of_any_row_changes_the_hash(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(SETS))
    number = data.draw(st.integers(0, len(MADE.sets[name]) - 1))
    row = MADE.sets[name][number]
    change: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {"input": row.input + " "},
                {"step": row.step + 1},
                {"source": "elsewhere"},
                {"system": ""},
                {"target": (*row.target, Span(text=""))},
                {"target": tuple(Span(text=s.text, learned=not s.learned) for s in row.target)},
            ]
        )
    )
    rows = list(MADE.sets[name])
    rows[number] = row.model_copy(update=change)
    assert content_hash({**MADE.sets, name: tuple(rows)}) != MADE.card.sha256
    assert content_hash({**MADE.sets, name: tuple(rows[:number])}) != MADE.card.sha256


def test_several_solutions_of_one_instruction_are_kept_and_repeats_are_counted() -> None:
    (first, *_) = [
        trajectory for trajectory in WORLDS.trajectories if trajectory.steps[-1].next == "conclude"
    ]
    step = replace(first.steps[0], rationale="I begin.")
    another = replace(first, id="another", steps=(step, *first.steps[1:]))
    repeat = replace(first, id="zz")
    source = replace(WORLDS, trajectories=(*WORLDS.trajectories, another, repeat))
    data_set = build([source], OPTIONS)
    (card,) = data_set.card.sources
    assert (card.trajectories, card.instructions, card.repeated) == (22, 20, 1)
    whole = [row.trajectory_id for row in data_set.sets["global_trajectories"]]
    assert whole.count("another") == 1
    assert "zz" not in whole


def test_a_card_states_the_options_prompts_sources_and_counts_of_its_rows() -> None:
    card = MADE.card
    assert card.options == {
        "observation_chars": 1024, "constrained": True, "tool_style": "documents",
    }  # fmt: skip
    assert card.prompts.keys() == {
        "umi_trajectory.md", "umi_backbone.md", "umi_planner.md", "umi_caller_json.md",
        "umi_summarizer.md",
    }  # fmt: skip
    assert card.sources[0].settings == {"split": "train", "samples": 20, "seed": 1}
    counts = {name: sum(card.sets[name].examples.values()) for name in SETS}
    assert counts == {name: len(MADE.sets[name]) for name in SETS}


def test_a_data_set_reads_back_as_written(tmp_path: Path) -> None:
    folder = tmp_path / "deeper" / "set"
    write(MADE, folder)
    assert read(folder) == MADE
    assert [path.name for path in folder.parent.iterdir()] == ["set"]
    with pytest.raises(UnreadableData, match="never overwritten"):
        write(MADE, folder)


@pytest.mark.parametrize("change", ["swap", "cut", "card", "gone"])
def test_a_damaged_data_set_is_refused(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "set"
    write(MADE, folder)
    if change == "swap":
        (folder / "planner.parquet").write_bytes((folder / "caller.parquet").read_bytes())
    elif change == "cut":
        rows = (folder / "planner.parquet").read_bytes()
        (folder / "planner.parquet").write_bytes(rows[: len(rows) // 2])
    elif change == "card":
        (folder / "card.json").write_text('{"version": 1}')
    else:
        (folder / "planner.parquet").unlink()
    with pytest.raises(UnreadableData, match="missing" if change == "gone" else "damaged"):
        read(folder)


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does at the worst moment: before the folder gets its name."""

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(MADE, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


FINISH = call("Finish", '{"return_type": "give_answer", "final_answer": "Sunny."}', "Done.")
NAME = "x" * 52 + "_for_weather"
CHAIN = (
    call(NAME, '{"city": "Oslo"}', "I need it."),
    says("function", '{"error": "", "response": "sunny"}'),
    FINISH,
)


@pytest.mark.parametrize("beside", FOLDERS)
def test_toolbench_s_test_queries_are_kept_out_of_training(tmp_path: Path, beside: str) -> None:
    for number in (7, 8, 9):
        write_answer(tmp_path / beside, *CHAIN, name=f"{number}_DFS.json")
    listed = tmp_path / beside / "test_query_ids"
    listed.mkdir()
    (listed / "G1_instruction.json").write_text(json.dumps({"8": 0}))
    (listed / "G1_tool.json.xz").write_bytes(lzma.compress(b"[9]"))
    source = from_toolbench(tmp_path)
    assert [item.id for item in source.trajectories] == ["G1/7"]
    assert [(item.where, item.reason) for item in source.skipped] == [
        ("G1/8", "a test query"), ("G1/9", "a test query"),
    ]  # fmt: skip
    (listed / "G1_instruction.json").write_text('{"8"')
    with pytest.raises(UnreadableData, match="the training would use test queries"):
        from_toolbench(tmp_path)


def test_an_observation_with_only_an_error_is_shown_as_an_error(tmp_path: Path) -> None:
    write_answer(tmp_path, CHAIN[0], says("function", '{"error": "late", "response": ""}'), FINISH)
    data_set = build([from_toolbench(tmp_path)], OPTIONS)
    assert "observation: error: late</s>" in data_set.sets["summarizer"][0].input


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (0, call(NAME, '{"city": "Oslo \\ud83d"}', "I need it.")),
        (1, says("function", '{"error": "", "response": "sunny \\ud83d"}')),
        (2, call("Finish", '{"final_answer": "Sunny \\ud83d."}', "Done.")),
    ],
)
def test_half_a_surrogate_pair_costs_only_its_own_answer(
    place: int, message: dict[str, Any], tmp_path: Path
) -> None:
    """A JSON escape can write it, but UTF-8 cannot encode it."""
    write_answer(tmp_path, *CHAIN)
    write_answer(tmp_path, *CHAIN[:place], message, *CHAIN[place + 1 :], name="8_DFS.json")
    source = from_toolbench(tmp_path)
    assert [trajectory.id for trajectory in source.trajectories] == ["G1/7"]
    [skipped] = source.skipped
    assert (skipped.where, skipped.reason) == ("G1/8", HALF_A_PAIR)
    assert skipped.detail.endswith(r"\ud83d'")
    write(build([source], OPTIONS), tmp_path / "set")


def test_a_call_with_the_full_name_matches_the_truncated_name_offered(tmp_path: Path) -> None:
    """Names are truncated to 64 characters; a call of the full name is not a hallucination."""
    write_answer(tmp_path, call("x" * 18 + NAME, '{"city": "Oslo"}', "I need it."), *CHAIN[1:])
    (trajectory,) = from_toolbench(tmp_path).trajectories
    called = trajectory.steps[0].call
    assert called is not None
    assert trajectory.offers(called.name)


def command(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["data", *map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 1, str(ended.exception)
    return ended.exit_code, ended.output


def test_the_command_writes_a_data_set_and_shows_its_card_and_a_sample_of_each(
    tmp_path: Path,
) -> None:
    write_answer(tmp_path, *CHAIN)
    (tmp_path / "answer/G1_answer/9_DFS.json").write_text('{"answer_generation": {"query": ')
    folder = tmp_path / "set"
    code, output = command(folder, "--worlds", "train", "--samples", 10, "--toolbench", tmp_path)
    assert code == 0
    data_set = read(folder)
    assert data_set.card.sources[0].skipped == {"not JSON": 1}
    assert "skipped G1_answer/9_DFS.json: not JSON" in output
    for name in SETS:
        assert f"── {name}: toolbench G1/7" in output
        assert data_set.sets[name][0].target_text in output
    assert data_set.card.sha256 in output
    again = tmp_path / "again"
    command(again, "--worlds", "train", "--samples", 10, "--toolbench", tmp_path)
    assert read(again) == data_set


def test_an_empty_result_is_an_error_that_says_why_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "answer/G1_answer").mkdir(parents=True)
    (tmp_path / "answer/G1_answer/9_DFS.json").write_text("{")
    code, output = command(tmp_path / "set", "--toolbench", tmp_path)
    assert code == 1
    assert "no row is left for" in output
    assert "of 0 trajectories (not JSON: 1)" in output
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no source"),
        (("--worlds", "tomorrow"), "no split 'tomorrow'; there are: train"),
        (("--toolbench", "nowhere"), "no folder `answer`"),
        (("--store", "nowhere"), "holds no recorded runs"),
        (
            ("--worlds", "train", "--tool-style", "poem"),
            "--tool-style poem: Input should be 'documents' or",
        ),
    ],
)
def test_bad_input_is_reported(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in command(tmp_path / "set", *arguments)[1]
    assert not (tmp_path / "set").exists()


def test_the_text_of_a_file_cannot_control_the_terminal(tmp_path: Path) -> None:
    hostile = call(NAME, '{"city": "Oslo"}', "I need \x1b[2J it.")
    write_answer(tmp_path, hostile, *CHAIN[1:])
    code, output = command(tmp_path / "set", "--toolbench", tmp_path)
    assert code == 0
    assert "\x1b" not in output


def test_the_same_solution_from_two_sources_is_learned_once() -> None:
    """A run of the store that takes the oracle's steps: the first source keeps it."""
    runs = [replace(item, source="store", id=f"run-{item.id}") for item in WORLDS.trajectories]
    data_set = build([Source("store", {}, tuple(runs)), WORLDS], OPTIONS)
    assert [(item.name, item.repeated) for item in data_set.card.sources] == [
        ("store", 0), ("worlds:train", 20),
    ]  # fmt: skip
