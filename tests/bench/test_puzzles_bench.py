"""`bench puzzles`: from its instances to the report, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from loopline.agents.environments import blind
from loopline.agents.environments.game import Agent
from loopline.agents.environments.plan_path import PLAN_PATH
from loopline.agents.environments.plan_path.generation import Difficulty as PlanPathDifficulty
from loopline.agents.environments.plan_path.generation import instances as plan_path_instances
from loopline.agents.environments.plan_path.players import POLICIES
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import TeamEpisode
from loopline.agents.errors import RequestFailed
from loopline.agents.records import JsonObject, Outcome, Run, Task, Trajectory
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import workflows
from loopline.agents.workflows.routing import Handoff
from loopline.bench.arms import override_setting
from loopline.bench.datasets import Item, Request
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.output import OutputDirectory
from loopline.bench.puzzles.baselines import baselines_of
from loopline.bench.puzzles.judge import PuzzlesJudge, class_of
from loopline.bench.registry import load
from loopline.bench.rescoring import rescore_all
from loopline.bench.runner import Ending
from loopline.bench.session import BenchOutcome, summary_line
from loopline.bench.taxonomy import Class
from loopline.bench.teams.findings import pass_at, pass_at_ks, success
from loopline.bench.teams.sampling import sampling
from loopline.trainers.data.held_out import require_training
from loopline.trainers.data.json_files import Unreadable
from tests.agents.conversations import a_run
from tests.agents.test_pair import ManyHost, raises
from tests.bench.benchmarks import measured
from tests.bench.command_line import bench
from tests.bench.puzzle_client import PuzzleClient, manifest, oracle

GAMES = ("plan_path", "sokoban", "sudoku", "word_problems")


@pytest.fixture(scope="module", autouse=True)
def _one_search() -> Iterator[None]:
    """The search for blind players runs once for each set of training puzzles: it takes seconds."""
    search = cache(blind.best_blind_player)

    def best(training: Sequence[blind.Instance], agent: Agent) -> blind.BlindPlayer:
        return search(tuple(training), agent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blind, "best_blind_player", best)
        yield


def wanted(
    game: str, samples: int, *, split: str = "test", data: Path | None = None, **choices: JsonValue
) -> Request:
    all_choices: JsonObject = {"game": game, **choices}
    return Request(split, samples, seed=7, data=data, choices=all_choices)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.slow
def test_the_oracle_solves_every_instance_of_every_game(tmp_path: Path, game: str) -> None:
    bench_manifest = manifest(wanted(game, 4), "pair,plan_agent_alone")
    facts = measured(tmp_path / "out", bench_manifest, PuzzleClient())
    for name, arm in facts.results["arms"].items():
        assert arm["accuracy"]["solved"]["right"] == arm["n"] == 4, name
        assert arm["classes"] == {"right": 4}
        assert arm["measures"]["turns"]["estimate"] == 1.0
    [version] = facts.results["puzzles"]["versions"]["plan_agent_alone"]
    assert version["policies"] == "plan_agent: pair v0 (played)"
    assert (version["right"], version["n"]) == (4, 4)
    line = summary_line(BenchOutcome(Ending.COMPLETE, OutputDirectory(tmp_path / "out"), facts))
    assert line["puzzles"]["game"] == game
    assert "Solved by player" in (tmp_path / "out" / "report.html").read_text()
    report = (tmp_path / "out" / "report.md").read_text()
    assert "## Solved by player" in report
    assert "| by hand: random |" in report
    assert " By hand: " in report, "what these players do"


def test_a_single_agent_arm_is_played_only_by_that_agent(tmp_path: Path) -> None:
    client = PuzzleClient(player=lambda run, handoff: f"I am {handoff.agent}")
    bench_manifest = manifest(wanted("sudoku", 3), "pair,plan_agent_alone,tool_agent_alone")
    measured(tmp_path / "out", bench_manifest, client)
    took_part = {
        trajectory.run.tags["arm"]: {step.agent for step in trajectory.steps}
        for trajectory in client.ended.values()
    }
    assert took_part == {
        "pair": {"tool_agent", "plan_agent"},
        "plan_agent_alone": {"plan_agent"},
        "tool_agent_alone": {"tool_agent"},
    }


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_run_records_its_split_so_that_no_training_uses_a_measured_puzzle(
    tmp_path: Path, split: str
) -> None:
    client = PuzzleClient()
    measured(tmp_path / "out", manifest(wanted("sudoku", 3, split=split), "pair"), client)
    assert [run.tags["split"] for run in client.runs.values()] == [split] * 3
    for run in client.runs.values():
        if split == "train":
            require_training(run)
        else:
            with pytest.raises(Unreadable, match="held out"):
                require_training(run)


def test_success_is_reported_per_policy_version(tmp_path: Path) -> None:
    """A new version is published halfway, and it knows nothing."""

    def version(run: Run) -> int:
        return 1 + (run.seed % 2)

    def player(run: Run, handoff: Handoff) -> str:
        return oracle(run, handoff) if version(run) == 1 else "?"

    client = PuzzleClient(player=player, version=version)
    facts = measured(tmp_path / "out", manifest(wanted("sudoku", 12), "plan_agent_alone"), client)
    first, second = facts.results["puzzles"]["versions"]["plan_agent_alone"]
    assert "pair v1" in first["policies"]
    assert first["estimate"] == 1.0
    assert "pair v2" in second["policies"]
    assert second["estimate"] == 0.0
    assert first["n"] + second["n"] == 12


def test_an_aborted_run_counts_for_its_team_even_before_all_agents_answered(tmp_path: Path) -> None:
    class Leaving(PuzzleClient):
        """The plan agent's answers of every second run never arrived."""

        async def wait(self, run_id: str) -> Trajectory:
            ended = await super().wait(run_id)
            if self.runs[run_id].seed % 2:
                calls = [call for call in self.ledger[run_id] if call.agent == "tool_agent"]
                self.ledger[run_id] = calls
            return ended

    facts = measured(tmp_path / "out", manifest(wanted("sudoku", 8), "pair"), Leaving())
    [version] = facts.results["puzzles"]["versions"]["pair"]
    assert version["policies"] == "plan_agent: pair v0 (played), tool_agent: pair v0 (played)"
    assert version["n"] == 8


def test_attempts_give_pass_at_k_with_intervals_over_instances(tmp_path: Path) -> None:
    """Each attempt has its own random generator: here about half of them solve."""
    client = PuzzleClient(player=lambda run, handoff: oracle(run, handoff) if run.seed % 2 else "?")
    bench_manifest = manifest(
        wanted("sudoku", 8, attempts=4), "plan_agent_alone", greedy=False, candidates=1
    )
    facts = measured(tmp_path / "out", bench_manifest, client)
    curve = facts.results["puzzles"]["pass_at_k"]["plan_agent_alone"]
    assert list(curve) == ["1", "2", "4"]
    arm = facts.results["arms"]["plan_agent_alone"]
    assert arm["n"] == 32
    assert curve["1"]["estimate"] == pytest.approx(arm["accuracy"]["solved"]["estimate"])
    assert curve["1"]["estimate"] < curve["2"]["estimate"] < curve["4"]["estimate"]
    assert {point["instances"] for point in curve.values()} == {8}
    assert any("played 4 times" in notice for notice in facts.notices)


def test_a_benchmark_of_puzzles_cannot_be_rescored_from_its_directory(tmp_path: Path) -> None:
    measured(tmp_path / "out", manifest(wanted("sudoku", 2)), PuzzleClient())
    with pytest.raises(UsageError, match="judges the actions of a run"):
        rescore_all(tmp_path / "out")


# ---- the judge ----


async def played(
    item: Item, texts: Sequence[str | Exception], *, team: str = "plan_agent"
) -> Trajectory:
    """A run of one agent on the item's instance."""
    task = item.about["task"]
    assert isinstance(task, dict)
    instance = task["instance"]
    assert isinstance(instance, dict)
    team_instance = override_setting(instance, {"team": [team]})
    run = a_run("pair", item.question, candidates=1)
    options = workflows.get("pair").check_options(run.options)
    team_task = Task(
        environment=str(task["environment"]), instance=team_instance, prompt=item.question
    )
    run = run.model_copy(update={"task": team_task, "options": options})
    script = [text if isinstance(text, Exception) else [text] for text in texts]
    return await run_locally(run, {team: ManyHost(script)})


def a_puzzle(game: str = "plan_path", **choices: JsonValue) -> Item:
    return load("puzzles", Request("test", 1, seed=7, choices={"game": game, **choices})).items[0]


def solution(item: Item) -> str:
    """The moves, which are the first part of the gold answer in the report."""
    return f"#### [{', '.join(item.gold.split(',')[0])}]"


async def test_the_run_s_own_verdict_is_ignored() -> None:
    item = a_puzzle(setting={"turns": 1})
    lost = await played(item, ["#### [oracle]"])
    won = await played(item, [solution(item)])
    assert (lost.outcome, won.outcome) == (Outcome.FAILED, Outcome.SOLVED)
    assert PuzzlesJudge().judge(lost, item).detail == lost.reason
    forged = {"outcome": Outcome.SOLVED, "team_reward": 1.0, "reason": None}
    assert not PuzzlesJudge().judge(lost.model_copy(update=forged), item).verdicts["solved"]
    denied = won.model_copy(update={"outcome": Outcome.FAILED})
    assert PuzzlesJudge().judge(denied, item).verdicts["solved"]


async def test_a_run_of_another_instance_or_with_more_turns_counts_as_unsolved() -> None:
    item, other_item = load("puzzles", wanted("plan_path", 2)).items
    easier = await played(other_item, [solution(other_item)])
    longer = await played(a_puzzle(setting={"turns": 9}), [solution(item)])
    for trajectory in (easier, longer):
        assert trajectory.outcome is Outcome.SOLVED
        judged = PuzzlesJudge().judge(trajectory, item)
        assert not judged.verdicts["solved"]
        assert judged.detail == "the run played a different instance than requested"


async def test_actions_after_the_end_do_not_solve() -> None:
    item = a_puzzle(setting={"turns": 1})
    lost = await played(item, ["#### [U]"])
    won = await played(item, [solution(item)])
    second = won.steps[0].model_copy(update={"turn": 1})
    longer = lost.model_copy(update={"steps": (*lost.steps, second)})
    judged = PuzzlesJudge().judge(longer, item)
    assert not judged.verdicts["solved"]
    assert "the episode ended" in judged.detail


async def test_an_item_that_is_not_a_puzzle_is_a_damaged_manifest() -> None:
    item = a_puzzle()
    trajectory = await played(item, [solution(item)])
    with pytest.raises(OutputError, match="its manifest is damaged"):
        PuzzlesJudge().judge(trajectory, Item("x", "?", ""))


@pytest.mark.parametrize("name", ["apply", "verify"])
async def test_an_environment_that_raises_while_judging_is_reported(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = a_puzzle()
    trajectory = await played(item, [solution(item)])
    monkeypatch.setattr(TeamEpisode, name, raises)
    with pytest.raises(OutputError, match=r"'plan_path' raised ZeroDivisionError while the judge"):
        PuzzlesJudge().judge(trajectory, item)


async def test_failures_fall_into_classes() -> None:
    grid = a_puzzle(setting={"turns": 1}, difficulty={"least_moves": 3})
    path = solution(grid)
    cases: list[tuple[str | Exception, Class]] = [
        (path, Class.RIGHT),
        ("Hm.", Class.UNREADABLE),
        ("#### [" + ", ".join("U" * 11) + "]", Class.ILLEGAL),
        (f"{path.rpartition(', ')[0]}]", Class.OUT_OF_TURNS),
        (RequestFailed("auth", "no key"), Class.ERROR),
    ]
    for text, expected in cases:
        trajectory = await played(grid, [text])
        judged = PuzzlesJudge().judge(trajectory, grid)
        right = judged.verdicts["solved"]
        assert class_of(trajectory.outcome, right, judged.signals) is expected, text


async def test_a_wrongly_answered_word_problem_is_not_out_of_turns() -> None:
    item = a_puzzle("word_problems")
    for text, expected in (
        ("#### [answer(1)]", Class.WRONG_ANSWER),
        ("#### [keep(r1), answer(1)]", Class.ILLEGAL),
        (f"#### [answer({item.gold})]", Class.RIGHT),
    ):
        trajectory = await played(item, [text])
        judged = PuzzlesJudge().judge(trajectory, item)
        right = judged.verdicts["solved"]
        assert class_of(trajectory.outcome, right, judged.signals) is expected, text


async def test_agreement_and_refusals_are_measured_on_the_recorded_actions() -> None:
    item = a_puzzle(setting={"turns": 2}, difficulty={"least_moves": 3})
    path = solution(item)
    task = item.about["task"]
    assert isinstance(task, dict)
    run = a_run("pair", "puzzle", candidates=1).model_copy(
        update={"task": Task.model_validate({**task, "prompt": "puzzle"})}
    )
    first = path.removeprefix("#### [")[0]
    hosts = {
        "tool_agent": ManyHost([[f"#### [step({first})]"], ["no calls"]]),
        "plan_agent": ManyHost([[f"#### [{first}]"], ["?"]]),
    }
    judged = PuzzlesJudge().judge(await run_locally(run, hosts), item)
    assert judged.measures == {"turns": 2.0, "refused": 0.5, "agreement": 1.0}


# ---- instances ----


@pytest.mark.parametrize("game", GAMES)
def test_the_same_seed_gives_the_same_held_out_instances(game: str) -> None:
    few, more = (load("puzzles", wanted(game, n)).items for n in (3, 6))
    assert more[:3] == few
    assert len({item.id for item in more}) == 6
    assert {str(item.about["split"]) for item in more} == {"test"}
    train = load("puzzles", wanted(game, 6, split="train")).items
    tasks = {str(item.about["task"]) for item in train}
    assert not tasks & {str(item.about["task"]) for item in more}


def test_size_difficulty_and_setting_determine_the_instances() -> None:
    request = wanted("sokoban", 2, size=7, difficulty={"boxes": 2}, setting={"turns": 9})
    dataset = load("puzzles", request)
    assert dataset.source == "sokoban 7 x 7, generated from seed 7"
    for item in dataset.items:
        text = str(item.about["task"])
        assert "'turns': 9" in text
        assert text.count("$") + text.count("*") == 2


def test_every_attempt_is_a_separate_item_next_to_the_others_of_its_instance() -> None:
    items = load("puzzles", wanted("sudoku", 2, attempts=2)).items
    assert [item.id.rpartition("#")[2] for item in items] == ["1", "2", "1", "2"]
    assert items[0].about == items[1].about


def test_the_handwritten_players_rank_in_order_on_the_same_instances() -> None:
    dataset = load("puzzles", wanted("plan_path", 40))
    baselines = dataset.reference["baselines"]
    assert isinstance(baselines, dict)
    assert list(baselines) == [*POLICIES, "blind plan agent", "blind tool agent"]
    figures = [int(str(baselines[name])) for name in POLICIES]
    assert figures == sorted(figures)
    assert figures[-1] == 40
    levels = PlanPathDifficulty()
    assert baselines_of(PLAN_PATH, levels, plan_path_instances(Split.TEST, 7, 40), 7) == baselines


@pytest.mark.parametrize("game", GAMES)
def test_every_game_has_handwritten_players_and_random_play_is_not_the_best(game: str) -> None:
    baselines = load("puzzles", wanted(game, 20)).reference["baselines"]
    assert isinstance(baselines, dict)
    solved = {name: int(str(value)) for name, value in baselines.items()}
    assert len(solved) >= 2
    assert 0 <= solved["random"] < max(solved.values()) <= 20


@pytest.mark.parametrize("game", ["plan_path", "sokoban", "sudoku"])
@pytest.mark.slow
def test_tools_without_a_team_solve_little_unless_they_search_far_ahead(
    game: str,
) -> None:
    far_looking: JsonObject = {"search": 8}
    defaults, far = (
        load("puzzles", wanted(game, 20, setting=setting)).reference["baselines"]
        for setting in ({}, far_looking)
    )
    assert isinstance(defaults, dict)
    assert isinstance(far, dict)
    assert int(str(far["blind tool agent"])) >= 15
    assert int(str(defaults["blind tool agent"])) <= 0.8 * 20


def test_levels_with_several_boxes_have_no_handwritten_players() -> None:
    several = wanted("sokoban", 2, size=7, difficulty={"boxes": 2})
    assert load("puzzles", several).reference["baselines"] == {}


# ---- figures ----


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_is_the_share_of_draws_of_k_with_a_solution(
    case: tuple[int, int],
) -> None:
    n, solved = case
    attempts = [at < solved for at in range(n)]
    for k in range(1, n + 1):
        draws = [any(draw) for draw in combinations(attempts, k)]
        assert pass_at(k, n, solved) == pytest.approx(sum(draws) / len(draws))


def test_k_climbs_by_powers_of_two_to_the_number_of_attempts() -> None:
    assert [pass_at_ks(n) for n in (1, 2, 5, 8)] == [[1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8]]


def test_attempts_on_one_instance_are_not_independent_evidence() -> None:
    """Four instances with equal outcomes are evidence from four runs, not from sixteen."""
    once = success({str(at): [True] for at in range(4)}, seed=1)
    often = success({str(at): [True] * 4 for at in range(4)}, seed=1)
    assert (often["low"], often["n"]) == (once["low"], 16)
    mixed = success({str(at): [at % 2 == 0] * 50 for at in range(8)}, seed=1)
    assert mixed["estimate"] == 0.5
    assert mixed["high"] - mixed["low"] > 0.4


# ---- the command line ----


def test_greedy_is_the_default_and_any_sampling_option_means_sampling() -> None:
    assert sampling(None, None, None, None) == {"greedy": True}
    drawn = {"greedy": False, "adaptive": None}
    assert sampling(None, None, None, 4) == {**drawn, "candidates": 1, "temperature": 1.0}
    assert sampling(False, 8, 0.5, None) == {**drawn, "candidates": 8, "temperature": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--game", "chess"], "--game"),
        (["--size", "3"], "--size 3"),
        (["--game", "sudoku", "--size", "5"], "--size 5"),
        (["--game", "word_problems", "--size", "5"], "its instances have no sides"),
        (["--game", "word_problems", "--difficulty", "equations=[0,2]"], "from 1 to 7"),
        (["--setting", "turns=0"], "--setting turns"),
        (["--setting", "turn=2"], "--setting turn"),
        (["--setting", "turns"], "is not NAME=VALUE"),
        (["--difficulty", "boxes=2"], "--difficulty boxes"),
        (["--setting", 'team=["plan_agent"]'], "choose the players with --arms"),
        (["--split", "dev"], "no split 'dev'"),
        (["--split", "boxoban"], "no split 'boxoban'; there are: train"),
        (["--game", "sokoban", "--split", "boxoban", "--size", "8"], "leave --size"),
        (["--game", "sokoban", "--split", "boxoban/../x", "--data", "."], "a split is boxoban"),
        (["--split", "test", "--data", "."], "--data has no effect"),
        (["--samples", "0"], "--samples must lie between"),
        (["--samples", "10000", "--attempts", "256"], "more than 100,000 runs"),
        (["--attempts", "0"], "--attempts"),
        (["--arms", "umi"], "there is no arm 'umi'"),
        (["--greedy", "--candidates", "4"], "--greedy samples nothing"),
        (["--candidates", "0"], "'candidates'"),
        (["--temperature", "0"], "'temperature'"),
        (["--run-seconds", "0"], "--run-seconds"),
    ],
)
def test_unplayable_options_are_reported_before_a_deployment_is_needed(
    arguments: list[str], message: str
) -> None:
    process = bench("puzzles", *arguments)
    assert process.returncode == 2
    assert message in process.stderr
