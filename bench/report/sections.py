"""Content of the HTML report (`report.html.j2`)."""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import Any

from markupsafe import Markup

from loopline.bench.checkers import PRIMARY
from loopline.bench.report import figures as say
from loopline.bench.report.facts import Facts
from loopline.bench.report.flow import failure_flow
from loopline.bench.report.latency import run_at_quantile, stacked_latency, waterfall
from loopline.bench.report.links import place, run_of
from loopline.bench.report.measures import MEANINGS, names_of
from loopline.bench.report.plots import (
    accuracy_against_cost,
    arm_class,
    checker_intervals,
    differences,
    has_dollars,
)
from loopline.bench.report.sentences import ledger_note, options_sentence, remaining_work
from loopline.bench.teams import tables
from loopline.runtime.terminal.pages.templates import render
from loopline.runtime.terminal.pluralize import format_count

SHOWN_DISAGREEMENTS = 200


def title(facts: Facts) -> str:
    """Title of the report, in one line."""
    return f"{facts.benchmark.title}: {' against '.join(facts.manifest.arms)}"


def every_section(facts: Facts, transcripts: dict[str, dict[str, Any]]) -> Markup:
    """Return the sections of the page from top to bottom."""
    manifest = facts.manifest
    classes = tuple(facts.classes)
    medians = [(arm.name, run) for arm in facts.arms if (run := run_at_quantile(arm, 0.5))]

    def look(arm: str, prefix: str) -> str:
        return arm_class(facts, arm).replace("arm", prefix)

    return render(
        "loopline.bench.report",
        "report.html.j2",
        facts=facts,
        title=title(facts),
        about=_about(facts),
        left=remaining_work(facts),
        verdict=" ".join([headline(facts), *payoffs(facts)]),
        accuracy_against_cost=accuracy_against_cost(facts),
        differences=differences(facts),
        checker_intervals=checker_intervals(facts, tuple(facts.checkers)),
        players=tables.rows(facts),
        players_head=tables.HEAD,
        players_caption=tables.caption(facts),
        measures=names_of(facts),
        measured_pairs=[pair for pair in facts.results["pairs"] if pair.get("measures")],
        meanings=MEANINGS,
        stacked_latency=stacked_latency(facts),
        waterfalls=[
            (name, waterfall(transcripts[run.run_id]), run)
            for name, run in medians
            if run.run_id in transcripts
        ],
        ledger_note=ledger_note(facts),
        flows=[(arm.name, failure_flow(arm, classes)) for arm in facts.arms if arm.results],
        primary_checker=PRIMARY,
        most_disagreements=SHOWN_DISAGREEMENTS,
        versions=", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
        profile=PurePath(manifest.profile or "as running").name,
        say=say,
        place=place,
        run_of=run_of,
        run_at=run_at_quantile,
        look=look,
        compat_figure=compat_figure,
        prices=_prices,
        money_difference=_money,
        token_difference=_amount,
    )


def what_was_asked(facts: Facts) -> str:
    """Describe the number and the source of the questions."""
    manifest = facts.manifest
    return (
        f"{len(manifest.items):,} of {format_count(manifest.available, 'question')}, "
        f"split {manifest.split}, seed {manifest.seed}; source: {manifest.source}"
    )


def _about(facts: Facts) -> str:
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(facts.manifest.created))
    return f"{what_was_asked(facts)}; {day}. {options_sentence(facts.manifest)}"


BIG_ALONE = "llm"
DELEGATING = ("router", "cascade")
"""Return the arms in which the small model answers or helps."""


def headline(facts: Facts) -> str:
    """Describe the most important comparison: the router against the big model."""
    wanted = next(
        (p for p in facts.results["pairs"] if {p["a"], p["b"]} == {"llm", "router"}), None
    ) or next(iter(facts.results["pairs"]), None)
    if wanted is None or not wanted["n"]:
        return ""
    sign = -1 if wanted["a"] == BIG_ALONE and wanted["b"] in DELEGATING else 1
    first, second = (wanted["a"], wanted["b"]) if sign == 1 else (wanted["b"], wanted["a"])
    gap = wanted["difference"]
    low, high = sorted((sign * gap["low"], sign * gap["high"]))
    sure = wanted["p"] < 0.05
    words = (
        f"{first} against {second} on {format_count(wanted['n'], 'shared question')}: "
        f"{say.points(sign * gap['estimate'])} points of accuracy "
        f"[{say.points(low)}, {say.points(high)}], exact McNemar "
        f"{say.p_value(wanted['p'])}: "
        f"{'a difference' if sure else 'this sample shows no difference'}."
    )
    arms = facts.results["arms"]
    in_dollars = arms[second]["usage"]["micro_dollars"] and has_dollars(
        {name: arms[name] for name in (first, second)}
    )
    unit = "micro_dollars" if in_dollars else "tokens"
    base, estimate = (arms[name]["per_question"][unit]["estimate"] for name in (second, first))
    if base:
        what = "dollars" if unit == "micro_dollars" else "tokens"
        words += f" It uses {estimate / base:.2f} times the {what} of {second}."
    return words


def payoffs(facts: Facts) -> list[str]:
    """Describe whether delegation pays off: for each arm that delegates, one sentence with the
    dollars, compared with the big model alone; empty if a model has no price."""
    return [
        sentence
        for arm in DELEGATING
        for pair in facts.results["pairs"]
        if {pair["a"], pair["b"]} == {arm, BIG_ALONE} and pair["n"]
        if (sentence := _payoff(facts, arm, pair))
    ]


def _payoff(facts: Facts, arm: str, pair: dict[str, Any]) -> str:
    arms = facts.results["arms"]
    paid, alone = (arms[name]["micro_dollars_per_question"] for name in (arm, BIG_ALONE))
    if not paid or not alone or arms[arm]["unpriced"] or arms[BIG_ALONE]["unpriced"]:
        return ""
    sign = 1 if pair["a"] == arm else -1
    extra, gap = pair["micro_dollars"], pair["difference"]
    low, high = sorted((sign * extra["low"], sign * extra["high"]))
    cheaper, more_expensive = high < 0, low > 0
    worse = pair["p"] < 0.05 and sign * gap["estimate"] < 0
    reason = (
        "more expensive"
        if more_expensive
        else "less accurate"
        if worse
        else "savings not significant"
    )
    verdict = "pays off" if cheaper and not worse else f"does not pay off ({reason})"
    return (
        f"{arm} {verdict}: {say.dollars(paid / 1000)} for 1,000 questions, "
        f"{say.dollars(alone / 1000)} with only {BIG_ALONE} ({_percent((paid - alone) / alone)} "
        f"[{_percent(low / alone)}, {_percent(high / alone)}]), at "
        f"{say.points(sign * gap['estimate'])} points of accuracy."
    )


def _percent(share: float) -> str:
    return f"{share:+.0%}".replace("-", "−")


def compat_figure(row: dict[str, Any], side: str) -> str:
    """Format one of the two figures of a row, in its unit."""
    if row["unit"] == "share":
        return say.share(row[side])
    digits = {"count": 0, "tokens": 2, "per question": 2}[row["unit"]]
    return say.count(row[side], digits)


def _prices(price: dict[str, str]) -> str:
    prices = ", ".join(f"{kind} ${value}" for kind, value in price.items() if value)
    return f"per million tokens: {prices}" if prices else "no price"


def _money(interval: dict[str, float | None]) -> str:
    """Format a difference in micro-dollars per question as dollars per 1,000 questions."""
    low, middle, high = (interval[key] for key in ("low", "estimate", "high"))
    if low is None or middle is None or high is None:
        return "–"
    return f"{middle / 1000:+,.2f} [{low / 1000:+,.2f}, {high / 1000:+,.2f}]".replace("-", "−")


def _amount(interval: dict[str, float | None]) -> str:
    low, middle, high = (interval[key] for key in ("low", "estimate", "high"))
    if low is None or middle is None or high is None:
        return "–"
    return f"{middle:+,.1f} [{low:+,.1f}, {high:+,.1f}]".replace("-", "−")
