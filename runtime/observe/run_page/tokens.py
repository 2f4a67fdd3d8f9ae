"""What a model wrote, token by token, each with the colours of its log-probability, its importance
ratio and whether it was learned. Which of them is seen, the page's style decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from loopline.agents.records import Call, Step
from loopline.agents.thinking import parted
from loopline.runtime.observe.learned_tokens import LearnedSequence
from loopline.runtime.observe.run_page.bounds import Room
from loopline.runtime.observe.run_page.tokenizers import Tokenizers, pieces_of
from loopline.runtime.terminal.safe_text import harmless

LIKELY = (0.9, 0.5, 0.2, 0.05, 0.01)
"""Bounds between the colours of probabilities: class p0 is at least the first."""
MOVED = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
"""Bounds between the colours of importance ratios: class r3 is where nothing has moved."""

MOST_THOUGHTS = 16
"""Of one completion that are set apart; the others look like what was said."""


@dataclass(frozen=True)
class Learned:
    """What a training made of one completion."""

    sequence: LearnedSequence
    places: tuple[int | None, ...]
    """Of each of the completion's tokens in the lists of learned tokens; None if it was masked."""
    ratios: tuple[float, ...]
    """Of the whole sequence."""


class Lessons:
    """What trainings made of a run's completions."""

    def __init__(self, sequences: Sequence[LearnedSequence] = ()) -> None:
        self._sequences = tuple(sequences)

    def __bool__(self) -> bool:
        return bool(self._sequences)

    def of(self, call: Call, step: Step, number: int) -> Learned | None:
        """The last step of the training that learned from a completion of candidate `number`; None
        if none did."""
        places = (f"{step.turn}.{step.branch}/{step.agent}#{number}", step.agent)
        whole = (*call.prompt_ids, *call.output_ids)
        found: LearnedSequence | None = None
        for each in self._sequences:
            same = each.sample.partition("/")[2] in places and each.ids[: len(whole)] == whole
            if same and (found is None or each.step >= found.step):
                found = each
        return None if found is None else _learned(found, call)


def _learned(sequence: LearnedSequence, call: Call) -> Learned:
    begin, end = len(call.prompt_ids), len(call.prompt_ids) + len(call.output_ids)
    count, places = sum(sequence.learned[:begin]), list[int | None]()
    for learned in sequence.learned[begin:end]:
        places.append(count if learned else None)
        count += learned
    return Learned(sequence, tuple(places), sequence.ratios)


def written(call: Call, tokenizers: Tokenizers, room: Room, learned: Learned | None) -> str:
    """A completion's text as HTML, coloured as far as there is room and a tokenizer; what it only
    thought is set apart."""
    apart = ""
    if call.reasoning:
        apart = f'<div class="said thought">{room.text(call.reasoning)}</div>'
    return apart + _text(call, tokenizers, room, learned)


def _text(call: Call, tokenizers: Tokenizers, room: Room, learned: Learned | None) -> str:
    thoughts = parted(call.text, opened=call.begins_in_thought).spans
    codec = tokenizers.codec(call)
    count = room.coloured(len(call.output_ids))
    pieces = None if codec is None or not count else pieces_of(call, codec, count)
    if pieces is None:
        shown = _plain_text(call.text, thoughts, room)
        return f'<div class="said">{shown}</div>{_strip(call, count, learned)}'
    spans: list[str] = []
    position = 0
    for at, piece in enumerate(pieces):
        look = _look(call, at, learned)
        if position >= len(call.text):
            look.append("end")
        if any(start <= position < end for start, end in thoughts[:MOST_THOUGHTS]):
            look.append("thought")
        if "\n" in piece and not piece.strip(" \n"):
            look.append("nl")
        hint = escape(_hint(call, at, learned))
        shown = escape(harmless(piece))
        spans.append(f'<span class="{" ".join(look)}" title="{hint}">{shown}</span>')
        position += len(piece)
    rest = ""
    if count < len(call.output_ids):
        rest = f"<span>{room.text(call.text[position:])}</span>"
    return f'<div class="said">{"".join(spans)}{rest}</div>'


def _plain_text(text: str, thoughts: Sequence[tuple[int, int]], room: Room) -> str:
    parts: list[str] = []
    position = 0
    for start, end in thoughts[:MOST_THOUGHTS]:
        parts.append(room.text(text[position:start]) if start > position else "")
        parts.append(f'<span class="thought">{room.text(text[start:end])}</span>')
        position = end
    rest = text[position:]
    return "".join(parts) + (room.text(rest) if rest or not parts else "")


def legends(*, learned: bool) -> dict[str, str]:
    """By the way of colouring, what its colours mean, as HTML."""
    likely = ["≥ 0.9", "≥ 0.5", "≥ 0.2", "≥ 0.05", "≥ 0.01", "less"]
    found = {"likely": _legend("probability as sampled", "p", likely)}
    if learned:
        moved = ["< 0.5", "< 0.8", "< 0.95", "≈ 1", "> 1.05", "> 1.25", "> 2"]
        found["moved"] = _legend("π_θ / π_behav", "r", moved) + (
            '<span class="key t cut-off">no gradient</span>'
        )
        found["mask"] = (
            '<span class="key t m1">learned</span><span class="key t m0">not learned</span>'
        )
    return found


def _legend(name: str, letter: str, words: Sequence[str]) -> str:
    keys = "".join(
        f'<span class="key t {letter}{at}">{escape(word)}</span>' for at, word in enumerate(words)
    )
    return f'<span class="soft">{escape(name)}</span>{keys}'


def _look(call: Call, at: int, learned: Learned | None) -> list[str]:
    look = ["t"]
    if at < len(call.logprobs):
        likely = math.exp(min(0.0, call.logprobs[at]))
        look.append(f"p{sum(likely < bound for bound in LIKELY)}")
    place = None if learned is None else learned.places[at]
    if learned is None or place is None:
        look.append("m0")
    else:
        look += [f"r{ratio_class(learned.ratios[place])}", "m1"]
        if learned.sequence.clipped[place]:
            look.append("cut-off")
    return look


def ratio_class(ratio: float) -> int:
    """Which colour an importance ratio has; 3 is where nothing has moved."""
    below = sum(ratio >= bound for bound in MOVED[:3])
    return below + sum(ratio > bound for bound in MOVED[3:])


def _hint(call: Call, at: int, learned: Learned | None) -> str:
    parts = [f"id {call.output_ids[at]}"]
    if at < len(call.logprobs):
        logprob = call.logprobs[at]
        parts.append(f"log p {logprob:.4f}, p {math.exp(min(0.0, logprob)):.3g}")
    place = None if learned is None else learned.places[at]
    if learned is not None and place is not None:
        own = learned.sequence
        parts.append(f"π_θ/π_behav {learned.ratios[place]:.4g}, weight {own.weights[place]:.4g}")
        if own.trained[place] != own.proximal[place]:
            apart = math.exp(min(own.trained[place] - own.proximal[place], 700.0))
            parts.append(f"π_θ/π_prox {apart:.4g}")
        if own.clipped[place]:
            parts.append("no gradient")
    return "; ".join(parts).replace("-", "−")


def _strip(call: Call, count: int, learned: Learned | None) -> str:
    """Tokens without their text: a cell each."""
    cells = "".join(
        f'<i class="{" ".join(_look(call, at, learned))}" '
        f'title="{escape(_hint(call, at, learned))}"></i>'
        for at in range(count)
    )
    return f'<div class="strip">{cells}</div>' if cells else ""


def facts_of(call: Call) -> dict[str, str]:
    """What is said of a completion below it."""
    policy, sampling, used = call.policy, call.sampling, call.usage
    served = f"{policy.name} v{policy.version}"
    cached = f" ({used.cached:,} cached)" if used.cached else ""
    drawn = "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}"
    found = {
        "policy": f"{served}, {policy.adapter or 'no adapter'} on {policy.base}",
        "tokens": f"{used.prompt:,}{cached} + {used.completion:,}, counted by the {used.source}",
        "drawn": f"{drawn}{', within a grammar' if call.grammar_masked else ''}",
        "ended": call.finish_reason.replace("_", " "),
    }
    if sampling.top_p < 1 or sampling.top_k:
        found["drawn"] += f", top_p {sampling.top_p:g}, top_k {sampling.top_k}"
    if call.cost_micro_dollars:
        found["cost"] = f"${call.cost_micro_dollars / 1e6:.6f}"
    return found
