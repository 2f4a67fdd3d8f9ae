"""Laws of text from tokens, tool calls from text, and prompts from conversations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from loopline.agents.call_markup import OPENING
from loopline.agents.records import Message, ToolCall, ToolSpec
from loopline.agents.thinking import split_thoughts
from loopline.workers.engines.scripted.engine import PackedText, render_chatml
from loopline.workers.engines.scripted.script import scripted_reply
from loopline.workers.engines.scripted.script_arithmetic import find_expression, parse, show, write
from loopline.workers.engines.text.chat_prompt import build_prompt, template_messages
from loopline.workers.engines.text.text_stream import TextStream
from loopline.workers.engines.text.tool_markup import (
    parse_tool_calls,
    strip_tool_calls,
    write_tool_call,
)

texts = st.text(max_size=60)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


class Bytes:
    """Every byte is a token: the worst tokenizer for multi-byte characters."""

    def encode(self, text: str, after: int | None = None) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        return bytes(ids).decode(errors="replace")


@given(texts, texts)
def test_packed_ids_of_two_texts_join_to_the_ids_of_both(first: str, second: str) -> None:
    codec = PackedText()
    assert codec.decode(codec.encode(first) + codec.encode(second)) == first + second


@given(st.lists(st.integers(0, 255), max_size=80))
def test_pieces_of_any_bytes_join_to_the_full_decoding(data: list[int]) -> None:
    stream = TextStream(Bytes())
    text = "".join(stream.push(token) for token in data)
    text += stream.finish()
    assert text == stream.text
    if len(data) < 64:
        assert text == bytes(data).decode(errors="replace")


@given(texts)
def test_half_a_character_is_never_shown(text: str) -> None:
    stream = TextStream(Bytes())
    for token in text.encode():
        piece = stream.push(token)
        assert "�" not in piece or "�" in text
    stream.finish()
    assert stream.text == text


@given(
    st.text(alphabet="abc😀", max_size=40),
    st.lists(st.text(alphabet="abc😀", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_text_ends_before_the_first_stop_string(text: str, stop: list[str]) -> None:
    stream = TextStream(Bytes(), stop)
    output = ""
    for token in text.encode():
        output += stream.push(token)
        if stream.stopped:
            break
    output += stream.finish()
    # The stream stops at the stop string that completes first, not the one that starts first.
    ends = [text.find(s) + len(s) for s in stop if s in text]
    if not ends:
        assert (output, stream.stopped) == (text, False)
    else:
        complete = text[: min(ends)]
        begins = min(complete.index(s) for s in stop if s in complete)
        assert (output, stream.stopped) == (text[:begins], True)


@given(texts.filter(lambda t: "<" not in t), texts, st.dictionaries(texts, json_values, max_size=3))
def test_a_written_call_reads_back(words: str, name: str, arguments: dict[str, object]) -> None:
    markup = write_tool_call(name or "x", arguments)
    if "</tool_call>" in json.dumps(arguments) or "</tool_call>" in name:
        return
    # Some models number their calls like this, or name the place of their tools.
    if re.search(r".:[0-9]{1,4}\Z", name) or name.startswith("functions."):
        return
    text = f"{words}{markup}"
    opening = OPENING.search(text)
    # Words with a mark of their own, or with a backtick that quotes this one, mean something else.
    assume(opening is not None and opening.start() == len(words))
    assume(split_thoughts(text).visible == text)
    (call,) = parse_tool_calls(text, id_seed="s")
    assert (call.name, call.arguments, call.error) == (name or "x", arguments, None)
    assert json.loads(call.raw_arguments) == arguments
    assert strip_tool_calls(text) == words.strip()


@given(st.text())
def test_no_markup_crashes_the_reader(text: str) -> None:
    for call in parse_tool_calls(f"<tool_call>{text}</tool_call><tool_call>{text}", id_seed="s"):
        assert (call.arguments is None) == (call.error is not None)


def test_a_malformed_call_reports_its_error() -> None:
    def error(body: str) -> str:
        (call,) = parse_tool_calls(f"<tool_call>{body}</tool_call>", id_seed="s")
        assert call.arguments is None
        return str(call.error)

    assert "not valid JSON" in error('{"name": "f"')
    assert "JSON object, not list" in error("[]")
    assert "no name" in error('{"arguments": {}}')
    assert "not str" in error('{"name": "f", "arguments": "3*4"}')
    assert "not valid JSON" in error("[" * 100_000)
    assert "surrogates" in error('{"name": "f", "arguments": {"a": "\\ud83d"}}')
    assert "not JSON compliant" in error('{"name": "f", "arguments": {"a": NaN}}')
    assert "levels deep" in error(f'{{"name": "f", "arguments": {{"a": {"[" * 150 + "]" * 150}}}}}')
    (cut,) = parse_tool_calls('ok <tool_call>{"name"', id_seed="s")
    assert "cut off" in str(cut.error)


def test_every_parsed_call_fits_into_a_record() -> None:
    """A model's output travels on as JSON, nested in records with their own depth."""
    nested = "[" * 60 + '"\\ud83d\\ude00"' + "]" * 60
    body = f'{{"name": "f", "arguments": {{"a": {nested}}}}}'
    (call,) = parse_tool_calls(f"<tool_call>{body}</tool_call>", id_seed="s")
    assert call.error is None
    assert ToolCall.model_validate_json(call.model_dump_json()) == call


def test_call_ids_are_stable_and_differ_by_place_and_request() -> None:
    text = write_tool_call("f", {}) * 2
    ids = [call.id for call in parse_tool_calls(text, id_seed="a")]
    assert ids == [call.id for call in parse_tool_calls(text, id_seed="a")]
    assert len({*ids, *(call.id for call in parse_tool_calls(text, id_seed="b"))}) == 4
    assert all(len(call_id) <= 40 for call_id in ids)


@given(texts, texts)
def test_a_prompt_that_extends_earlier_ids_keeps_them(before: str, rest: str) -> None:
    codec = PackedText()
    earlier = codec.encode(before)
    prompt = build_prompt(before + rest, earlier, codec)
    assert codec.decode(prompt.ids) == before + rest
    if earlier:
        assert prompt.extends_previous
        assert prompt.ids[: len(earlier)] == earlier


CONTROL = ("<|im_start|>", "<|im_end|>", "</s>", "<s>")


@given(st.lists(st.sampled_from([*CONTROL, "<", "|im_end|>", "s>", "a"]), max_size=8))
def test_no_rendered_question_contains_a_control_token(pieces: list[str]) -> None:
    messages = [Message(role=role, content="".join(pieces)) for role in ("user", "tool")]
    for shaped in template_messages(messages, CONTROL):
        assert not any(token in str(shaped["content"]) for token in CONTROL)


def test_a_template_receives_a_message_s_name_without_control_tokens() -> None:
    [shaped] = template_messages([Message(role="user", name=f"ada{CONTROL[0]}")], CONTROL)
    assert str(shaped["name"]).startswith("ada")
    assert CONTROL[0] not in str(shaped["name"])


@given(st.lists(texts, min_size=1, max_size=5))
def test_a_conversation_s_chatml_is_a_prefix_of_its_continuation(turns: list[str]) -> None:
    messages = [Message(role="user", content=turn) for turn in turns]
    shorter = render_chatml(messages, [])
    longer = [*messages, Message(role="assistant", raw_text="Yes."), Message(role="user")]
    assert render_chatml(longer, []).startswith(shorter + "Yes.")


@given(
    st.recursive(
        st.integers(0, 999).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        max_leaves=8,
    )
)
def test_a_written_expression_keeps_its_value(expression: str) -> None:
    node = parse(expression)
    if node is not None:
        again = parse(write(node))
        assert again is not None
        assert again.value == node.value


def test_hostile_expressions_are_rejected() -> None:
    assert parse("2 ** 9") is None
    assert parse("__import__('os')") is None
    assert parse("1 / 0") is None
    assert parse("(" * 5000 + "1" + ")" * 5000) is None
    assert find_expression("no numbers here") is None
    assert find_expression("call 555-1234 or 3 apples") is not None


@given(st.text(max_size=200), st.integers(0, 3), st.booleans())
def test_the_script_has_a_deterministic_answer_to_everything(
    text: str, seed: int, calculator: bool
) -> None:
    names = ["delegate", "delegate_many", "calculate"] if calculator else ["delegate"]
    tools = [ToolSpec(name=name, description="", parameters={}) for name in names]
    messages = [Message(role="user", content=text)]
    while (reply := scripted_reply(messages, tools, seed=seed)).calls:
        assert reply == scripted_reply(messages, tools, seed=seed)
        assert len(messages) < 9
        messages += [Message(role="assistant"), Message(role="tool", content="error: no")]
    assert "\\boxed{" in reply.text


def test_fractions_and_decimals_are_shown_exactly() -> None:
    texts = {e: show(node.value) for e in ("7/2", "1/3", "-3/4", "10/5") if (node := parse(e))}
    assert texts == {"7/2": "3.5", "1/3": "1/3", "-3/4": "-0.75", "10/5": "2"}
