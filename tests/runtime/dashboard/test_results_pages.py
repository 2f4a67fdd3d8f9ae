"""Benchmarks, trainings and costs on the dashboard, in Chromium."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import time

import pytest
from playwright.sync_api import Page, expect

from tests.runtime.conftest import until
from tests.runtime.dashboard.conftest import Dashboard
from tests.runtime.dashboard.written import draw


def test_benchmarks_are_listed_with_a_chart_over_time(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}/benchmarks")
    row = page.locator("tr", has_text="sums-0").first
    expect(row).to_contain_text("7/8")
    expect(row).to_contain_text("87.5 %")
    chart = page.locator("[data-chart]").first
    chart.focus()
    page.keyboard.press("End")
    expect(chart.get_by_role("status")).to_contain_text("router: 62.5 % at time (UTC) 11-24")


def test_two_benchmarks_are_compared_question_by_question(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}/benchmarks")
    page.get_by_label("Compare").select_option("sums-0")
    page.get_by_label("with").select_option("sums-1")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("tbody tr", has_text="router")).to_contain_text("+25.0")
    page.get_by_text("questions that differ").first.click()
    expect(page.locator("details").first).to_contain_text("Only A is right")


def test_a_comparison_of_different_questions_is_refused_with_the_reason(
    dashboard: Dashboard,
) -> None:
    folder = shutil.copytree(dashboard.results / "sums-0", dashboard.results / "other")
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        for item in manifest["items"]:
            item["question"] += " Really?"
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with dashboard.signed_in() as client:
            answer = client.get("/benchmarks/compare?a=sums-0&b=other")
        assert answer.status_code == 400
        assert "is not the same question" in answer.text
    finally:
        shutil.rmtree(folder)


def test_the_report_of_a_benchmark_is_sandboxed_from_the_dashboard(dashboard: Dashboard) -> None:
    with dashboard.signed_in() as client:
        answer = client.get("/benchmarks/report?folder=sums-0")
        assert "Sums" in answer.text
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox")
        assert "allow-same-origin" not in policy
        for wrong in ("..", "sums-0/..", "/etc", "taught"):
            assert client.get("/benchmarks/report", params={"folder": wrong}).status_code == 400


def test_a_damaged_benchmark_is_reported_and_hides_no_other(dashboard: Dashboard) -> None:
    folder = dashboard.results / "damaged"
    folder.mkdir()
    try:
        (folder / "manifest.json").write_text('{"benchmark": 1')
        with dashboard.signed_in() as client:
            text = client.get("/benchmarks").text
        assert "JSONDecodeError" in text
        assert "sums-1" in text
    finally:
        shutil.rmtree(folder)


def test_trainings_share_a_smoothed_chart_that_is_read_with_the_keyboard(
    page: Page, dashboard: Dashboard
) -> None:
    page.goto(f"{dashboard.url}/trainings")
    for name in ("taught", "grid/seed-1"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_label("Smoothing").select_option("0.9")
    page.get_by_role("button", name="Draw").click()
    chart = page.get_by_role("figure", name="loss over steps")
    expect(chart.locator("path.curve")).to_have_count(2)
    expect(chart.locator("path.spread")).to_have_count(2)
    chart.focus()
    page.keyboard.press("Home")
    readout = chart.get_by_role("status")
    for name in ("taught shared", "grid/seed-1 shared"):
        expect(readout).to_contain_text(re.compile(rf"{name}: \S+ at step 2"))
    before = readout.text_content()
    page.keyboard.press("ArrowRight")
    assert readout.text_content() != before
    chart.locator("svg").hover(position={"x": 300, "y": 100})
    assert readout.text_content() != before


def test_curves_grow_on_an_open_page_which_keeps_its_focus_and_readouts(
    page: Page, dashboard: Dashboard
) -> None:
    training = dashboard.results / "going-on"
    draw(training / "curves", range(1, 3))
    try:
        page.goto(f"{dashboard.url}/trainings?run=going-on")
        page.evaluate("document.body.dataset.same = 'yes'")
        losses = page.get_by_role("figure", name="loss over steps")
        rewards = page.get_by_role("figure", name="reward over steps")
        losses.focus()
        page.keyboard.press("Home")
        rewards.focus()
        page.keyboard.press("End")
        expect(rewards.get_by_role("status")).to_contain_text("at step 2")
        draw(training / "curves", range(3, 6))
        expect(losses.locator("circle")).to_have_count(5, timeout=20_000)
        expect(losses.get_by_role("status")).to_contain_text("at step 1")
        expect(rewards.get_by_role("status")).to_contain_text("at step 5")
        expect(rewards).to_be_focused()
        assert page.evaluate("document.body.dataset.same") == "yes", "the page is the same one"
    finally:
        shutil.rmtree(training)


def test_curves_that_have_not_grown_are_not_sent_again(dashboard: Dashboard) -> None:
    training = dashboard.results / "at-rest"
    draw(training / "curves", range(1, 3))
    long_ago = time.time() - 3600
    for path in (training / "curves").iterdir():
        os.utime(path, (long_ago, long_ago))
    try:
        with dashboard.signed_in() as client:
            text = client.get("/trainings?run=at-rest").text
            match = re.search(r'data-refresh="/dashboard([^"]+)" data-seconds="(\d+)"', text)
            assert match is not None
            place, seconds = html.unescape(match[1]), int(match[2])
            assert seconds == 30
            assert client.get(place).status_code == 204
            draw(training / "curves", range(3, 4))
            answer = client.get(place)
            assert 'data-seconds="2"' in answer.text
            assert "at step 3" in answer.text
            assert client.get("/trainings/curves?run=nowhere").status_code == 400
    finally:
        shutil.rmtree(training)


def test_the_best_and_the_worst_sample_of_a_version_are_shown(
    page: Page, dashboard: Dashboard
) -> None:
    page.goto(f"{dashboard.url}/trainings?run=taught")
    group = page.locator(".sampled")
    expect(group).to_contain_text("llm/pair version 4")
    expect(group.locator("pre").nth(0)).to_have_text("the best")
    expect(group.locator("pre").nth(1)).to_have_text("the worst")
    group.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(dashboard.recorded))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/trainings?run=nowhere", "is not the folder of a training"),
        ("/trainings?smoothing=1", "less than 1"),
        ("/trainings?run=taught&round=7", "no groups of a round 7"),
        ("/cost?since=yesterday", "is not a day"),
        ("/cost?since=2026-02-02&until=2026-01-01", "is after its last"),
        ("/cost?since=1990-01-01", "at most 400 days"),
        ("/cost?by=mood", "is not one of"),
        ("/runs?recorded=1;DROP", "is not a place in the list"),
    ],
)
def test_a_request_for_an_impossible_page_is_refused_with_the_reason(
    dashboard: Dashboard, place: str, words: str
) -> None:
    with dashboard.signed_in() as client:
        answer = client.get(place)
    assert answer.status_code in (400, 403)
    assert words in answer.text


def test_costs_of_a_pool_without_a_price_are_shown_as_unknown(
    page: Page, dashboard: Dashboard
) -> None:
    dashboard.ask("Name a fruit.")
    dashboard.ask("Name a colour.", model="slm")
    page.goto(f"{dashboard.url}/cost")
    table = page.locator("table")
    expect(table.locator("tr", has_text="llm (scripted-llm)")).to_contain_text("$0.")
    expect(table.locator("tr", has_text="slm (scripted-slm)")).to_contain_text("unknown")
    expect(table).not_to_contain_text(re.compile(r"\$0(\.0+)?(?![.\d])"))
    chart = page.locator("[data-chart]")
    chart.focus()
    page.keyboard.press("End")
    expect(chart.get_by_role("status")).to_contain_text("+ unknown")


def test_costs_are_summed_by_workflow_tag_and_key(dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a fruit.")
    with dashboard.signed_in() as client:
        assert "chat" in client.get("/cost?by=workflow").text
        assert "runtime up (" in client.get("/cost?by=key").text
        assert client.get("/cost?by=tag").status_code == 200
        assert client.get("/cost?by=day").status_code == 200

    def recorded() -> bool:
        ids = dashboard.deployment.ok("store", "sql", "SELECT run_id FROM usage")
        return run_id in ids

    until(recorded, "ledger of the run in the store")
    with dashboard.signed_in() as client:
        calls = re.findall(r"<dt>calls</dt><dd>([\d,]+)", client.get("/cost").text)
        again = re.findall(r"<dt>calls</dt><dd>([\d,]+)", client.get("/cost").text)
    assert calls == again
