"""The contents and actions of the dashboard's pages, in Chromium."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.runtime.dashboard.conftest import Dashboard

PAGES = (
    "/runs", "/approvals", "/workers", "/policies", "/benchmarks",
    "/benchmarks/compare?a=sums-0&b=sums-1",
    "/trainings?run=taught&run=grid/seed-1&smoothing=0.6", "/cost",
)  # fmt: skip


@pytest.mark.slow
def test_a_new_run_appears_in_the_list_without_a_reload(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}/runs")
    run_id = dashboard.ask("Name a colour.")
    row = page.locator("tr", has=page.locator(f"#to-{run_id}"))
    expect(row).to_contain_text("blue", timeout=10_000)
    expect(row).to_contain_text("answered")


def test_the_list_of_runs_can_be_filtered(page: Page, dashboard: Dashboard) -> None:
    fruit, colour = dashboard.ask("Name a fruit."), dashboard.ask("Name a colour.")
    page.goto(f"{dashboard.url}/runs")
    page.get_by_label("Search").fill("A FRUIT")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(f"#to-{fruit}")).to_be_visible()
    expect(page.locator(f"#to-{colour}")).to_have_count(0)
    page.get_by_label("Tag").fill("no equals sign")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("alert")).to_contain_text("is not of the form name=value")


def test_the_page_shows_a_run_while_it_writes_and_cancels_it(
    page: Page, dashboard: Dashboard
) -> None:
    run_id = dashboard.begin("Count to nine.")
    page.goto(f"{dashboard.url}/runs/{run_id}")
    expect(page.locator("#live")).to_contain_text("one two", timeout=20_000)
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator("main")).to_contain_text("cancelled on the dashboard by runtime up")


def test_a_fork_with_another_question_is_shown_next_to_the_original(
    page: Page, dashboard: Dashboard
) -> None:
    run_id = dashboard.ask("Name a fruit.")
    page.goto(f"{dashboard.url}/runs/{run_id}")
    page.get_by_text("Fork this run").click()
    page.get_by_label("Question").fill("Name a colour.")
    page.get_by_role("button", name="Fork and compare").click()
    sides = page.locator("#compare .pair").first.locator("section")
    expect(sides.nth(0)).to_contain_text("Name a fruit.")
    expect(sides.nth(1)).to_contain_text("Name a colour.")
    expect(sides.nth(1)).to_contain_text("blue", timeout=20_000)


def test_a_run_can_be_rewarded_on_its_page(page: Page, dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a fruit.")
    page.goto(f"{dashboard.url}/runs/{run_id}")
    page.get_by_text("Reward this run").click()
    page.get_by_label("Value").fill("0.5")
    page.get_by_label("Comment").fill("ripe")
    page.get_by_role("button", name="Reward", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("0.5")


def test_the_output_of_a_model_is_shown_as_text_and_never_as_markup(
    page: Page, dashboard: Dashboard
) -> None:
    run_id = dashboard.ask("Mean harm.")
    for place in ("/runs", f"/runs/{run_id}"):
        page.goto(dashboard.url + place)
        expect(page.locator("main")).to_contain_text("<script>document.title")
        assert "owned" not in page.title()
        assert page.locator("main script:not([src]), main img, main [onerror]").count() == 0
        assert "\u202e" not in page.content(), "what turns the text around is shown, and not done"


def test_an_approval_is_decided_on_the_page_of_approvals(page: Page, dashboard: Dashboard) -> None:
    run_id = dashboard.hold_back("Pay 600.")
    page.goto(f"{dashboard.url}/approvals")
    panel = page.locator("section", has_text=run_id)
    expect(panel).to_contain_text('"euros": 500')
    panel.get_by_label("Reason").fill("too much")
    panel.get_by_role("button", name="Deny").click()
    expect(page.locator("section", has_text=run_id)).to_have_count(0)


def test_the_page_of_workers_shows_workers_and_queues(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}/workers")
    expect(page.locator("main")).to_contain_text(re.compile(r"gpu-1\S*\s*ready"))
    expect(page.locator("main")).to_contain_text("infer:drip")


def test_publishing_to_an_unknown_pool_is_refused_by_name(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}/policies")
    page.get_by_label("Policy").fill("nobody/x")
    page.get_by_label("Weights").fill("/nowhere")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert")).to_contain_text("there is no pool 'nobody'")


def test_the_page_of_an_unknown_run_shows_its_id(page: Page, dashboard: Dashboard) -> None:
    missing = "01a217fd-7c97-7620-bb0f-f30aed441ade"
    page.goto(f"{dashboard.url}/runs/{missing}")
    expect(page.get_by_role("alert")).to_contain_text(missing)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_every_page_is_accessible_and_fits_its_screen(
    page: Page, dashboard: Dashboard, scheme: str
) -> None:
    """By axe-core's rules, at the width of a desktop and of a phone."""
    run_id = dashboard.ask("Name a fruit.")
    dashboard.hold_back("Pay 500.")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    places = (*PAGES, f"/runs/{run_id}", f"/compare?a={run_id}&b={run_id}")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for place in places:
            page.goto(dashboard.url + place)
            results = Axe().run(page)
            broken = [
                (rule["id"], [node["html"] for node in rule["nodes"]][:5])
                for rule in results.response["violations"]
            ]
            assert broken == [], place
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{place} is wider than a screen of {width}"


DRAWN = (
    "/benchmarks", "/trainings?run=taught&run=grid/seed-1&smoothing=0.6", "/cost",
    "/cost?since=2026-01-01&until=2026-12-31",
)  # fmt: skip
CHARTS = """() => [...document.querySelectorAll("svg.plot")].flatMap(drawing => {
  const scale = drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
  const {width, height} = drawing.viewBox.baseVal;
  const texts = [...drawing.querySelectorAll("text")].map(text => [text, text.getBBox()]);
  const over = (a, b) => a.x + 1 < b.x + b.width && b.x + 1 < a.x + a.width
    && a.y + 3 < b.y + b.height && b.y + 3 < a.y + a.height;
  return texts.flatMap(([text, box], at) => {
    const size = parseFloat(getComputedStyle(text).fontSize) * scale;
    const [right, bottom] = [box.x + box.width, box.y + box.height];
    const inside = box.x >= -1 && right <= width + 1 && bottom <= height + 3;
    const alone = texts.every(([_, other], place) => place === at || !over(box, other));
    return size >= 9.5 && inside && alone ? [] : [[text.textContent, size, inside, alone]];
  });
})"""
"""Texts of drawings that are smaller than 9.5 pixels, leave the drawing or overlap other texts."""


def test_drawings_are_legible_on_a_desktop_and_on_a_phone(page: Page, dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a fruit.")
    dashboard.ask("Name a colour.", model="slm")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for place in (*DRAWN, f"/runs/{run_id}"):
            page.goto(dashboard.url + place)
            assert page.evaluate(CHARTS) == [], f"{place} at {width}"


def test_a_row_of_the_list_fits_a_phone(page: Page, dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a colour.")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{dashboard.url}/runs")
    row = page.locator("tr", has=page.locator(f"#to-{run_id}"))
    for words in ("answered", "chat", "Name a colour.", "blue"):
        box = row.get_by_text(words).first.bounding_box()
        assert box is not None, words
        assert box["x"] >= 0, words
        assert box["x"] + box["width"] <= 390, words


def test_the_pages_of_runs_work_without_a_script(dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a fruit.")
    with dashboard.signed_in() as client:
        assert run_id in client.get("/runs").text
        assert "Name a fruit." in client.get(f"/runs/{run_id}").text
