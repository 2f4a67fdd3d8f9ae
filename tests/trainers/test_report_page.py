"""The page at the end of a training."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.trainers.core.report_page import share
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.page import render
from loopline.trainers.grpo.pipeline import train
from loopline.trainers.grpo.report import PolicyStep, Report, StepFacts, summaries
from tests.runtime.parsed_page import ParsedPage

from .grpo.recorded import record
from .grpo.tiny_grpo import data_in, load, rollouts, settings_of, write_base

EVIL = "</style><script>alert(1)</script>"


def a_step(**changes: object) -> PolicyStep:
    fields: dict[str, object] = {
        "groups": 3, "zero_variance": 1, "reward": 0.5, "loss": -0.01, "gradient_norm": 0.4,
        "divergence": None, "entropy": 1.0, "clipped": 0.02, "effective_samples": 0.9,
        "ratios": (0.5, 0.8, 1.0, 1.2, 1.5), "kl_to_sampler": 0.001, "ages": {0: 2, 4: 1},
        "truncated": 0.0, "learned": 100, "tokens": 400, "seconds": 1.0,
    }  # fmt: skip
    return PolicyStep.model_validate({**fields, **changes})


def a_report(*steps: PolicyStep, stale: int = 0, **changes: object) -> Report:
    fields: dict[str, object] = {
        "settings": settings_of(policies="per-role", learning_rate=3e-4),
        "version": len(steps), "runs": 4, "groups": 12, "zero_variance": 2, "stale": 0,
        "skipped": {}, "seconds": 20.0, "peak_memory_mb": 100.0, "parameters": 1_000,
        "trained_parameters": 1_000,
        "steps": tuple(
            StepFacts(version=at, stale=stale, policies={"coder": step, "tester": step})
            for at, step in enumerate(steps)
        ),
    }  # fmt: skip
    return Report.model_validate({**fields, **changes})


def headings(page: str) -> list[str]:
    """The headings of the plots."""
    return [attributes["aria-label"] for attributes in ParsedPage(page).of("svg", "plot")]


def test_a_training_ends_with_a_page_of_its_curves(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    asyncio.run(record(tmp_path / "store", rollouts(load(base), 0, count=4, agents=("coder",))))
    report = train(
        settings_of(batch=2, objective={"kl": 0.01}), data_in(tmp_path / "store", load(base)),
        load(base), tmp_path / "out",
    )  # fmt: skip
    page = (tmp_path / "out" / "report.html").read_text()
    assert page == render(report)
    ParsedPage(page).require_harmless()
    assert {
        "Reward", "Loss", "Zero-variance groups", "Effective sample size", "Clipped tokens",
        "KL of sampler to trainer", "KL to the reference", "Staleness", "Where the time went",
    } <= set(headings(page))  # fmt: skip
    assert "version 0 → 2 of base in 2 steps" in page
    (tmp_path / "out/settings.json").write_text("{}")
    with pytest.raises(TrainingError):
        train(settings_of(), data_in(tmp_path / "store", load(base)), load(base), tmp_path / "out")
    assert (tmp_path / "out" / "report.html").read_text() == page


def test_each_policy_has_a_line_and_each_step_a_point() -> None:
    page = render(a_report(a_step(), a_step(reward=0.75), a_step(reward=0.8)))
    assert "coder: 0.75 at step 2" in page
    assert "tester: 0.75 at step 2" in page
    assert "coder: 25 % at step 1" in page, "zero-variance share"
    assert page.count('<path d="M') >= 2 * 10


def test_groups_of_equal_rewards_count_for_a_policy_that_skips_a_step() -> None:
    """For facts from before this count existed, the policies' own steps supply it."""
    summary = a_step(groups=2, zero_variance=0)
    step_facts = StepFacts(
        version=0, stale=0, zero_variance={"tester": 6}, policies={"coder": summary}
    )
    two = StepFacts(version=1, stale=0, policies={"coder": summary, "tester": summary})
    assert step_facts.curves()["tester"] == {"zero-variance share": 1.0}
    assert step_facts.curves()["coder"] == summary.curves()
    by_policy = summaries([step_facts, two])
    assert {name: summary.zero_variance_share for name, summary in by_policy.items()} == {
        "coder": 0.0, "tester": 0.75,
    }  # fmt: skip
    page = render(a_report(steps=(step_facts, two)))
    assert "tester: 100 % at step 1" in page
    assert "75 %" in ParsedPage(page).text
    before = a_report(a_step(zero_variance=1)).model_dump()
    for step in before["steps"]:
        del step["zero_variance"], step["truncated"]
    assert summaries(Report.model_validate(before).steps)["coder"].zero_variance_share == 0.25


def test_bands_show_the_quantiles_of_ratios_and_the_oldest_groups() -> None:
    page = render(a_report(a_step(), a_step()))
    assert page.count("spread") >= 4
    assert "coder: 1.33 at step 1" in page, "mean age of (0, 0, 4)"


def test_the_page_omits_charts_without_data() -> None:
    assert "KL to the reference" not in headings(render(a_report(a_step(), a_step())))
    assert "Groups too old" not in headings(render(a_report(a_step(), a_step())))
    assert "Groups too old" in headings(render(a_report(a_step(), a_step(), stale=2)))


def test_non_finite_numbers_do_not_break_the_page() -> None:
    page = render(a_report(a_step(loss=float("nan")), a_step(loss=float("inf"), reward=0.6)))
    ParsedPage(page).require_harmless()
    assert "Loss" not in headings(page)
    assert "Reward" in headings(page)


def test_a_training_without_a_step_has_a_page() -> None:
    assert "No step was taken." in render(a_report(seconds=0.0))


def test_names_and_reasons_are_escaped() -> None:
    step = StepFacts(version=0, stale=0, policies={EVIL: a_step()})
    settings = settings_of(base=EVIL)
    page = render(a_report(settings=settings, steps=(step,), skipped={EVIL: 3}))
    parsed = ParsedPage(page)
    parsed.require_harmless()
    assert parsed.text.count(EVIL) >= 5


def test_all_settings_are_on_the_page_and_the_time_adds_up() -> None:
    parsed = ParsedPage(render(a_report(a_step(), a_step(seconds=4.0))))
    assert (
        "20.0 seconds: learning of coder 5.0 s (25 %), learning of tester 5.0 s (25 %), "
        "between steps 10.0 s (50 %)."
    ) in parsed.text
    settings = json.loads(settings_of().model_dump_json())
    for name in settings:
        assert name in parsed.text
    assert "objective.clip_high0.28" in parsed.text
    assert "learning_rate0.0003" in parsed.text


def test_shares_are_percentages() -> None:
    assert [share(value) for value in (0.0, 0.125, 1.0)] == ["0 %", "12.5 %", "100 %"]


def test_a_share_of_all_but_one_is_not_rounded_to_all() -> None:
    assert [share(value) for value in (0.9994, 0.9996, 0.99996, 1 - 2**-53)] == [
        "99.9 %", "99.96 %", "> 99.99 %", "> 99.99 %",
    ]  # fmt: skip


@given(st.floats(0.0, 1.0))
def test_only_one_is_shown_as_100_percent_and_only_zero_as_0_percent(value: float) -> None:
    assert (share(value) == "100 %") == (value == 1.0)
    assert (share(value) == "0 %") == (value == 0.0)
