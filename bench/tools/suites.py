"""The suites of `bench tools`: where their items come from, and who judges them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.agents.records import JsonObject
from loopline.bench.judgement import Judge

if TYPE_CHECKING:
    from loopline.bench.datasets import Dataset, Request


@dataclass(frozen=True)
class Suite:
    """One suite. What it loads and judges is imported when it is used."""

    load: Callable[[Request], Dataset]
    judge: Callable[[JsonObject], Judge]
    """From a data set's `reference`."""
    checkers: dict[str, str]
    """Checker → its rule; the primary one first."""
    default_split: str


def _worlds(request: Request) -> Dataset:
    from loopline.bench.tools import worlds

    return worlds.load(request)


def _judge_worlds(reference: JsonObject) -> Judge:
    from loopline.bench.tools import worlds

    return worlds.WorldsJudge()


def _tool_steps(request: Request) -> Dataset:
    from loopline.bench.tools import steps

    return steps.load(request)


def _judge_steps(reference: JsonObject) -> Judge:
    from loopline.bench.tools import steps

    return steps.StepsJudge()


def _bfcl(request: Request) -> Dataset:
    from loopline.bench.tools import bfcl

    return bfcl.load(request)


def _judge_bfcl(reference: JsonObject) -> Judge:
    from loopline.bench.tools import bfcl

    return bfcl.BfclJudge()


def _apibench(request: Request) -> Dataset:
    from loopline.bench.tools import apibench

    return apibench.load(request)


def _judge_apibench(reference: JsonObject) -> Judge:
    from loopline.bench.tools import apibench

    return apibench.ApiBenchJudge(reference)


SUITES: dict[str, Suite] = {
    "worlds": Suite(
        load=_worlds,
        judge=_judge_worlds,
        checkers={
            "solved": "the world is as the instruction wants it, and the answer says the facts "
            "that were asked for and no others; giving up is right where there is no way"
        },
        default_split="unseen_worlds",
    ),
    "tool_steps": Suite(
        load=_tool_steps,
        judge=_judge_steps,
        checkers={
            "step": "the reference's decision, and where it calls, its tool with its arguments",
            "plan": "the reference's decision: call, finish or give up (Plan ACC)",
        },
        default_split="unseen_worlds",
    ),
    "bfcl": Suite(
        load=_bfcl,
        judge=_judge_bfcl,
        checkers={"ast": "BFCL's comparison of the calls' syntax trees with the possible answers"},
        default_split="all",
    ),
    "apibench": Suite(
        load=_apibench,
        judge=_judge_apibench,
        checkers={"ast": "the call is an API of the hub, and one for the instruction's domain"},
        default_split="all",
    ),
}
