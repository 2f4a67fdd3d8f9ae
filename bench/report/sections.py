"""The sections of the HTML report, in reading order. Every number links to its questions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html import escape
from pathlib import PurePath
from typing import Any

from loopline.bench.checkers import PRIMARY
from loopline.bench.report import figures as say
from loopline.bench.report.facts import ArmRuns, Facts
from loopline.bench.report.flow import failure_flow
from loopline.bench.report.in_vain import ledger_note
from loopline.bench.report.latency import run_at, stacked_latency, waterfall
from loopline.bench.report.links import link, place, run_of, text
from loopline.bench.report.measures import measures_section
from loopline.bench.report.options import played_with
from loopline.bench.report.plots import (
    accuracy_against_cost,
    arm_class,
    checker_intervals,
    differences,
)
from loopline.bench.report.unfinished import left_to_do
from loopline.bench.teams.tables import players_section
from loopline.runtime.terminal.pages.page import figure

SHOWN_DISAGREEMENTS = 200


def title(facts: Facts) -> str:
    """What the report is about, in one line."""
    return f"{facts.benchmark.title}: {' against '.join(facts.manifest.arms)}"


def every_section(facts: Facts, transcripts: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The page from top to bottom."""
    yield _head(facts)
    yield _cards(facts)
    yield _cost(facts)
    yield _pairs(facts)
    yield _checkers(facts)
    yield players_section(facts)
    yield measures_section(facts)
    yield _latency(facts, transcripts)
    yield _ledger(facts)
    yield _failures(facts)
    yield _groups(facts)
    yield _compat(facts)
    yield _disagreements(facts)
    yield _items(facts)
    yield _method(facts)


def _head(facts: Facts) -> str:
    manifest = facts.manifest
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(manifest.created))
    asked = len(manifest.items)
    about = (
        f"{asked:,} of {manifest.available:,} questions, split {manifest.split}, seed "
        f"{manifest.seed}, from {manifest.source}; {day}"
    )
    about += f". {played_with(manifest)}"
    parts = [f"<h1>{escape(title(facts))}</h1>", f'<p class="soft">{escape(about)}</p>']
    left = left_to_do(facts)
    if left:
        said = re.sub("`(.+?)`", r"<code>\1</code>", escape(left))
        parts.append(f'<p class="notice"><b>Not complete.</b> {said}</p>')
    parts += [f'<p class="notice">{escape(notice)}</p>' for notice in facts.notices]
    verdict = headline(facts)
    if verdict:
        parts.append(f'<p class="lead">{escape(verdict)}</p>')
    return "\n".join(parts)


def headline(facts: Facts) -> str:
    """The comparison that matters most, in words: the router against the big model."""
    wanted = next(
        (p for p in facts.results["pairs"] if {p["a"], p["b"]} == {"llm", "router"}), None
    ) or next(iter(facts.results["pairs"]), None)
    if wanted is None or not wanted["n"]:
        return ""
    sign = -1 if wanted["a"] == "llm" and wanted["b"] == "router" else 1
    first, second = (wanted["a"], wanted["b"]) if sign == 1 else (wanted["b"], wanted["a"])
    gap = wanted["difference"]
    low, high = sorted((sign * gap["low"], sign * gap["high"]))
    sure = wanted["p"] < 0.05
    words = (
        f"{first} against {second} on {wanted['n']:,} shared questions: "
        f"{say.points(sign * gap['estimate'])} points of accuracy "
        f"[{say.points(low)}, {say.points(high)}], exact McNemar "
        f"{say.p_value(wanted['p'])}: "
        f"{'a difference' if sure else 'no difference that this sample can show'}."
    )
    arms = facts.results["arms"]
    unit = "micro_dollars" if arms[second]["usage"]["micro_dollars"] else "tokens"
    base, other = (arms[name]["per_question"][unit]["estimate"] for name in (second, first))
    if base:
        what = "dollars" if unit == "micro_dollars" else "tokens"
        words += f" It takes {other / base:.2f} times the {what} of {second}."
    return words


def _cards(facts: Facts) -> str:
    cards: list[str] = []
    for arm in facts.arms:
        known = facts.results["arms"][arm.name]
        score = known["accuracy"][facts.primary]
        wall = facts.timings["arms"][arm.name]["wall"]
        money = known["per_question"]["micro_dollars"]["estimate"]
        rows = [
            ("95 % interval", f"{say.span(score['low'], score['high'])} %"),
            ("right", link(place("items", arm=arm.name, class_="right"), f"{score['right']:,}")),
            (
                "wrong",
                link(
                    place("items", arm=arm.name, class_="wrong"),
                    f"{known['n'] - score['right']:,}",
                ),
            ),
            ("per 1,000 questions", say.dollars(None if money is None else money / 1000)),
            ("tokens per question", say.count(known["tokens_per_question"], 1)),
            ("median latency", say.seconds(wall["p50"])),
        ]
        listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
        own = arm_class(facts, arm.name).replace("arm", "own")
        cards.append(
            f'<section class="card {own}"><h3>{escape(arm.name)}</h3>'
            f'<a class="big" href="{escape(place("items", arm=arm.name))}">'
            f"{say.share(score['estimate'])}</a>"
            f"<dl>{listed}</dl></section>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _cost(facts: Facts) -> str:
    drawing, caption = accuracy_against_cost(facts)
    figures = [figure(drawing, caption)]
    # Of a single arm there are none.
    pairs = differences(facts)
    if pairs:
        about = (
            "Differences on the same questions with 95 % bootstrap intervals. Grey: the exact "
            "McNemar test does not tell the arms apart."
        )
        figures.append(figure(pairs, about))
    return f'<h2 id="cost">Accuracy against cost</h2><div class="two">{"".join(figures)}</div>'


def _pairs(facts: Facts) -> str:
    blocks: list[str] = []
    for pair in facts.results["pairs"]:
        a, b = escape(pair["a"]), escape(pair["b"])

        def cell(name: str, look: str, pair: dict[str, Any] = pair) -> str:
            href = place("items", a=pair["a"], b=pair["b"], cell=name)
            part = pair[name] / pair["n"] if pair["n"] else None
            return (
                f'<a class="{look}" href="{escape(href)}"><b>{pair[name]:,}</b>'
                f"{say.share(part)}</a>"
            )

        colours = (
            f"{arm_class(facts, pair['a']).replace('arm', 'pa')} "
            f"{arm_class(facts, pair['b']).replace('arm', 'pb')}"
        )
        blocks.append(
            f'<div class="panel"><h3>{a} and {b}</h3><div class="fourfold {colours}">'
            f'<span></span><span class="head">{b} right</span><span class="head">{b} wrong</span>'
            f'<span class="head">{a} right</span>{cell("both", "")}{cell("only_a", "win-a")}'
            f'<span class="head">{a} wrong</span>{cell("only_b", "win-b")}{cell("neither", "")}'
            f'</div><p class="small soft">Only the framed cells can tell the arms apart: '
            f"{pair['only_a']:,} against {pair['only_b']:,}, exact McNemar "
            f"{say.p_value(pair['p'])}.</p></div>"
        )
    if not blocks:
        return ""
    rows = "".join(
        f"<tr><td>{escape(p['a'])} − {escape(p['b'])}</td><td>{p['n']:,}</td>"
        f'<td class="num">{say.points(p["difference"]["estimate"])} '
        f"[{say.points(p['difference']['low'])}, {say.points(p['difference']['high'])}]</td>"
        f"<td>{say.probability(p['p'])}</td>"
        f'<td class="num">{_money(p["micro_dollars"])}</td>'
        f'<td class="num">{_amount(p["tokens"])}</td></tr>'
        for p in facts.results["pairs"]
    )
    return (
        '<h2 id="pairs">Question by question</h2>'
        f'<div class="three">{"".join(blocks)}</div><br>'
        '<div class="scroll" role="region"><table><thead><tr><th>pair</th><th>questions</th>'
        "<th>points of accuracy</th><th>McNemar p</th><th>$ per 1,000 questions</th>"
        f"<th>tokens per question</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _checkers(facts: Facts) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in facts.checkers)
    rows: list[str] = []
    for name, arm in facts.results["arms"].items():
        cells = "".join(
            _checker_cell(name, checker, arm["accuracy"][checker]) for checker in facts.checkers
        )
        rows.append(f"<tr><td>{escape(name)}</td><td>{arm['n']:,}</td>{cells}</tr>")
    rules = "".join(
        f"<li><b>{escape(name)}</b>: {escape(rule)}</li>" for name, rule in facts.checkers.items()
    )
    return (
        '<h2 id="checkers">Accuracy by checker</h2><div class="scroll"><table><thead><tr>'
        f"<th>arm</th><th>questions</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        '</div><br><div class="two"><figure>'
        f"{checker_intervals(facts, tuple(facts.checkers))}<figcaption>Share judged right, 95 % "
        "Wilson intervals. A missing answer is wrong and stays in the denominator.</figcaption>"
        "</figure>"
        f'<div class="panel"><h3>The rules</h3><ul class="plain small">{rules}</ul></div></div>'
    )


def _checker_cell(arm: str, checker: str, score: dict[str, Any]) -> str:
    where = place("items", arm=arm, checker=checker, says="right")
    return (
        f'<td class="num">{link(where, say.share(score["estimate"]))}'
        f'<div class="small soft">{say.span(score["low"], score["high"])}</div></td>'
    )


def _latency(facts: Facts, transcripts: dict[str, dict[str, Any]]) -> str:
    rows = "".join(_latency_row(facts, arm) for arm in facts.arms)
    runs: list[str] = []
    for arm in facts.arms:
        result = run_at(arm, 0.5)
        if result is None or result.run_id not in transcripts:
            continue
        where = link(run_of(result.item), result.item)
        runs.append(
            f"<figure><h3>{escape(arm.name)}</h3>{waterfall(transcripts[result.run_id])}"
            f"<figcaption>The run of median latency ({say.seconds(result.seconds.wall)}): {where}. "
            "Grey waits, violet is tools and hand-over.</figcaption></figure>"
        )
    return (
        '<h2 id="latency">Where the time goes</h2><div class="two"><figure>'
        f"{stacked_latency(facts)}<figcaption>Mean seconds per question. Parallel branches add "
        "up, so a bar may pass the wall time (the black mark).</figcaption></figure>"
        '<div class="scroll"><table><thead><tr><th>wall time</th><th>mean</th><th>median</th>'
        f"<th>90 %</th><th>99 %</th></tr></thead><tbody>{rows}</tbody></table></div>"
        f"{''.join(runs)}</div>"
    )


def _latency_row(facts: Facts, arm: ArmRuns) -> str:
    wall = facts.timings["arms"][arm.name]["wall"]
    cells = [f"<td>{say.seconds(wall['mean'] if arm.results else None)}</td>"]
    for key, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        run = run_at(arm, share)
        shown = say.seconds(wall[key])
        cells.append(f"<td>{link(run_of(run.item), shown) if run else shown}</td>")
    return f"<tr><td>{escape(arm.name)}</td>{''.join(cells)}</tr>"


def _ledger(facts: Facts) -> str:
    rows: list[str] = []
    for name, arm in facts.results["arms"].items():
        for pool, paid in arm["pools"].items():
            rows.append(
                f"<tr><td>{link(place('items', arm=name), name)}</td>"
                f"<td class=left>{escape(pool)}</td>{_sums(paid)}</tr>"
            )
        if len(arm["pools"]) > 1:
            rows.append(
                f"<tr><td>{escape(name)}</td><td class=left>all</td>{_sums(arm['usage'])}</tr>"
            )
    return (
        '<h2 id="ledger">The ledger</h2><div class="scroll"><table><thead><tr><th>arm</th>'
        "<th class=left>model pool</th><th>calls</th><th>prompt tokens</th><th>of these cached</th>"
        "<th>completion tokens</th><th>of these reasoning</th><th>cost</th></tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></div>"
        f'<p class="small soft">Sums over one entry per model call, as counted by whoever '
        f"generated the tokens. {escape(ledger_note(facts))}</p>"
    )


def _failures(facts: Facts) -> str:
    flows = "".join(
        f"<figure><h3>{escape(arm.name)}</h3>{failure_flow(arm, tuple(facts.classes))}</figure>"
        for arm in facts.arms
        if arm.results
    )
    head = "".join(f"<th>{escape(arm.name)}</th>" for arm in facts.arms)
    rows = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td>"
        + "".join(
            "<td>"
            + link(
                place("items", arm=arm.name, class_=name),
                f"{sum(found == name for found in arm.classes.values()):,}",
            )
            + "</td>"
            for arm in facts.arms
        )
        + f'<td class="words">{escape(meaning)}</td></tr>'
        for name, meaning in facts.classes.items()
    )
    return (
        f'<h2 id="failures">What went wrong</h2><div class="two">{flows}</div><br>'
        f'<div class="scroll"><table><thead><tr><th>class</th>{head}<th class=left>meaning</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _groups(facts: Facts) -> str:
    groups = facts.results["groups"]
    if not groups:
        return ""
    names = list(facts.results["arms"])
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows: list[str] = []
    for group in groups:
        cells: list[str] = []
        for name in names:
            known = group["arms"].get(name)
            if known is None:
                cells.append("<td>–</td>")
                continue
            href = place("items", by=group["by"], group=group["group"])
            cells.append(
                f'<td class="num">{link(href, say.share(known["estimate"]))}'
                f'<div class="small soft">{say.span(known["low"], known["high"])}, '
                f"n = {known['n']:,}</div></td>"
            )
        label = f"{group['by']} {group['group']}".replace("_", " ")
        rows.append(f"<tr><td>{text(label)}</td>{''.join(cells)}</tr>")
    return (
        '<h2 id="groups">By kind of question</h2><div class="scroll"><table><thead><tr>'
        f"<th>group</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _compat(facts: Facts) -> str:
    rows = facts.results["delegate"]
    if facts.manifest.compat != "delegate" or not rows:
        return ""
    shown = "".join(
        f"<tr><td>{escape(row['arm'])}</td><td class=left>{escape(row['figure'])}</td>"
        f"<td>{compat_figure(row, 'theirs')}</td><td>{compat_figure(row, 'ours')}</td>"
        f'<td class="words">{escape(row["why"])}</td></tr>'
        for row in rows
    )
    return (
        '<h2 id="delegate">In Delegate’s books, and in ours</h2><div class="scroll"><table><thead>'
        "<tr><th>arm</th><th class=left>figure</th><th>Delegate’s rule</th><th>ours</th>"
        f"<th class=left>why they differ</th></tr></thead><tbody>{shown}</tbody></table></div>"
    )


def compat_figure(row: dict[str, Any], side: str) -> str:
    """One of the two figures of a row, in its unit."""
    if row["unit"] == "share":
        return say.share(row[side])
    digits = {"count": 0, "tokens": 2, "per question": 2}[row["unit"]]
    return say.count(row[side], digits)


def _disagreements(facts: Facts) -> str:
    found = facts.results["disagreements"]
    if PRIMARY not in facts.checkers:
        return ""
    if not found:
        return (
            '<h2 id="disagreements">Where the checkers disagree</h2><p>Nowhere (<code>strict</code>'
            ", which asks for a marker that no prompt mentions, left out).</p>"
        )
    rows = "".join(
        f"<tr><td>{link(run_of(row['item']), row['item'])}</td>"
        f"<td class=left>{escape(row['arm'])}</td><td>{text(row['gold'])}</td>"
        f"<td class=left>{text(row['answer'][:80] or 'no answer')}</td><td class=left>"
        + "".join(
            f'<span class="chip {"yes" if row["verdicts"][name] else "no"}">'
            f"{'✓' if row['verdicts'][name] else '✗'} {name}</span>"
            for name in facts.checkers
        )
        + "</td></tr>"
        for row in found[:SHOWN_DISAGREEMENTS]
    )
    more = (
        f'<p class="small soft">The first {SHOWN_DISAGREEMENTS} of {len(found):,}; all are in '
        "report.json.</p>"
        if len(found) > SHOWN_DISAGREEMENTS
        else ""
    )
    return (
        '<h2 id="disagreements">Where the checkers disagree</h2><details><summary>'
        f"{len(found):,} answers on which numeric, flexible, math_verify and delegate are not of "
        'one mind</summary><div class="scroll"><table><thead><tr><th>question</th>'
        "<th class=left>arm</th><th>gold</th><th class=left>answer read</th>"
        f"<th class=left>verdicts</th></tr></thead><tbody>{rows}</tbody></table></div>{more}"
        "</details>"
    )


def _items(facts: Facts) -> str:
    arms = "".join(
        f'<option value="{escape(arm.name)}">{escape(arm.name)}</option>' for arm in facts.arms
    )
    classes = "".join(
        f'<option value="{escape(name)}">{escape(name.replace("_", " "))}</option>'
        for name in facts.classes
    )
    head = "".join(f"<th class=left>{escape(arm.name)}</th>" for arm in facts.arms)
    return (
        '<h2 id="items">Every question</h2><div class="tools">'
        f'<select id="by-arm" aria-label="arm"><option value="">any arm</option>{arms}</select>'
        '<select id="by-class" aria-label="class"><option value="">any end</option>'
        f'<option value="wrong">wrong</option>{classes}</select>'
        '<input id="by-text" type="search" placeholder="words of a question, or an id" '
        'aria-label="search"><button id="clear" type="button" hidden>Show all</button></div>'
        '<p class="small soft" id="found"></p><noscript><p class="notice">The list and the '
        "transcripts need JavaScript; everything above does not.</p></noscript>"
        '<div class="scroll"><table id="items-table"><thead><tr><th>question</th><th>gold</th>'
        f'{head}</tr></thead><tbody></tbody></table></div><p><br><button id="more" type="button" '
        "hidden></button></p>"
    )


def _method(facts: Facts) -> str:
    manifest = facts.manifest
    pools = "".join(
        f"<li><b>{escape(name)}</b>: {escape(pool.model)} ({escape(pool.engine)}); "
        f"{escape(_prices(pool.price))}</li>"
        for name, pool in manifest.pools.items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    profile = PurePath(manifest.profile or "as running").name
    return (
        '<h2 id="method">How this was made</h2><div class="panel small"><p><code>'
        f"{escape(' '.join(manifest.command))}</code></p><ul class=plain>{pools}</ul>"
        f"<p>{escape(versions)}; profile {escape(profile)}; "
        f"{manifest.concurrency} runs in flight.</p>"
        "<p>Intervals: Wilson for shares, percentile bootstrap over questions (10,000 resamples, "
        "seeded) for differences and costs. Tests: exact McNemar, two-sided. The dialogue of every "
        "run is in this file: open a question.</p></div>"
    )


def _prices(price: dict[str, str]) -> str:
    shown = ", ".join(f"{kind} ${value}" for kind, value in price.items() if value)
    return f"per million tokens: {shown}" if shown else "no price"


def _sums(paid: dict[str, int]) -> str:
    cells = ("calls", "prompt", "cached", "completion", "reasoning")
    return (
        "".join(f"<td>{paid[name]:,}</td>" for name in cells)
        + f"<td>{say.dollars(paid['micro_dollars'] / 1e6)}</td>"
    )


def _money(interval: dict[str, float | None]) -> str:
    """A difference in micro-dollars per question as dollars per 1,000 questions."""
    low, middle, high = (interval[key] for key in ("low", "estimate", "high"))
    if low is None or middle is None or high is None:
        return "–"
    return f"{middle / 1000:+,.2f} [{low / 1000:+,.2f}, {high / 1000:+,.2f}]".replace("-", "−")


def _amount(interval: dict[str, float | None]) -> str:
    low, middle, high = (interval[key] for key in ("low", "estimate", "high"))
    if low is None or middle is None or high is None:
        return "–"
    return f"{middle:+,.1f} [{low:+,.1f}, {high:+,.1f}]".replace("-", "−")
