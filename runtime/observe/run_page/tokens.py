"""A model's text, token by token, each with colours for its log-probability, its importance ratio
and whether it was learned. The page's style decides which colour is visible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from loopline.agents.records import Call, Step
from loopline.agents.thinking import split_thoughts
from loopline.runtime.observe.learned_tokens import LearnedSequence
from loopline.runtime.observe.run_page.bounds import SizeBudget
from loopline.runtime.observe.run_page.tokenizers import Tokenizers, pieces_of
from loopline.runtime.terminal.pages.templates import render

LIKELY = (0.9, 0.5, 0.2, 0.05, 0.01)
"""Limits between the colours of probabilities: class p0 is at least the first limit."""
MOVED = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
"""Limits between the colours of importance ratios: class r3 means unchanged."""

MAX_THOUGHTS = 16
"""Maximum thoughts of one completion that are marked; further ones look like answer text."""


@dataclass(frozen=True)
class TrainedCompletion:
    """One completion as a training used it."""

    sequence: LearnedSequence
    places: tuple[int | None, ...]
    """Index of each of the completion's tokens in the lists of learned tokens; None if it was
    masked."""
    ratios: tuple[float, ...]
    """Importance ratios of the whole sequence."""


class LearnedCompletions:
    """Sequences with a run's completions that trainings learned from."""

    def __init__(self, sequences: Sequence[LearnedSequence] = ()) -> None:
        self._sequences = tuple(sequences)

    def __bool__(self) -> bool:
        return bool(self._sequences)

    def of(self, call: Call, step: Step, number: int) -> TrainedCompletion | None:
        """Return the last training step that learned from a completion of candidate `number`; None
        if no step did."""
        places = (f"{step.turn}.{step.branch}/{step.agent}#{number}", step.agent)
        whole = (*call.prompt_ids, *call.output_ids)
        latest: LearnedSequence | None = None
        for sequence in self._sequences:
            same = (
                sequence.sample.partition("/")[2] in places and sequence.ids[: len(whole)] == whole
            )
            if same and (latest is None or sequence.step >= latest.step):
                latest = sequence
        return None if latest is None else _trained_completion(latest, call)


def _trained_completion(sequence: LearnedSequence, call: Call) -> TrainedCompletion:
    begin, end = len(call.prompt_ids), len(call.prompt_ids) + len(call.output_ids)
    count, places = sum(sequence.learned[:begin]), list[int | None]()
    for learned in sequence.learned[begin:end]:
        places.append(count if learned else None)
        count += learned
    return TrainedCompletion(sequence, tuple(places), sequence.ratios)


def completion_html(
    call: Call, tokenizers: Tokenizers, room: SizeBudget, learned: TrainedCompletion | None
) -> Markup:
    """Return a completion's text as HTML, coloured as far as the space and a tokenizer allow;
    thoughts are marked."""
    thought = room.text(call.reasoning) if call.reasoning else None
    thoughts = split_thoughts(call.text, opened=call.begins_in_thought).spans
    codec = tokenizers.codec(call)
    count = room.take_coloured_tokens(len(call.output_ids))
    pieces = None if codec is None or not count else pieces_of(call, codec, count)
    spans: list[tuple[str, str, str]] = []
    plain: list[tuple[bool, Markup]] = []
    cells: list[tuple[str, str]] = []
    rest: Markup | None = None
    if pieces is None:
        plain = _plain_text(call.text, thoughts, room)
        # Tokens without their text: one cell each.
        cells = [
            (_token_classes(call, at, learned), _hint(call, at, learned)) for at in range(count)
        ]
    else:
        position = 0
        for at, piece in enumerate(pieces):
            look = _token_classes(call, at, learned)
            if position >= len(call.text):
                look += " end"
            if any(start <= position < end for start, end in thoughts[:MAX_THOUGHTS]):
                look += " thought"
            if "\n" in piece and not piece.strip(" \n"):
                look += " nl"
            spans.append((look, _hint(call, at, learned), piece))
            position += len(piece)
        if count < len(call.output_ids):
            rest = room.text(call.text[position:])
    return render(
        "loopline.runtime.observe.run_page", "tokens.html.j2",
        thought=thought, spans=spans, plain=plain, rest=rest, cells=cells,
    )  # fmt: skip


def _plain_text(
    text: str, thoughts: Sequence[tuple[int, int]], room: SizeBudget
) -> list[tuple[bool, Markup]]:
    """Return the spans of a text, each with a flag for thoughts."""
    parts: list[tuple[bool, Markup]] = []
    position = 0
    for start, end in thoughts[:MAX_THOUGHTS]:
        if start > position:
            parts.append((False, room.text(text[position:start])))
        parts.append((True, room.text(text[start:end])))
        position = end
    rest = text[position:]
    if rest or not parts:
        parts.append((False, room.text(rest)))
    return parts


def legends(*, learned: bool) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Return the legend of each colouring: its title, and its colours with their meanings."""
    likely = ["≥ 0.9", "≥ 0.5", "≥ 0.2", "≥ 0.05", "≥ 0.01", "less"]
    legend_texts = {"likely": ("probability as sampled", _keys("p", likely))}
    if learned:
        moved = ["< 0.5", "< 0.8", "< 0.95", "≈ 1", "> 1.05", "> 1.25", "> 2"]
        keys = [*_keys("r", moved), ("cut-off", "no gradient")]
        legend_texts["moved"] = ("π_θ / π_behav", keys)
        legend_texts["mask"] = ("", [("m1", "learned"), ("m0", "not learned")])
    return legend_texts


def _keys(letter: str, words: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{letter}{at}", word) for at, word in enumerate(words)]


def _token_classes(call: Call, at: int, learned: TrainedCompletion | None) -> str:
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
    return " ".join(look)


def ratio_class(ratio: float) -> int:
    """Return the class of an importance ratio's colour; 3 means unchanged."""
    below = sum(ratio >= bound for bound in MOVED[:3])
    return below + sum(ratio > bound for bound in MOVED[3:])


def _hint(call: Call, at: int, learned: TrainedCompletion | None) -> str:
    parts = [f"id {call.output_ids[at]}"]
    if at < len(call.logprobs):
        logprob = call.logprobs[at]
        parts.append(f"log p {logprob:.4f}, p {math.exp(min(0.0, logprob)):.3g}")
    place = None if learned is None else learned.places[at]
    if learned is not None and place is not None:
        sequence = learned.sequence
        parts.append(
            f"π_θ/π_behav {learned.ratios[place]:.4g}, weight {sequence.weights[place]:.4g}"
        )
        if sequence.trained[place] != sequence.proximal[place]:
            apart = math.exp(min(sequence.trained[place] - sequence.proximal[place], 700.0))
            parts.append(f"π_θ/π_prox {apart:.4g}")
        if sequence.clipped[place]:
            parts.append("no gradient")
    return "; ".join(parts).replace("-", "−")


def facts_of(call: Call) -> dict[str, str]:
    """Return the facts that are shown below a completion."""
    policy, sampling, used = call.policy, call.sampling, call.usage
    policy_name = f"{policy.name} v{policy.version}"
    cached = f" ({used.cached:,} cached)" if used.cached else ""
    drawn = "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}"
    if sampling.endpoint_temperature:
        drawn = "the endpoint's own temperature"
    facts = {
        "policy": f"{policy_name}, {policy.adapter or 'no adapter'} on {policy.base}",
        "tokens": f"{used.prompt:,}{cached} + {used.completion:,}, counted by the {used.source}",
        "drawn": f"{drawn}{', within a grammar' if call.grammar_masked else ''}",
        "ended": call.finish_reason.replace("_", " "),
    }
    if sampling.top_p < 1 or sampling.top_k:
        facts["drawn"] += f", top_p {sampling.top_p:g}, top_k {sampling.top_k}"
    if call.cost_micro_dollars:
        facts["cost"] = f"${call.cost_micro_dollars / 1e6:.6f}"
    return facts
