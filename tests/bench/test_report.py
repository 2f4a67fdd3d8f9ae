"""The three reports: their content, and that no model's text can act in them."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.records import Trajectory
from loopline.bench.checkers import Scorer
from loopline.bench.compat import compare_books
from loopline.bench.ledger import read_ledger
from loopline.bench.output import OutputDirectory
from loopline.bench.report import links
from loopline.bench.report.computation import facts_of
from loopline.bench.report.figures import dollars, p_value, points, probability, seconds, share
from loopline.bench.report.markdown import cell
from loopline.bench.report.sections import compat_figure
from loopline.bench.report.sentences import remaining_work
from loopline.bench.report.terminal import print_report
from loopline.bench.report.writer import write_reports
from loopline.runtime.terminal import pages
from loopline.runtime.terminal.pages.svg import Scale
from loopline.runtime.terminal.pages.templates import render
from tests.bench.benchmarks import created, items, manifest, run
from tests.bench.local_client import LocalClient

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> | `\n\\boxed{<b>7</b>}"


class Hostile(LocalClient):
    """Every third run of the small model ends in markup."""

    async def wait(self, run_id: str) -> Trajectory:
        trajectory = await super().wait(run_id)
        if trajectory.run.tags["arm"] != "slm" or int(trajectory.run.tags["item"][-1]) % 3:
            return trajectory
        step = trajectory.steps[-1]
        candidate = step.candidates[0]
        last = candidate.calls[-1].model_copy(update={"text": EVIL})
        candidate = candidate.model_copy(update={"calls": (*candidate.calls[:-1], last)})
        step = step.model_copy(update={"candidates": (candidate,)})
        return trajectory.model_copy(update={"steps": (*trajectory.steps[:-1], step)})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> OutputDirectory:
    """A benchmark of 24 questions, one of which is hostile itself."""
    questions = items(24, wrong=[5, 11])
    evil = questions[3]
    questions[3] = type(evil)(evil.id, f"{EVIL} {evil.question}", evil.gold, evil.about)
    directory = created(tmp_path_factory.mktemp("report"), manifest(questions, compat="delegate"))

    async def whole() -> None:
        with Scorer() as scorer:
            await run(directory, Hostile(), scorer)

    asyncio.run(whole())
    write_reports(directory)
    return directory


class Page(HTMLParser):
    """The elements that a browser would see in the file, as far as these tests need them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: set[str] = set()
        self.data: dict[str, str] = {}
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if attributes.get("id"):
            self.ids.add(str(attributes["id"]))
        self._inside = attributes.get("id") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data[self._inside] = self.data.get(self._inside, "") + data

    def unpacked(self, name: str) -> Any:
        return json.loads(gzip.decompress(base64.b64decode(self.data[name])))


@pytest.fixture(scope="module")
def page(finished: OutputDirectory) -> Page:
    return Page((finished.path / "report.html").read_text(encoding="utf-8"))


def test_the_page_loads_nothing_from_anywhere(page: Page) -> None:
    """One file: no link, image, font, frame or script with an address; links lead inside."""
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "audio", "video"}
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert "style" not in attributes
        if tag == "a":
            assert str(attributes["href"]).startswith("#")


def test_a_model_s_output_is_escaped(finished: OutputDirectory, page: Page) -> None:
    """The packed data contain it unchanged; it is nowhere markup."""
    text = (finished.path / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" not in text.replace("&lt;script&gt;alert(1)", "")
    assert "onerror=alert(2)>" not in text
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert len([a for a in scripts if a.get("type") is None]) == 1
    index = page.unpacked("index")
    assert index["items"][3]["q"].startswith(EVIL)
    texts = json.dumps(page.unpacked("chunk-0"))
    assert json.dumps(EVIL)[1:-1] in texts


def test_only_the_page_s_own_script_can_run(finished: OutputDirectory, page: Page) -> None:
    """A content security policy with the hash of the only script."""
    text = (finished.path / "report.html").read_text(encoding="utf-8")
    (policy,) = [
        str(a["content"])
        for tag, a in page.tags
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy
    for kind, name in (("script", "script-src"), ("style", "style-src")):
        (body,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
        assert "unsafe" not in policy


def test_every_run_has_its_transcript_in_the_page(finished: OutputDirectory, page: Page) -> None:
    """Every number leads to questions, every question to its transcript."""
    index = page.unpacked("index")
    scripts: dict[str, Any] = {}
    for name in page.data:
        if name.startswith("chunk-"):
            scripts |= page.unpacked(name)
    runs = [run["id"] for item in index["items"] for run in item["r"].values()]
    assert len(runs) == 72
    assert set(runs) == set(scripts)
    assert all(script["steps"] for script in scripts.values())


def test_links_lead_to_existing_anchors(page: Page) -> None:
    """The script understands `#items?…` and `#run?…`; anything else is an id."""
    for tag, attributes in page.tags:
        if tag != "a":
            continue
        place, _, query = str(attributes["href"])[1:].partition("?")
        assert place in {"items", "run"} or place in page.ids
        assert query


@given(st.text(st.characters(codec="utf-8")))
def test_a_link_identifies_its_question_for_any_id(item: str) -> None:
    """As `URLSearchParams` decodes it, for which `+` is a space."""
    href = links.run_of(item)
    assert href.count("?") == href.count("#") == 1
    assert parse_qsl(href.partition("?")[2], keep_blank_values=True) == [("item", item)]


def test_the_words_of_a_link_are_escaped() -> None:
    where = links.place("items", arm="a&b", class_="right")
    anchor = render(pages.__name__, "macro.html.j2", name="link", values=(where, "<b>\u202e"))
    assert anchor == '<a href="#items?arm=a%26b&amp;class=right">&lt;b&gt;\\u202e</a>'


def test_the_page_has_the_plots_and_both_themes(finished: OutputDirectory) -> None:
    """Accuracy against cost with the oracle, pairs, latency, flow; dark and narrow."""
    text = (finished.path / "report.html").read_text(encoding="utf-8")
    for label in (
        "Accuracy against cost",
        "Paired differences in accuracy",
        "Accuracy by checker",
        "Mean latency by part",
        "One run over time",
        "Failure flow of router",
    ):
        assert f'aria-label="{label}"' in text
    assert "oracle" in text
    assert "prefers-color-scheme: dark" in text
    assert "max-width: 600px" in text
    assert 'name="viewport"' in text


def test_json_has_results_apart_from_timings(finished: OutputDirectory) -> None:
    """`results` has the same bytes whenever the same answers are reported."""
    report = json.loads((finished.path / "report.json").read_text(encoding="utf-8"))
    assert set(report) == {"version", "results", "timings"}
    again = facts_of(finished).results
    assert json.dumps(again, sort_keys=True) == json.dumps(report["results"], sort_keys=True)
    assert not any(word in json.dumps(report["results"]) for word in ("wall", "run_id", "created"))
    assert len(report["results"]["items"]) == 24


def test_figures_of_the_arms_agree_with_the_list_of_items(finished: OutputDirectory) -> None:
    """Counted from the bottom."""
    results = facts_of(finished).results
    for name, arm in results["arms"].items():
        cells = [row["arms"][name] for row in results["items"]]
        for checker, score in arm["accuracy"].items():
            assert score["right"] == sum(c["verdicts"][checker] for c in cells)
        assert sum(arm["classes"].values()) == arm["n"] == 24
        assert arm["classes"]["right"] == arm["accuracy"]["numeric"]["right"]
    (pair,) = [p for p in results["pairs"] if (p["a"], p["b"]) == ("llm", "slm")]
    assert pair["both"] + pair["only_a"] + pair["only_b"] + pair["neither"] == 24
    assert pair["only_a"] >= 7


def test_the_oracle_arm_is_at_least_as_good_as_either_model(finished: OutputDirectory) -> None:
    """And it costs no more than the big model everywhere."""
    results = facts_of(finished).results
    arms = results["arms"]
    best = max(arms[name]["accuracy"]["numeric"]["right"] for name in ("llm", "slm"))
    assert results["oracle"]["right"] >= best
    dear = arms["llm"]["micro_dollars_per_question"]
    assert results["oracle"]["micro_dollars_per_question"] <= dear


def test_no_answer_breaks_the_markdown_tables(finished: OutputDirectory) -> None:
    """Same number of cells in every row of a table."""
    text = (finished.path / "report.md").read_text(encoding="utf-8")
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(widths) <= 1
    assert "| llm | 22/24 |" in text
    assert "Delegate's figures and ours" in text
    assert cell("a|b\nc") == "a\\|b c"


def test_delegate_s_figures_differ_from_ours_for_the_stated_reasons(
    finished: OutputDirectory,
) -> None:
    """Its token count for the router is a quarter of the characters of question and answer."""
    facts = facts_of(finished)
    (router,) = [arm for arm in facts.arms if arm.name == "router"]
    rows = {r.figure: r for r in compare_books("router", router.results, facts.items, router.paid)}
    tokens = rows["tokens per question"]
    assert tokens.loopline == router.paid.tokens / 24
    by_hand = sum(
        len(facts.items[r.item].question) // 4 + len(r.prediction or "") // 4
        for r in router.results
    )
    assert tokens.delegate == by_hand / 24
    assert tokens.delegate < tokens.loopline / 5


def test_accuracy_in_delegate_s_figures_follows_its_scripts(
    finished: OutputDirectory,
) -> None:
    """A number after "answer is" takes precedence over the last run of digits."""
    facts = facts_of(finished)
    (arm,) = [arm for arm in facts.arms if arm.name == "llm"]
    gold = facts.items[arm.results[0].item].gold
    prediction = f"The answer is {gold}.00, found in 2 steps."
    with Scorer() as scorer:
        score = scorer.score(prediction, gold)
    changed = arm.results[0].model_copy(update={"prediction": prediction}).scored(score)
    results = [changed, *arm.results[1:]]
    before = compare_books("llm", arm.results, facts.items, arm.paid)[0]
    row = compare_books("llm", results, facts.items, arm.paid)[0]
    assert (row.figure, row.delegate) == ("accuracy", before.delegate)
    right = round(before.delegate * 24)
    assert (
        f"with only the last run of digits, {right - 1} would be right instead of {right}"
        in row.why
    )


def test_delegations_in_delegate_s_figures_are_per_question(finished: OutputDirectory) -> None:
    rows = facts_of(finished).results["delegate"]
    (row,) = [row for row in rows if row["figure"] == "delegations per question"]
    assert row["unit"] == "per question"
    assert compat_figure(row, "ours") == f"{row['ours']:.2f}"


def test_an_unfinished_benchmark_gets_a_report_that_states_it(tmp_path: Path) -> None:
    """Even without a single answer."""
    directory = created(tmp_path, manifest(items(3)))
    facts = write_reports(directory)
    assert not facts.results["complete"]
    assert "Not complete" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Not complete" in (tmp_path / "report.md").read_text(encoding="utf-8")
    json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))


def test_the_report_warns_of_a_ledger_that_does_not_add_up(
    finished: OutputDirectory, tmp_path: Path
) -> None:
    """A missing line is a notice in every report."""
    for name in ("manifest.json", "items.jsonl", "transcripts.jsonl"):
        (tmp_path / name).write_bytes((finished.path / name).read_bytes())
    lines = (finished.path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(lines[1:]))
    notices = write_reports(OutputDirectory(tmp_path)).notices
    assert any("the ledger" in notice for notice in notices)


def test_the_report_warns_of_an_arm_with_answers_from_other_weights(
    finished: OutputDirectory, tmp_path: Path
) -> None:
    """They were published during the benchmark, or before it was resumed."""
    for name in ("manifest.json", "items.jsonl", "transcripts.jsonl"):
        (tmp_path / name).write_bytes((finished.path / name).read_bytes())
    entries = read_ledger(finished.ledger_path)
    last = entries[-1]
    newer = last.policy.model_copy(update={"adapter": f"{last.policy.name}/new", "version": 1})
    entries[-1] = last.model_copy(update={"policy": newer})
    lines = "".join(f"{entry.model_dump_json()}\n" for entry in entries)
    (tmp_path / "ledger.jsonl").write_text(lines, encoding="utf-8")
    [notice] = write_reports(OutputDirectory(tmp_path)).notices
    name, base = last.policy.name, last.policy.base
    both = f"{name} version 0 ({base}), {name}/new version 1 ({base})"
    assert f"several policies answered as {last.agent}: {both};" in notice


@pytest.mark.parametrize(
    ("text", "display"),
    [
        (share(0.8645), "86.5 %"),
        (share(None), "–"),
        (points(-0.018), "−1.8"),
        (points(-0.0001), "0.0"),
        (dollars(0), "$0"),
        (dollars(0.00123), "$0.0012"),
        (dollars(1234.5), "$1,234.50"),
        (seconds(0.0123), "12 ms"),
        (seconds(12.34), "12.3 s"),
        (probability(0.00001), "< 0.0001"),
        (p_value(0.00948), "p = 0.0095"),
        (p_value(0.00001), "p < 0.0001"),
    ],
)
def test_numbers_are_readable(text: str, display: str) -> None:
    """Signs, units, significant digits."""
    assert text == display


def test_axes_have_a_few_round_ticks() -> None:
    """Linear and logarithmic."""
    assert Scale(0.0, 1.0, 0, 100).ticks(4) == [0.0, 0.25, 0.5, 0.75, 1.0]
    ticks = Scale(0.011, 4.2, 0, 100, log=True).ticks(5)
    assert 2 <= len(ticks) <= 7
    assert all(0.011 <= tick <= 4.2 for tick in ticks)
    assert Scale(3.0, 3.0, 0, 100)(3.0) == 50


def test_an_unfinished_benchmark_says_on_the_terminal_how_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence of the other reports, with the directory's name."""
    facts = write_reports(created(tmp_path, manifest(items(3))))
    print_report(facts, tmp_path)
    hint = "Not answered yet: llm: 3, router: 3, slm: 3. Figures are over the questions that were"
    assert f"Not complete. {hint} asked; continue with `bench resume {tmp_path}`." in (
        capsys.readouterr().out
    )
    for name in ("report.html", "report.md"):
        assert hint in (tmp_path / name).read_text(encoding="utf-8")


def test_a_complete_benchmark_does_not_mention_resuming(
    finished: OutputDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(facts_of(finished), finished.path)
    assert "complete" not in capsys.readouterr().out


def test_an_unfinished_benchmark_with_a_budget_warns_that_it_may_need_more(tmp_path: Path) -> None:
    facts = write_reports(created(tmp_path, manifest(items(3), budget_micro_dollars=5)))
    hint = "`bench resume DIR`, adding `--budget-usd MORE` if the budget is used up."
    assert remaining_work(facts).endswith(hint)


def test_a_report_with_one_arm_has_no_figure_of_pairs(tmp_path: Path) -> None:
    directory = created(tmp_path, manifest(items(2), arms=("llm",)))

    async def whole() -> None:
        with Scorer() as scorer:
            await run(directory, LocalClient(), scorer)

    asyncio.run(whole())
    write_reports(directory)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Accuracy against cost" in text
    assert "Differences on the same questions" not in text


def test_groups_of_numbers_are_sorted_by_size(tmp_path: Path) -> None:
    """Ten steps come after two, not before; words come after numbers."""
    all_items = items(4)
    steps = (10, 2, "many", 1)
    questions = [
        type(item)(item.id, item.question, item.gold, {"steps": step})
        for item, step in zip(all_items, steps, strict=True)
    ]
    facts = write_reports(created(tmp_path, manifest(questions)))
    assert [row["group"] for row in facts.results["groups"]] == ["1", "2", "10", "many"]
