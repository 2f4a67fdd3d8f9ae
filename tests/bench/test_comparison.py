"""`bench compare` of teams: under the same rules, and each question counted once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from loopline.agents.records import Run
from loopline.agents.workflows.routing import Handoff
from loopline.bench.arms import override_setting
from loopline.bench.comparison import compare_paths
from loopline.bench.datasets import Request
from loopline.bench.errors import UsageError
from loopline.bench.output import Manifest, ManifestItem
from loopline.bench.statistics import bootstrap_difference
from tests.bench.benchmarks import measured
from tests.bench.command_line import bench
from tests.bench.puzzle_client import Player, PuzzleClient, manifest, oracle

ARM = "plan_agent_alone"
ATTEMPTS = 4


def puzzles(samples: int, **choices: JsonValue) -> Manifest:
    request = Request("test", samples, seed=7, choices={"game": "plan_path", "size": 5, **choices})
    if "attempts" in choices:
        return manifest(request, ARM, greedy=False, candidates=1)
    return manifest(request, ARM)


def played(path: Path, manifest: Manifest, player: Player = oracle) -> Path:
    measured(path, manifest, PuzzleClient(player=player))
    return path


def with_team(item: ManifestItem, team: list[JsonValue]) -> ManifestItem:
    assert item.task is not None
    environment, instance = item.task
    task: JsonValue = {
        "environment": environment,
        "instance": override_setting(instance, {"team": team}),
    }
    return item.model_copy(update={"about": {**item.about, "task": task}})


@pytest.mark.slow
def test_a_question_played_by_other_rules_is_not_compared(tmp_path: Path) -> None:
    few = played(tmp_path / "few", puzzles(2, setting={"turns": 4}))
    many = played(tmp_path / "many", puzzles(2, setting={"turns": 40}))
    with pytest.raises(
        UsageError, match=r"was played with different rules .*: setting\.turns \(4 → 40\)"
    ):
        compare_paths(few, many)


def test_a_different_team_does_not_count_as_a_different_rule(tmp_path: Path) -> None:
    manifest = puzzles(2)
    alone = [with_team(item, ["plan_agent"]) for item in manifest.items]
    directory = played(tmp_path / "other", manifest.model_copy(update={"items": tuple(alone)}))
    (comparison,) = compare_paths(played(tmp_path / "one", manifest), directory).arms
    assert comparison.questions == 2


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A solves every attempt; B solves all attempts at one half of the puzzles and none at the
    others."""
    folder, manifest = tmp_path_factory.mktemp("attempts"), puzzles(8, attempts=ATTEMPTS)
    solved = {item.id for item in manifest.items[: len(manifest.items) // 2]}

    def half(run: Run, handoff: Handoff) -> str:
        return oracle(run, handoff) if run.tags["item"] in solved else "?"

    return played(folder / "a", manifest), played(folder / "b", manifest, half)


def test_attempts_at_one_puzzle_give_one_pair_of_means(attempts: tuple[Path, Path]) -> None:
    (comparison,) = compare_paths(*attempts).arms
    over_puzzles = bootstrap_difference([1.0] * 8, [1.0] * 4 + [0.0] * 4, seed=7)
    assert (comparison.questions, comparison.attempts_a) == (8, 8 * ATTEMPTS)
    assert comparison.accuracy == over_puzzles


def test_mcnemar_s_test_is_not_applied_to_attempts(attempts: tuple[Path, Path]) -> None:
    (line,) = json.loads(bench("compare", *map(str, attempts), "--json").stdout)
    of_pairs = ("p", "both", "only_a", "only_b", "neither", "items_only_a", "items_only_b")
    assert [line[name] for name in of_pairs] == [None] * len(of_pairs)


def test_the_table_of_attempts_explains_why_it_has_no_test(attempts: tuple[Path, Path]) -> None:
    output = bench("compare", *map(str, attempts)).stdout
    rows = {line.rsplit(maxsplit=1)[0]: line.split()[-1] for line in output.splitlines() if line}
    assert (rows["questions"], rows["McNemar p"], rows["only A right"]) == ("8", "–", "–")
    assert "Questions were asked several times" in output
