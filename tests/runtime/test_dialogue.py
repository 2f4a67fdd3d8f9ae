"""A run as a dialogue: the texts of models are shown whole, in order, and can do no harm."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from rich.console import Console

from loopline.agents.records import Candidate, Decision, Step, StepTimings
from loopline.runtime.terminal.dialogue import DialoguePrinter
from loopline.runtime.terminal.safe_text import sanitize
from tests.agents.conversations import says


def printer() -> tuple[DialoguePrinter, io.StringIO]:
    out = io.StringIO()
    return DialoguePrinter(Console(file=out, highlight=False, width=200)), out


def step(turn: int, branch: int, agent: str = "slm", **data: str) -> Step:
    return Step(
        run_id="r",
        turn=turn,
        branch=branch,
        agent=agent,
        decision=Decision(kind="answer", data=dict(data)),
        timings=StepTimings(started=0.0, ended=0.1),
        worker="w",
    )


def tokens(place: str, text: str, number: int = 0) -> dict[str, str]:
    return {"call": f"r/{place}/{number}", "agent": "slm", "text": text}


def test_parallel_branches_are_shown_one_after_the_other() -> None:
    talk, out = printer()
    talk.tokens(tokens("1.0", "first "))
    talk.tokens(tokens("1.1", "second "))
    talk.tokens(tokens("1.0", "one"))
    talk.tokens(tokens("1.1", "one"))
    talk.step(step(1, 0, answer="1"))
    talk.tokens(tokens("1.1", " more"))
    talk.step(step(1, 1, answer="2"))
    output = out.getvalue()
    assert "first one\n" in output
    assert "second one more\n" in output
    assert output.index("first one") < output.index("answers 1") < output.index("second one more")
    assert output.index("second one more") < output.index("answers 2")


def test_the_result_of_a_call_that_was_written_as_text_is_shown() -> None:
    talk, out = printer()
    caller = step(1, 0, agent="umi_caller").model_copy(
        update={
            "candidates": (Candidate(calls=(says('{"Action": "calculate"}'),)),),
            "observation": {"turns": [[{"tool": "calculate", "output": {"result": "84"}}]]},
        }
    )
    talk.step(caller)
    assert '{"Action": "calculate"}\n    = 84\n' in out.getvalue()


def of_team(selected: int, **observation: JsonValue) -> Step:
    """A step with two candidates."""
    candidates = tuple(Candidate(calls=(says(text),)) for text in ("first idea", "second idea"))
    return step(1, 0, agent="coder").model_copy(
        update={"candidates": candidates, "selected": selected, "observation": observation}
    )


def test_only_the_executed_candidate_is_shown_with_the_verdict_of_the_judge() -> None:
    talk, out = printer()
    verdict: JsonValue = {"tool": "judge.programs", "output": {"verdicts": "passed"}}
    talk.step(of_team(1, turns=[[verdict]]))
    assert "first idea" not in out.getvalue()
    assert "    second idea\n    = passed\n" in out.getvalue()


def test_a_text_without_a_tool_call_is_shown_with_the_reply_of_its_puzzle() -> None:
    talk, out = printer()
    talk.step(of_team(0, text="you moved right"))
    assert "    first idea\n    you moved right\n" in out.getvalue()


def test_a_step_without_a_candidate_is_shown() -> None:
    talk, out = printer()
    talk.step(step(1, 0, reason="no connection"))
    assert "because: no connection" in out.getvalue()


def test_a_branch_that_ends_first_is_shown_before_one_that_is_still_writing() -> None:
    talk, out = printer()
    talk.tokens(tokens("1.0", "slow "))
    talk.tokens(tokens("1.1", "quick"))
    talk.step(step(1, 1, answer="2"))
    talk.tokens(tokens("1.0", "coach"))
    talk.step(step(1, 0, answer="1"))
    output = out.getvalue()
    assert output.index("quick") < output.index("answers 2") < output.index("coach")
    assert output.index("coach") < output.index("answers 1")


def test_a_restarted_text_replaces_its_buffered_part() -> None:
    talk, out = printer()
    talk.tokens(tokens("1.0", "on stage"))
    talk.tokens(tokens("1.1", "false start"))
    talk.restart(tokens("1.1", "true start"))
    talk.step(step(1, 0, answer="1"))
    talk.step(step(1, 1, answer="2"))
    assert "false start" not in out.getvalue()
    assert "true start" in out.getvalue()


def test_a_model_can_neither_control_the_terminal_nor_use_markup() -> None:
    talk, out = printer()
    evil = "\x1b[2J\x1b]0;title\x07[bold red]not markup[/]\u202egnp.exe\r\n"
    talk.tokens(tokens("1.0", evil))
    talk.step(step(1, 0, answer=evil))
    output = out.getvalue()
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "\r" not in output
    assert "\u202e" not in output
    assert "[bold red]not markup[/]" in output


@given(st.text())
def test_sanitized_text_has_no_control_characters_except_line_feed_and_tab(text: str) -> None:
    safe_text = sanitize(text)
    assert all(
        letter in "\n\t" or letter.isprintable() or ord(letter) > 0x9F for letter in safe_text
    )


def test_characters_that_turn_hide_or_break_text_are_shown_as_escapes() -> None:
    for letter in "\u061c\u200b\u200e\u200f\u2028\u2029\u202e\u2066\u2069\ufeff":
        assert sanitize(f"a{letter}b") == f"a\\u{ord(letter):04x}b"


def test_joiners_of_letters_and_emoji_are_kept() -> None:
    """Persian needs U+200C; Hindi and emoji families need U+200D."""
    for text in ("می\u200cخواهم", "क्\u200dष", "\U0001f469\u200d\U0001f52c"):
        assert sanitize(text) == text


def test_neither_reasoning_nor_call_markup_is_streamed() -> None:
    out = io.StringIO()
    talk = DialoguePrinter(Console(file=out, highlight=False, width=200), {"delegate"})
    text = (
        "<think>What a question.</think>I ask for help.\n"
        '<tool_call>\n{"name": "delegate", "arguments": {}}\n</tool_call>'
    )
    for letter in text:
        talk.tokens(tokens("0.0", letter))
    for letter in "<think>Hm.</think>It is `<think>`, I hope.":
        talk.tokens(tokens("0.0", letter, number=1))
    talk.step(step(0, 0, answer="4"))
    output = out.getvalue()
    assert output.splitlines()[:2] == [
        "slm       I ask for help.",
        "slm       It is `<think>`, I hope.",
    ]
    assert "question" not in output
    assert "Hm." not in output
    assert "tool_call" not in output


def test_the_text_of_an_interrupted_branch_continues_where_it_stopped() -> None:
    talk, out = printer()
    talk.tokens(tokens("1.0", "<thi"))
    talk.tokens(tokens("1.1", "quick"))
    talk.step(step(1, 1, answer="2"))
    talk.tokens(tokens("1.0", "nk>slow</think>coach"))
    talk.step(step(1, 0, answer="1"))
    assert "coach" in out.getvalue()
    assert "slow" not in out.getvalue()


def test_a_long_answer_is_not_printed_with_its_step() -> None:
    talk, out = printer()
    answer = "first line\n" + "x" * 3_000
    talk.step(step(0, 0, answer=answer))
    assert "answers  " in out.getvalue()
    assert "first line" not in out.getvalue()
