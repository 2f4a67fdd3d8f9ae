"""Prints a run as a dialogue, live or from its journal: planner reasons and delegates → small model
works → answer, with tokens and milliseconds.

Models' text is untrusted: it is printed as text, never as markup, and its control characters (which
could repaint a terminal or hide text) are shown as code points.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from loopline.agents.call_markup import strip_calls
from loopline.agents.records import Call, Outcome, Step, ToolCall, Trajectory
from loopline.agents.visible_text import TextPiece, VisibleText
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.safe_text import sanitize, sanitize_line

AGENT_COLOURS = ("cyan", "green", "magenta", "blue", "yellow")
MAX_SHOWN_CHARS = 2_000
"""Maximum characters of one text; a model may write megabytes."""


MAX_HEAD_CHARS = 80
"""Maximum characters of an answer in the head of a step; the text below shows all of it."""


class DialoguePrinter:
    """Prints the steps of one run in the order of their commits, and tokens between them."""

    def __init__(self, console: Console, offered: Iterable[str] = ()) -> None:
        """`offered`: the tools whose calls are not shown as text."""
        self._console = console
        self._offered = frozenset(offered)
        self._colours: dict[str, str] = {}
        self._on_stage = ""
        """Place (`turn.branch`) whose tokens are being printed."""
        self._call = ""
        self._speaking = False
        """Whether a line of text was started and not finished."""
        self._texts: dict[str, VisibleText] = {}
        """Texts of the calls that are being printed, or were and will continue."""
        self._waiting: dict[str, list[dict[str, str]]] = {}
        self._streamed: set[str] = set()

    # -- tokens --------------------------------------------------------------------------------

    def tokens(self, fields: dict[str, str]) -> None:
        """Print new text of one call. If several branches write at the same time, one is printed
        until its step ends; the text of the others is buffered until their turn."""
        place = _place_of(fields.get("call", ""))
        if self._on_stage in ("", place):
            self._print_tokens(place, fields)
        else:
            self._waiting.setdefault(place, []).append(fields)

    def restart(self, fields: dict[str, str]) -> None:
        """Restart a call's text, which another worker generates again."""
        place = _place_of(fields.get("call", ""))
        self._texts.pop(fields.get("call", ""), None)
        if place in self._waiting:
            self._waiting[place] = []
        elif place == self._on_stage:
            self._leave_stage()
            self._console.print(
                Text(sanitize(f"({fields.get('agent', '')} starts again)"), style="yellow")
            )
        self.tokens(fields)

    def _print_tokens(self, place: str, fields: dict[str, str]) -> None:
        call = fields.get("call", "")
        agent = fields.get("agent", "")
        if call != self._call:
            if call not in self._texts:
                self._end_texts(place, agent)
            self._leave_stage()
        self._on_stage, self._call = place, call
        self._streamed.add(call)
        text = self._texts.setdefault(call, VisibleText(offered=self._offered))
        self._say(place, agent, text.feed(fields.get("text", "")))

    def _say(self, place: str, agent: str, pieces: Iterable[TextPiece]) -> None:
        """Print the visible part of a text, without its thoughts."""
        content = "".join(piece.text for piece in pieces if piece.kind == "content")
        if not content:
            return
        if not self._speaking:
            branch = place.partition(".")[2]
            label = self._label(agent, int(branch) if branch.isdigit() else 0)
            self._console.print(label, end=" ")
            self._speaking = True
        self._console.print(Text(sanitize(content), style="dim"), end="", soft_wrap=True)

    def _end_texts(self, place: str, agent: str) -> None:
        """Finish the texts at a place before its next text or its step."""
        for call in [call for call in self._texts if _place_of(call) == place]:
            self._say(place, agent, self._texts.pop(call).finish())

    def _leave_stage(self) -> None:
        if self._speaking:
            self._console.print()
        self._on_stage, self._call, self._speaking = "", "", False

    def _print_buffered(self, place: str) -> None:
        """Print the buffered text of this place."""
        for fields in self._waiting.pop(place, []):
            self._print_tokens(place, fields)

    # -- steps ---------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        """Print one committed step with its text, calls and decision."""
        place = f"{step.turn}.{step.branch}"
        if place in self._waiting:
            self._leave_stage()
            self._print_buffered(place)
        interrupted = "" if self._on_stage in ("", place) else self._on_stage
        if interrupted:
            self._leave_stage()
        self._end_texts(place, step.agent)
        self._leave_stage()
        head = self._label(step.agent, step.branch)
        head.append(f"  {sanitize(decision_of(step))}")
        head.append(f"  {_figures(step)}", style="dim")
        self._console.print(head, soft_wrap=True)
        problem = step.input.get("problem")
        if isinstance(problem, str):
            self._line(f"asked: {problem}", style="dim")
        self._calls(step)
        for approval in step.approvals:
            who = f" by {approval.by}" if approval.by else ""
            why = f": {approval.reason}" if approval.reason else ""
            self._line(f"{approval.name}: {approval.decision}{who}{why}", style="bold")
        for number, problem in enumerate(_problems(step), start=1):
            self._line(f"→ {number}. {problem}", style="bold")
        reason = step.decision.data.get("reason")
        if isinstance(reason, str) and reason:
            self._line(f"because: {reason}", style="yellow")
        if not interrupted and self._waiting:
            self._print_buffered(next(iter(self._waiting)))

    def _calls(self, step: Step) -> None:
        """Print the text of the executed candidate, and the results of its tool calls."""
        selected_calls = step.candidates[step.selected].calls if step.candidates else ()
        # A puzzle's agent calls no tools, and a team asks its judge once for all candidates.
        outputs = [*_tool_outputs(step), *([] for _ in selected_calls)]
        for call, results in zip(selected_calls, outputs, strict=False):
            if call.id not in self._streamed:
                text = _without_markup(call)
                if text:
                    self._line(text)
            for tool_call, result in zip(call.tool_calls, results, strict=False):
                if result is not None:
                    self._line(f"{_format_call(tool_call)} = {result}", style="italic")
            for result in results[len(call.tool_calls) :]:
                # For a call that a role wrote as text, which was already shown.
                self._line(f"= {result}", style="italic")
        observed = step.observation.get("text")
        if isinstance(observed, str):
            self._line(observed, style="italic")

    def _line(self, text: str, style: str = "") -> None:
        text = sanitize(text)
        if len(text) > MAX_SHOWN_CHARS:
            text = f"{text[:MAX_SHOWN_CHARS]}… ({len(text):,} characters)"
        for line in text.strip().splitlines():
            self._console.print(Text(f"    {line}", style=style), soft_wrap=True)

    # -- end -----------------------------------------------------------------------------------

    def end(self, trajectory: Trajectory) -> None:
        """Print the answer, or why there is none, and the run's totals."""
        for place in dict.fromkeys(_place_of(call) for call in self._texts):
            self._end_texts(place, "")
        self._leave_stage()
        line = Text("\n")
        if trajectory.answer is not None:
            line.append("answer  ", style="bold")
            line.append(sanitize(trajectory.answer), style="bold green")
        else:
            line.append(sanitize(ending_reason(trajectory)), style="bold red")
        self._console.print(line, soft_wrap=True)
        self._console.print(Text(summary_of(trajectory), style="dim"), soft_wrap=True)

    def _label(self, agent: str, branch: int) -> Text:
        colour = self._colours.setdefault(
            agent, AGENT_COLOURS[len(self._colours) % len(AGENT_COLOURS)]
        )
        label = f"{agent} {branch + 1}" if branch else agent
        return Text(f"{sanitize_line(label):<9}", style=f"bold {colour}")


def decision_of(step: Step) -> str:
    """Describe a decision in a few words."""
    data = step.decision.data
    match step.decision.kind:
        case "delegate":
            return f"delegates {format_count(len(_problems(step)), 'problem')}"
        case "answer":
            answer = str(data.get("answer"))
            short = len(answer) <= MAX_HEAD_CHARS and "\n" not in answer
            return f"answers {sanitize(answer)}" if short else "answers"
        case "escalate":
            return "hands over to the expert"
        case "give_up":
            return "gives up"
        case other:
            return other


def summary_of(trajectory: Trajectory) -> str:
    """Summarize steps, calls, tokens, money and time of a whole run in one line."""
    calls = [call for step in trajectory.steps for call in step.calls]
    prompt = sum(call.usage.prompt for call in calls)
    completion = sum(call.usage.completion for call in calls)
    cost = sum(call.cost_micro_dollars for call in calls) / 1e6
    seconds = max(0.0, trajectory.ended - trajectory.run.created)
    money = f", {cost:.6f} USD" if cost else ""
    return (
        f"{format_count(len(trajectory.steps), 'step')}, {format_count(len(calls), 'call')},"
        f" {prompt} + {completion} tokens{money}, {milliseconds(seconds)}"
        f"  (run {trajectory.run.id})"
    )


def ending_reason(trajectory: Trajectory) -> str:
    """Return the reason why there is no answer: `cancelled by its user`, `error: …`."""
    outcome, reason = trajectory.outcome.value, trajectory.reason or ""
    return reason if reason.startswith(outcome) else f"{outcome}: {reason}"


def succeeded(trajectory: Trajectory) -> bool:
    return trajectory.outcome in (Outcome.ANSWERED, Outcome.SOLVED)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _figures(step: Step) -> str:
    calls = step.calls
    prompt = sum(call.usage.prompt for call in calls)
    completion = sum(call.usage.completion for call in calls)
    waited = f", waited {milliseconds(step.timings.waited)}" if step.timings.waited > 0.05 else ""
    return (
        f"{prompt} + {completion} tokens,"
        f" {milliseconds(step.timings.ended - step.timings.started)}{waited}"
    )


def _problems(step: Step) -> list[str]:
    entries = step.decision.data.get("problems")
    if not isinstance(entries, list):
        return []
    problems = [cast(dict[str, Any], problem) for problem in entries if isinstance(problem, dict)]
    return [str(problem.get("problem", "")) for problem in problems]


def _tool_outputs(step: Step) -> list[list[str | None]]:
    """Return the output of each tool call, call by call; `None` for a call that was handed over."""
    turns = step.observation.get("turns")
    return [
        [_output(entry) for entry in cast(Iterable[Any], turn)]
        for turn in (turns if isinstance(turns, list) else [])
        if isinstance(turn, list)
    ]


def _output(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    output: Any = cast(dict[str, Any], entry).get("output")
    if not isinstance(output, dict):
        return None
    values = cast(dict[str, Any], output)
    if "error" in values:
        return f"error: {values['error']}"
    return ", ".join(str(value) for value in values.values())


def _format_call(call: ToolCall) -> str:
    if call.arguments is None:
        return f"{call.name}({call.raw_arguments[:80]})"
    return f"{call.name}({', '.join(str(value) for value in call.arguments.values())})"


def _without_markup(call: Call) -> str:
    """Return the text without its tool calls, which are shown differently."""
    return strip_calls(call.said, {tool_call.name: {} for tool_call in call.tool_calls})


def _place_of(call_id: str) -> str:
    """Return `turn.branch` from a call's id, `run/turn.branch/number`."""
    parts = call_id.split("/")
    return parts[1] if len(parts) == 3 else call_id
