"""A model's thoughts are separated from its text, in one place and for every reader."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.thinking import opens_thought, split_thoughts, text_without_thoughts

_PIECES = st.sampled_from(
    ["<think>", "</think>", "[THINK]", "[/THINK]", "```\n", "```python\n", "`", '"', "\n", " ", "a",
     "<|channel|>", "<|message|>", "<|end|>", "final", "analysis", "assistantfinal", "<answer>",
     "</answer>", "{", "}"]
)  # fmt: skip


@pytest.mark.parametrize(
    ("opening", "end"),
    [
        ("<think>", "</think>"),
        ("<Thinking>", "</Thinking>"),
        ("<thought>", "</thought>"),
        ("<reasoning>", "</reasoning>"),
        ("<seed:think>", "</seed:think>"),
        ("[THINK]", "[/THINK]"),
        ("◁think▷", "◁/think▷"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|begin_of_thought|>", "<|end_of_thought|>"),
        ("<|channel>thought\n", "<channel|>"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        (
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final json<|message|>",
        ),
        ("analysis", "assistantfinal"),
        ("assistantanalysis", "assistantfinal"),
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
        ("<|think|>", "<|end|><|begin|>assistant<|content|>"),
        ("<think:opensource>", "</think:opensource>"),
        ("<ifm|think>", "</ifm|think>"),
        ("<antThinking>", "</antThinking>"),
        ("Here is my thought process:", "Here is my response:"),
        ("<unused94>thought\n", "<unused95>"),
    ],
)
def test_every_known_thought_markup_is_separated_from_the_answer(opening: str, end: str) -> None:
    whole = split_thoughts(f"{opening}We try 12 * 7 = 80.{end}\n\nIt is 84.")
    assert whole.visible.strip() == "It is 84."
    assert whole.thought == "We try 12 * 7 = 80."
    assert text_without_thoughts(f"{opening}We try 12 * 7 = 80") == ""


def test_text_before_an_unopened_closing_tag_is_thought() -> None:
    """The chat template has written the opening tag into the prompt."""
    assert split_thoughts("Is it 90? No.\n</think>\n\n96").visible == "96"
    assert split_thoughts("Is it 90? No.\n</think>\n\n96", opened=True).visible == "96"
    assert split_thoughts("Is it 90?", opened=True).visible == ""


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("What does <think> mean?<|im_end|>\n<|im_start|>assistant\n", False),
    ],
)
def test_a_prompt_shows_whether_its_completion_starts_in_a_thought(
    prompt: str, opens: bool
) -> None:
    assert opens_thought(prompt) is opens


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("<think>a <think> b</think> c</think> 96", " 96"),
        ("<think>I write <think> first.</think>96", "96"),
        ('<think>It ends with "</think>", I know.</think>96', "96"),
        ("<think>```python\nx = 1\n</think>\n```python\nx = 2\n```", "```python\nx = 2\n```"),
        ("Let me see.\n<think>1 + 1 = 3?</think>\n2", "Let me see.\n\n2"),
        ("Let me see.\n<think>1 + 1 = 3?", "Let me see."),
        ("<think>a</think>x<think>b</think>y", "x y"),
        ("<think>hm</think>\n<answer>\n5\n</answer>", "5"),
        ("<think>hm</think>\n<answer>5", "5"),
        ("<Thought>hm</Thought>\n<Output>\n5\n</Output>", "5"),
        ("<|begin_of_thought|>hm<|end_of_thought|><|begin_of_solution|>5", "5"),
        ("<|START_THINKING|>hm<|END_THINKING|><|START_TEXT|>5<|END_TEXT|>", "5"),
        ("hm<|close|>think<|sep|><|open|>response<|sep|>5<|close|>response<|sep|>", "5"),
        ("<|channel|>analysis<|message|>12*7", ""),
        ("<|channel|>final<|message|>84<|return|>", "84"),
    ],
)
def test_nested_quoted_and_truncated_thoughts_are_separated(text: str, spoken: str) -> None:
    assert text_without_thoughts(text) == spoken


@pytest.mark.parametrize(
    "text",
    [
        "R1 writes <think> before its reasons.",
        "Close it with `</think>`, or with “</think>”.",
        "```python\nre.sub(r'<think>.*?</think>', '', text)\n```\nThis takes them out.",
        '{"answer": "it ends with </think> always"}',
        "  12 ° C ~ 54 ° F.\n\nWarm.\n",
        "analysis of the data: 4",
        "",
    ],
)
def test_text_that_only_mentions_thought_tags_stays_visible(text: str) -> None:
    whole = split_thoughts(text)
    assert (whole.visible, whole.thought, whole.spans) == (text, "", ())


def test_code_that_mentions_thought_tags_after_a_thought_stays_visible() -> None:
    code = "```python\nre.sub(r'<think>.*?</think>', '', text)\n```\nok"
    assert text_without_thoughts(f"<think>a regex</think>{code}") == code


@given(st.lists(_PIECES, max_size=30).map("".join), st.booleans())
def test_spans_are_disjoint_ordered_and_cover_everything_not_visible(
    text: str, opened: bool
) -> None:
    whole = split_thoughts(text, opened=opened)
    edges = [place for span in whole.spans for place in span]
    assert edges == sorted(edges)
    assert all(0 <= start < end <= len(text) for start, end in whole.spans)
    if not whole.spans:
        assert whole.visible == text


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", "<think> </think>", "```\n", "`<think>` ", "<|channel|>", "<|start|>",
     "<|channel|>final<|message|>", "analysis\n", "<answer>", " ", "[THINK]\n```\n", '{"a":'],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """Quadratic time would take minutes."""
    started = time.process_time()
    split_thoughts(piece * (300_000 // len(piece)))
    assert time.process_time() - started < 5
