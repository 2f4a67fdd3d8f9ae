"""A seed means the same instance in every version: measured results can be measured again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from loopline.agents.environments import api_worlds, word_problems
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.word_problem_team.generation import (
    stream as word_problem_team_stream,
)

SEEDS = 10_000
FEW_SEEDS = 500


def problem(seed: int) -> Any:
    splits = tuple(word_problems.Split)
    return asdict(next(word_problems.stream(splits[seed % len(splits)], seed)))


def team_problem(seed: int) -> Any:
    splits = tuple(Split)
    return next(word_problem_team_stream(splits[seed % len(splits)], seed)).task.instance


def instruction(seed: int) -> Any:
    splits = tuple(api_worlds.Split)
    instance = next(api_worlds.stream(splits[seed % len(splits)], seed))
    oracle = instance.oracle
    return {
        "task": instance.task.model_dump(
            mode="json", include={"environment", "instance", "prompt"}
        ),
        "split": instance.split,
        "oracle": [
            [step.rationale, step.call.model_dump(mode="json"), step.observation]
            for step in oracle.steps
        ],
        "end": [oracle.rationale, oracle.answer, oracle.facts, oracle.wrong],
    }


def fingerprint(generator: Callable[[int], Any], seeds: int) -> str:
    """SHA-256 of the instances as canonical JSON, one per line."""
    return hashlib.sha256("\n".join(lines(generator, seeds)).encode()).hexdigest()


def lines(generator: Callable[[int], Any], seeds: int) -> Iterator[str]:
    for seed in range(seeds):
        yield json.dumps(generator(seed), sort_keys=True, ensure_ascii=False)


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        (problem, "0f9380fb55086504376e53b4a091468abc80a5949cb515a7a8a76a76cc182f42"),
        (team_problem, "defc1a28a3c4deb29434d598ae7b75dcca81573c2519cb8dcf6c0f5dc979a47e"),
        (instruction, "d9e0debc400c76ed40921538203a6134b75f2c87851fc4060ccd4d61527b0a53"),
    ],
)
def test_the_same_seeds_give_the_same_instances(
    generator: Callable[[int], Any], expected: str
) -> None:
    assert fingerprint(generator, FEW_SEEDS) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        (problem, "a32d7ff1b6d4003b9b54936adde75cdc9162888ee817b2690ba815ff3ec782de"),
        (team_problem, "8b4a99cc9def944ae3e93c10df6ec3becbde39d47d5433c1020ae8f5d475d9f4"),
        (instruction, "23bf7f76714f5642251832cd067722a286d12156e0c0e52e9580eb2206cb4d1b"),
    ],
)
def test_ten_thousand_seeds_give_the_same_instances(
    generator: Callable[[int], Any], expected: str
) -> None:
    assert fingerprint(generator, SEEDS) == expected
