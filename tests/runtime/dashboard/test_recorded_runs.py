"""Runs in the dashboard's list that have left the bus, and runs of any size."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.runtime.dashboard.conftest import Dashboard
from tests.runtime.dashboard.written import record_runs, recorded_run


def test_the_list_includes_runs_that_only_the_store_has(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}/runs?words=WHAT+DID")
    row = page.locator("tr", has=page.locator(f"#to-{dashboard.recorded}"))
    expect(row).to_contain_text("<script>document.title")
    assert "\u202e" not in page.content()
    assert "owned" not in page.title()
    row.get_by_role("link").click()
    expect(page.locator("main")).to_contain_text("the best")


def test_a_run_that_is_on_the_bus_and_in_the_store_is_listed_once(dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a fruit.")
    with dashboard.signed_in() as client:
        assert client.get("/runs").text.count(f'id="to-{run_id}"') == 1


def test_a_huge_answer_is_truncated_on_its_page_and_complete_in_its_record(
    page: Page, dashboard: Dashboard
) -> None:
    text = "<script>alert(1)</script>" + "a\u202e" * 2_500_000
    run = recorded_run(2, "Write much. " + "x" * 150_000, text)
    record_runs(dashboard.deployment.state.store, [run])
    page.goto(f"{dashboard.url}/runs/{run.run.id}")
    expect(page.locator(".said").first).to_contain_text("<script>alert(1)")
    expect(page.locator(".said .cut").first).to_contain_text("characters more")
    assert len(page.content()) < 500_000
    page.get_by_text("Fork this run").click()
    expect(page.get_by_label("Question")).to_have_count(0)
    with dashboard.signed_in() as client:
        answer = client.get(f"/runs/{run.run.id}/record")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["steps"][0]["candidates"][0]["calls"][0]["text"] == text
        listed = client.get("/runs?words=Write+much").text
    assert run.run.id in listed
    assert len(listed) < 100_000


@pytest.mark.slow
def test_pages_of_ten_thousand_runs_list_each_run_once(dashboard: Dashboard) -> None:
    runs = [recorded_run(number, f"Question {number} of many?") for number in range(10, 10_010)]
    record_runs(dashboard.deployment.state.store, runs)
    place, listed_ids, pages = "/runs?words=of+many", list[str](), 0
    with dashboard.signed_in() as client:
        while place and pages < 4:
            answer = client.get(place)
            assert answer.headers["server-timing"].startswith("page;dur=")
            ids = re.findall(r'id="to-([0-9a-f-]{36})"', answer.text)
            assert len(ids) == 50
            listed_ids += ids
            pages += 1
            link = re.search(r'href="/dashboard(/runs\?[^"]+)" rel="next"', answer.text)
            place = link[1].replace("&amp;", "&") if link else ""
        (match,) = re.findall(
            r'id="to-([0-9a-f-]{36})"', client.get("/runs?words=Question+1234+of+many").text
        )
    assert listed_ids == [run.run.id for run in reversed(runs)][: len(listed_ids)]
    assert match == runs[1224].run.id


def test_an_unknown_path_gets_a_page_that_names_it_and_links_back(dashboard: Dashboard) -> None:
    with dashboard.signed_in() as client:
        answer = client.get("/nowhere/<b>")
        assert answer.status_code == 404
        assert "there is no page &#39;nowhere/&lt;b&gt;&#39; here" in answer.text
        assert 'href="/dashboard/runs"' in answer.text
        assert client.get("/runs/").headers["location"] == "/dashboard/runs"
        assert client.get("/static/none.css").status_code == 404
