"""The reports of a loop: its rounds, its table and its page."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from loopline.trainers.grpo import command
from loopline.trainers.grpo.loop.command import round_line, table
from loopline.trainers.grpo.loop.page import render
from loopline.trainers.grpo.loop.report import LoopReport, RoundFacts, Seconds, last_line
from loopline.trainers.grpo.report import Report, StepFacts
from tests.runtime.parsed_page import ParsedPage
from tests.trainers.test_report_page import a_step

from .test_loop_parts import settings


def a_round(number: int = 1, **changes: object) -> RoundFacts:
    fields: dict[str, object] = {
        "round": number, "served": {"pair/tool": 119, "pair/plan": 120}, "puzzles": 1_024,
        "waves": 2, "runs": 1_000, "solved": 300, "broken": 0, "groups": 12_345, "trained": 9_000,
        "zero_variance": 3_000, "stale": 0, "foreign": 0, "left_out": {}, "agreement": 0.995,
        "step": StepFacts(version=0, stale=0, policies={"shared": a_step(loss=-0.1234)}),
        "seconds": Seconds(rollout=1234.5, wait=1.5, train=987.6, publish=12.3),
    }  # fmt: skip
    return RoundFacts.model_validate({**fields, **changes})


def printed(table: Table) -> list[list[str]]:
    """The words of each line, on a terminal of 80 columns."""
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(table)
    return [line.split() for line in out.getvalue().splitlines()]


def a_report(*rounds: RoundFacts) -> LoopReport:
    return LoopReport(
        settings=settings(), version=len(rounds), served={"pair/tool": 121, "pair/plan": 122},
        rounds=rounds, closing=Seconds(), peak_memory_mb=100.0, parameters=1_000,
        trained_parameters=10,
    )  # fmt: skip


def test_an_aborted_run_counts_as_unsolved_and_stays_among_the_runs() -> None:
    """Otherwise a policy whose answers run into the deadline would show a rising curve."""
    slow = a_round(broken=600, left_out={"run that ended by deadline": 600})
    assert slow.success == 0.3
    assert slow.curves()["solved"] == 0.3
    assert slow.curves()["broken off"] == 0.6
    summary = last_line(a_report(a_round(solved=500), slow))
    assert (summary["success"], summary["runs"], summary["broken_runs"]) == ([0.5, 0.3], 2_000, 600)


def test_the_line_of_a_round_shows_how_many_runs_aborted() -> None:
    some = round_line(a_round(broken=600), 2)
    assert "solved 30.0% of 1,000 runs, 600 of them aborted  groups" in some
    assert "solved 30.0% of 1,000 runs  groups" in round_line(a_round(2), 2)


def test_the_page_shows_what_was_left_out_and_why() -> None:
    first = a_round(broken=3, stale=4, left_out={"run that ended by deadline": 3})
    second = a_round(
        2, broken=2, foreign=7,
        left_out={"run that ended by deadline": 2, "no group of <4>": 1},
    )  # fmt: skip
    parsed = ParsedPage(render(a_report(first, second)))
    parsed.require_harmless()
    assert "2,000 runs on the bus (5 aborted)" in parsed.text
    _, _, section = parsed.text.partition("Left out")
    assert "run that ended by deadline5" in section
    assert "no group of <4>1" in section
    assert "group that was too old4" in section
    assert "group sampled by weights that the loop has not published7" in section


def test_the_page_of_a_loop_that_left_nothing_out_has_no_such_table() -> None:
    text = ParsedPage(render(a_report(a_round()))).text
    assert "Left out" not in text
    assert "aborted)" not in text


def test_a_round_fits_one_line_of_80_columns_with_all_of_its_numbers() -> None:
    rounds = [a_round(98, broken=999), a_round(99, agreement=None, solved=1_000)]
    *_, first, second = printed(table(a_report(*rounds)))
    assert first == [
        "98", "119,", "120", "1,024", "30.0%", "999", "12,345", "25%", "0", "100%", "0.500",
        "-0.1234",
    ]  # fmt: skip
    assert second == [
        "99", "119,", "120", "1,024", "100.0%", "0", "12,345", "25%", "0", "0.500", "-0.1234",
    ]  # fmt: skip


def test_a_training_from_the_store_shows_a_complete_column_for_each_policy() -> None:
    step = a_step(groups=12_345, learned=12_345_678, tokens=1_234_567, loss=-0.1234)
    names = ("plan_agent", "tool_agent", "third_agent")
    report = Report(
        settings=settings().grpo, version=1, runs=4, groups=12, zero_variance=2, stale=0,
        skipped={}, seconds=20.0, peak_memory_mb=100.0, parameters=1_000, trained_parameters=1_000,
        steps=(StepFacts(version=0, stale=0, policies=dict.fromkeys(names, step)),),
    )  # fmt: skip
    lines = printed(command.table(report))
    assert lines[0] == ["policy", *names]
    assert ["loss", *["−0.1234", "→", "−0.1234"] * 3] in lines
    assert ["learned", "tokens", *["12,345,678"] * 3] in lines
    assert lines[-1] == ["tokens/s", *["1,234,567"] * 3]
