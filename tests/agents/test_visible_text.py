"""A model's text is shown while it is generated: everything certain, and nothing else."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loopline.agents.call_markup import strip_calls
from loopline.agents.records import JsonObject
from loopline.agents.thinking import split_thoughts
from loopline.agents.visible_text import TextPiece, VisibleText

OFFERED = ("calculate", "now", "get-it")
CALL = '{"name": "calculate", "arguments": {"expression": "6*7"}}'
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
_MARKS = [
    "<think>", "</think>", "<think>\n", "\n</think>\n\n", "[THINK]", "[/THINK]", "`<think>`",
    "<|channel>thought", "<channel|>", "```", "```\n", "```python\n", "\n~~~", "`", '"', "'", "“",
    "”", "\n", " ", "  ", "\t", "a", "b c", ".", ",", "<|channel|>", "<|message|>", "<|end|>",
    "now", "<|start|>", "final", "analysis", "assistantfinal", "commentary to=functions.now ",
    "<|call|>", "<answer>", "</answer>", "{", "}", "[", "]", "1", "(", ")", "İ",
    "Here is my thought process:",
    "Here's my response:", "<tool_call>", "</tool_call>", CALL, "calculate", '(expression="1")',
    "[TOOL_CALLS]", "<function=now>", "</function>", "<|tool_call|>", ">>>now\n", ">>>",
    "functools", "Action:", "<tools>", "print", "now\n{", "<|tool_call_begin|>", "[unused11][",
    '<invoke name="now">', "</invoke>", "<|open|>tools<|sep|>", "<|eot|>", "<think:opensource>",
    "</ifm|think>", "<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|think|>",
    "assistantanalysis", "<|end|><|begin|>assistant<|content|>", ANALYSIS, FINAL, "\r\n", "\\",
    "<parameter=a>", "</parameter>", "get-it", "get", "-it(", "-", "<arg_value>", "</arg_value>",
]  # fmt: skip
_TEXTS = st.lists(st.sampled_from(_MARKS) | st.text(max_size=3), max_size=14).map("".join)
_OFFERS = st.sampled_from([(), OFFERED])


def _shown(pieces: list[TextPiece], kind: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def _whole(text: str, opened: bool, offered: tuple[str, ...]) -> tuple[str, str]:
    tools: dict[str, JsonObject] = {name: {} for name in offered}
    whole = split_thoughts(text, opened=opened)
    return whole.thought, strip_calls(text, tools, opened=opened) if offered else whole.visible


@given(_TEXTS, st.booleans(), _OFFERS, st.lists(st.integers(1, 20), max_size=20))
@example("x</think>y", False, (), [])
def test_all_pieces_together_equal_the_visible_part_of_the_whole_text(
    text: str, opened: bool, offered: tuple[str, ...], sizes: list[int]
) -> None:
    visible = VisibleText(opened, offered)
    pieces: list[TextPiece] = []
    position = 0
    for size in sizes:
        pieces += visible.feed(text[position : position + size])
        position += size
    pieces += visible.feed(text[position:])
    pieces += visible.finish()
    thought, content = _whole(text, opened, offered)
    if visible.corrected:
        assert _shown(pieces, "content").endswith(content)
    else:
        assert _shown(pieces, "content") == content
        assert _shown(pieces, "reasoning") == thought


@given(_TEXTS, st.booleans(), _OFFERS)
@example("0²", False, OFFERED)
@example("assistantanalysis0", False, ())
def test_the_visible_text_does_not_depend_on_how_the_text_was_split(
    text: str, opened: bool, offered: tuple[str, ...]
) -> None:
    visible = VisibleText(opened, offered)
    pieces: list[TextPiece] = []
    for position, character in enumerate(text):
        pieces += visible.feed(character)
        at_once = VisibleText(opened, offered).feed(text[: position + 1])
        for kind in ("content", "reasoning"):
            assert _shown(pieces, kind) == _shown(at_once, kind), (position, kind)


_WORDS = st.text("ab c.\n", max_size=12)


@given(_WORDS, _WORDS.filter(str.strip), st.booleans(), st.sampled_from(["<think>", "[THINK]"]))
def test_a_thinking_model_s_text_is_shown_completely_and_never_corrected(
    thought: str, answer: str, opened: bool, opening: str
) -> None:
    end = opening.replace("<", "</").replace("[", "[/")
    visible = VisibleText(opened)
    pieces: list[TextPiece] = []
    for character in f"{'' if opened else opening}{thought}{end}\n\n{answer}":
        pieces += visible.feed(character)
    # White space may end the text; these words contain no code mark or delimiter.
    assert _shown(pieces, "reasoning") == thought.strip()
    assert _shown(pieces, "content").strip() == answer.strip()
    visible.finish()
    assert not visible.corrected


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        ("Paris is a <", "Paris is a", ""),
        ("Paris <b> is", "Paris <b> is", ""),
        ("<think>It is </thi", "", "It is"),
        ("<think>a</think>\n\nParis `</think", "Paris `", "a"),
        ("I write <think> before", "I write", ""),
        ("I write <think>now: it", "I write", "now: it"),
        ("```python\nx = 1\n", "```python\nx = 1", ""),
        ("```python\nx = '<think> </think>'\ny = 1", "```python\nx = '", ""),
        ("```\n'<think> </think>'\n```\nok", "```\n'<think> </think>'\n```\nok", ""),
        (f"{ANALYSIS}hm<|end|><|start|>assistant{FINAL}Pa", "Pa", "hm"),
        ("I compute. <tool_c", "I compute.", ""),
        (f"I compute. <tool_call>{CALL}</tool_call> Then", "I compute.\nThen", ""),
        ("calculate the sum", "calculate the sum", ""),
        ("calculate(", "", ""),
        ("[link](a) is", "[link](a) is", ""),
        ('{"answer": 4', "", ""),
        ('{"answer": 4}', '{"answer": 4}', ""),
        ("{x | x > 0", "{x | x > 0", ""),
        (CALL, "", ""),
    ],
)  # fmt: skip
def test_only_ambiguous_text_is_held_back(text: str, content: str, reasoning: str) -> None:
    pieces = VisibleText(offered=OFFERED).feed(text)
    assert (_shown(pieces, "content"), _shown(pieces, "reasoning")) == (content, reasoning)


def test_json_is_streamed_where_no_tool_is_offered() -> None:
    pieces = VisibleText().feed('{"answer": [1, "a')
    assert _shown(pieces, "content") == '{"answer": [1, "a'


def test_an_answer_follows_a_shown_thought_after_a_blank_line() -> None:
    visible = VisibleText()
    pieces = [*visible.feed("Is it 90? No.\n</think>\n\n96"), *visible.finish()]
    assert _shown(pieces, "content") == "Is it 90? No.\n\n96"
    assert visible.corrected


def test_a_finished_text_accepts_no_more_pieces() -> None:
    visible = VisibleText()
    visible.finish()
    with pytest.raises(ValueError, match="has ended"):
        visible.feed("a")


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", "<think> </think>", "a <think>", "```\n", "```\n<think>", "`<think>` ",
     "`a", "<|channel|>", "<|start|>", "<|channel|>final<|message|>", "<|message|>", "analysis\n",
     "<answer>", " ", "\n", "<", ">~~~", "~", "<tool_call>", '<tool_call>{"</tool_call>', "[",
     "<function=a>", ">>>now\n", ">>>no\n", '{"a":', '["', "functools", "here is my ", "x"],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 1_000])
def test_hostile_text_is_read_in_linear_time(piece: str, size: int) -> None:
    """Quadratic time would take minutes."""
    text = piece * (20_000 // len(piece))
    started = time.process_time()
    visible = VisibleText(offered=OFFERED)
    for begin in range(0, len(text), size):
        visible.feed(text[begin : begin + size])
    visible.finish()
    assert time.process_time() - started < 10
