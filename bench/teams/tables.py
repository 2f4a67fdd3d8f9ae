"""The findings of a bench of teams as one table, in the three forms that a report has."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from loopline.bench.teams import BENCHMARKS, PUZZLES

if TYPE_CHECKING:
    from loopline.bench.report.facts import Facts

HEAD = ("player", "solved", "95 %", "of")
_CAPTION = (
    "Policies with the version that played. Intervals: Wilson's where each instance was played "
    "once or all came out alike, else a bootstrap over instances. pass@k: the unbiased estimate of "
    "Chen et al. 2021 (Evaluating Large Language Models Trained on Code, equation 1)."
)
_WILSON = "Intervals: Wilson's."
_BY_HAND = {
    "plan_path": "as many answers as there are turns, each of moves chosen one by one",
    "sokoban": "pushes chosen one by one without memory, with an agent's moves",
    "sudoku": "digit after digit, in every turn anew",
    "word_problems": "one answer, by simple rules of reading",
}
"""What the players of a game do."""
_BLIND = (
    "none reads its instruction. Those that are given the oracle's calls have only to answer, "
    "which is an upper bound: most of an instruction is in its calls. 'Done.' then solves those "
    "that ask for no fact. Of those that make their own calls the best is told"
)
"""What the players of the simulated worlds do."""
_CONSTANT = "the constant that solves most, chosen by these questions' own answers"
_BLIND_AGENT = (
    "; blind: an agent alone that says the same whatever the puzzle is, the best that a search on "
    "training puzzles finds"
)


def caption(facts: Facts) -> str:
    """What a reader must know of the table."""
    manifest = facts.manifest
    match manifest.reference:
        case {"game": str(game), "baselines": dict(solved)} if solved and game in _BY_HAND:
            return f"{_CAPTION} By hand: {_BY_HAND[game]}{_BLIND_AGENT}."
        case {"baselines": dict(solved)} if solved and manifest.benchmark != PUZZLES:
            told = _BLIND if manifest.benchmark == "worlds" else _CONSTANT
            return f"{_CAPTION if manifest.benchmark in BENCHMARKS else _WILSON} By hand: {told}."
        case _:
            return _CAPTION


def rows(facts: Facts) -> list[tuple[str, str, str, str]]:
    """Player, share, interval and number; none of another benchmark."""
    found = facts.results.get(facts.manifest.benchmark)
    return [] if found is None else list(_rows(found))


def players_section(facts: Facts) -> str:
    """For the HTML report; empty for another benchmark."""
    found = rows(facts)
    if not found:
        return ""
    head = "".join(f"<th{'' if at else ' class=left'}>{word}</th>" for at, word in enumerate(HEAD))
    body = "".join(
        f'<tr><td class="words">{html.escape(player)}</td>'
        + "".join(f'<td class="num">{html.escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for player, *cells in found
    )
    return (
        '<h2 id="players">Who solves how many</h2><div class="scroll"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="small soft">{html.escape(caption(facts))}</p>'
    )


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for arm, versions in found["versions"].items():
        for one in versions:
            player = "; ".join(filter(None, (arm, one["policies"])))
            yield (player, *_figures(one, f"{one['n']:,}"))
        for k, one in found.get("pass_at_k", {}).get(arm, {}).items():
            yield (f"{arm}, pass@{k}", *_figures(one, f"{one['instances']:,} instances"))
    for name, one in found["baselines"].items():
        yield (f"by hand: {name}", *_figures(one, f"{one['n']:,}"))


def _figures(one: dict[str, Any], n: str) -> tuple[str, str, str]:
    if one["estimate"] is None:
        return "–", "–", n
    return f"{one['estimate']:.1%}", f"{one['low']:.1%} to {one['high']:.1%}", n
