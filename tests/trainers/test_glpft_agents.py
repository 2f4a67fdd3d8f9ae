"""`train glpft --agent`: the roles are a team's own agents, as they were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.agents.records import Outcome
from loopline.trainers.cli import app
from loopline.trainers.glpft.publishing import publications
from loopline.trainers.glpft.report import Report, read_report
from loopline.trainers.glpft.stages import BACKBONE, even_shares, stages_of
from loopline.trainers.sft.sessions import read_sessions

from .grpo.recorded import a_call, a_candidate, a_run, a_step
from .grpo.tiny_grpo import write_base
from .test_sessions import chat
from .test_sft_sessions import in_store, reward, said_by

SESSIONS = [
    chat(1, [5, 6], [7], session="good", agent="writer"),
    chat(2, [8, 6], [9], session="good", agent="critic"),
    chat(3, [5, 6, 7, 8], [10], session="good", agent="writer"),
    chat(4, [5, 9], [7], session="fine", agent="writer"),
    chat(5, [8, 9], [9], session="bad", agent="critic"),
    chat(6, [8, 5], [11], session="good", agent="driver"),
]
REWARDS = [reward("good", 1.0), reward("fine", 1.0), reward("bad", 0.0)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("glpft") / "base")


def command(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["glpft", *map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 1, str(ended.exception)
    return ended.exit_code, ended.output


def report_of(output: Path) -> Report:
    report = read_report(output)
    assert report is not None
    return report


@pytest.mark.slow
def test_a_backbone_learns_from_all_agents_and_each_agent_from_its_own_sessions(
    base: Path, tmp_path: Path
) -> None:
    store = in_store(tmp_path / "store", [said_by(base, run) for run in SESSIONS], REWARDS)
    out = tmp_path / "out"
    arguments = (
        out, "--from-store", store, "--base", base, "--agent", "writer", "--agent", "critic",
        "--reward-from", "feedback", "--min-reward", 0.5, "--schedules", "micro",
        "--tokens", 2_000, "--batch", 2, "--validation", 0,
    )  # fmt: skip
    code, output = command(*arguments)
    assert code == 0, output
    assert "writer: 2 conversations to learn from" in output
    assert "critic: 1 conversation to learn from" in output
    assert "left out: 1 × call of an agent that is not asked for" in output
    report = report_of(out)
    assert [(stage.stage, stage.rows) for stage in report.stages] == [
        (BACKBONE, 3), ("writer", 2), ("critic", 1),
    ]  # fmt: skip
    assert [(entry.policy, entry.folder.name) for entry in publications(report, out, "slm")] == [
        ("slm/writer", "writer"),
        ("slm/critic", "critic"),
    ]
    (out / "report.json").unlink()
    code, again = command(*arguments)
    assert code == 0, again
    assert report_of(out) == report, "what was read at its beginning is kept in its folder"


def test_a_team_s_agent_learns_only_selected_candidates(base: Path, tmp_path: Path) -> None:
    right_call, other = a_call([5, 6], [7]), a_call([5, 6], [8])
    step = a_step([a_candidate(0.0, other), a_candidate(1.0, right_call)], agent="writer")
    run = a_run(1, step.model_copy(update={"selected": 1}), workflow="team")
    failed = a_run(2, step, workflow="team").model_copy(update={"outcome": Outcome.FAILED})
    store = in_store(tmp_path, [run, failed, chat(3, [5], [6], agent="writer")], [])
    reading = read_sessions(store, lambda call: True, agents=["writer"], workflow="team")
    [recorded] = reading.records
    assert (recorded.agent, recorded.row.ids) == ("writer", (5, 6, 7))
    assert [entry.reason for entry in reading.skipped] == ["run that did not solve its task"]


def test_agents_share_the_budget_as_the_same_number_of_roles_would() -> None:
    agents = ("a", "b", "c", "d")
    shares = even_shares(agents)
    stages = stages_of("glpft", shares, agents=agents)
    assert [stage.name for stage in stages] == [BACKBONE, *agents]
    assert sum(stage.share for stage in stages) == pytest.approx(1)
    assert [stage.agent for stage in stages] == [None, *agents]
    assert {stage.begins_from for stage in stages[1:]} == {BACKBONE}
    (together,) = stages_of("multitask", shares, agents=agents)
    assert together.agent is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--agent", "pilot"), "no conversation of the agent 'pilot'"),
        (("--agent", "backbone"), "an agent's name is also the name of its folder"),
        (("--agent", "a/b"), "an agent's name is also the name of its folder"),
        (("--agent", "writer", "--agent", "writer"), "an agent is given twice"),
        (("--workflow", "team"), "--workflow only applies with --agent"),
    ],
)
def test_untrainable_agents_are_reported_before_anything_is_written(
    base: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    store = in_store(tmp_path / "store", SESSIONS, [])
    out = tmp_path / "out"
    code, answer = command(out, "--from-store", store, "--base", base, *arguments)
    assert code != 0
    assert message in answer
    assert not out.exists()


def test_recorded_ids_need_the_model_whose_tokenizer_made_them(tmp_path: Path) -> None:
    store = in_store(tmp_path / "store", SESSIONS, [])
    code, answer = command(tmp_path / "out", "--from-store", store, "--agent", "writer")
    assert code != 0
    assert "name the model that has it with --base" in answer
