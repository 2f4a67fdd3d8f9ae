"""The success of players in the simulated worlds that never read the instruction."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from loopline import workers
from loopline.agents.environments.api_worlds import HELD_OUT, Instance, Split, instances
from loopline.bench.datasets import Request
from loopline.bench.tools.baselines import ANSWERS, GIVEN, Player, best_of, solved_by_players
from tests.bench.benchmarks import measured
from tests.bench.tool_client import manifest, oracle_client

COUNT = 400
PASTES = ("the last observation", "all observations")
CLAIMED = (Split.UNSEEN_WORLDS, Split.UNSEEN_WORDINGS, Split.UNSEEN_COMBINATIONS)
"""The shipped team does not know unseen APIs: there it does no better than giving up."""


@functools.cache
def sample(split: Split) -> list[Instance]:
    return instances(split, 900, COUNT)


@functools.cache
def solved(split: Split) -> dict[Player, int]:
    return solved_by_players(sample(split))


def share(split: Split, player: Player) -> float:
    return solved(split)[player] / COUNT


def best(*, with_calls: bool) -> Player:
    """Players found with instructions of the train split."""
    return best_of(solved(Split.TRAIN), is_given=with_calls)


def trained(split: Split) -> float:
    """The shipped team's success on the same instructions."""
    card = Path(workers.__path__[0]) / "micro_models" / "umi" / "solved.json"
    outcomes = json.loads(card.read_text())[split]["outcomes"]
    return outcomes[:COUNT].count("1") / COUNT


def asking_nothing(split: Split) -> float:
    """The share of solvable instructions that ask for no fact."""
    oracles = [oracle.oracle for oracle in sample(split)]
    return sum(oracle.answer is not None and not oracle.facts for oracle in oracles) / COUNT


@pytest.mark.parametrize("split", CLAIMED)
def test_the_best_blind_player_is_far_below_the_trained_team(split: Split) -> None:
    blind = share(split, best(with_calls=False))
    assert blind < 0.15
    assert trained(split) - blind > 0.6


@pytest.mark.parametrize("split", HELD_OUT)
def test_a_pasted_observation_solves_nothing_even_after_the_oracle_s_calls(
    split: Split,
) -> None:
    assert [share(split, (GIVEN, says)) for says in PASTES] == [0.0, 0.0]


@pytest.mark.parametrize("split", HELD_OUT)
def test_listing_all_values_solves_few_instructions_that_ask_for_a_fact(split: Split) -> None:
    """Listing all values also succeeds if only the requested fact was observed."""
    assert share(split, (GIVEN, "all values")) < asking_nothing(split) + 0.1


@pytest.mark.parametrize("split", HELD_OUT)
def test_even_after_the_oracle_s_calls_the_best_blind_answer_fails_often(split: Split) -> None:
    assert share(split, best(with_calls=True)) < 0.85


@pytest.mark.parametrize("split", HELD_OUT)
def test_an_empty_answer_solves_exactly_the_instructions_that_ask_for_no_fact(split: Split) -> None:
    assert share(split, (GIVEN, "'Done.'")) == asking_nothing(split) < 0.36
    assert share(split, (GIVEN, "the instruction")) == asking_nothing(split)


def test_every_report_format_shows_blind_figures_next_to_the_team_s(tmp_path: Path) -> None:
    run_manifest = manifest("worlds", "umi", Request("unseen_worlds", 12, seed=7))
    facts = measured(tmp_path / "out", run_manifest, oracle_client("unseen_worlds", 12))
    baselines = facts.results["worlds"]["baselines"]
    assert baselines["the oracle's calls; all observations"]["estimate"] == 0.0
    assert len(baselines) == len(ANSWERS) + 1
    assert {baseline["n"] for baseline in baselines.values()} == {12}
    for form in ("report.md", "report.html"):
        report = (tmp_path / "out" / form).read_text()
        assert "by hand: the oracle" in report
        assert "none reads its instruction" in report
