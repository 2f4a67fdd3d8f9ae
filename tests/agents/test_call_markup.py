"""Calls in a model's text are read in the markup of every family and never become the answer."""

from __future__ import annotations

import time

import pytest

from loopline.agents.call_markup import Offered, strip_calls, written_calls

OFFERED: Offered = {
    "calculate": {"type": "object", "properties": {"expression": {"type": "string"}}},
    "now": {"type": "object", "properties": {}},
}
ARGUMENTS = '{"expression": "6*7"}'
CALL = f'{{"name": "calculate", "arguments": {ARGUMENTS}}}'
MARKUPS = {
    "Hermes, Qwen": f"<tool_call>\n{CALL}\n</tool_call>",
    "Qwen3-Coder": "<tool_call>\n<function=calculate>\n<parameter=expression>\n6*7\n</parameter>\n"
    "</function>\n</tool_call>",
    "Llama 3.1": '{"name": "calculate", "parameters": {"expression": "6*7"}}',
    "Llama 3.1, code": f"<|python_tag|>{CALL}<|eom_id|>",
    "Llama 3.1, own tool": '<|python_tag|>calculate.call(expression="6*7")',
    "Llama 3.2, 4": '[calculate(expression="6*7")]',
    "Functionary 3.1": f"<function=calculate>{ARGUMENTS}</function>",
    "Functionary 3.2": f">>>calculate\n{ARGUMENTS}",
    "Mistral": f"[TOOL_CALLS][{CALL}]",
    "Mistral, new": f"[TOOL_CALLS]calculate[CALL_ID]abc[ARGS]{ARGUMENTS}",
    "Mistral, newest": f"[TOOL_CALLS]calculate{ARGUMENTS}",
    "DeepSeek 3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>calculate\n"
    f"```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DeepSeek 3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>calculate<｜tool▁sep｜>"
    f"{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DeepSeek 3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="calculate">\n'
    '<｜DSML｜parameter name="expression" string="true">6*7</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.calculate:0"
    f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
    "GLM": "<tool_call>calculate\n<arg_key>expression</arg_key>\n<arg_value>6*7</arg_value>\n"
    "</tool_call>",
    "MiniMax": '<minimax:tool_call>\n<invoke name="calculate">\n'
    '<parameter name="expression">6*7</parameter>\n</invoke>\n</minimax:tool_call>',
    "gpt-oss": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
    f"to=functions.calculate <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
    "Granite": f"<|tool_call|>[{CALL}]",
    "Phi": f"functools[{CALL}]",
    "Cohere": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "calculate", '
    f'"parameters": {ARGUMENTS}}}]<|END_ACTION|>',
    "LFM2": '<|tool_call_start|>[calculate(expression="6*7")]<|tool_call_end|>',
    "Olmo": '<function_calls>\ncalculate(expression="6*7")\n</function_calls>',
    "Nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "InternLM": f"<|action_start|><|plugin|>{CALL}<|action_end|>",
    "OpenAI's own": '{"type": "function", "function": {"name": "calculate", '
    '"arguments": "{\\"expression\\": \\"6*7\\"}"}}',
    "in a block of code": f"```json\n{CALL}\n```",
}


@pytest.mark.parametrize("markup", MARKUPS.values(), ids=MARKUPS)
def test_a_call_is_read_in_the_markup_of_its_family(markup: str) -> None:
    (call,) = written_calls(markup, OFFERED)
    assert (call.name, call.arguments, call.error) == ("calculate", {"expression": "6*7"}, None)
    assert strip_calls(markup, OFFERED) == ""


@pytest.mark.parametrize("markup", MARKUPS.values(), ids=MARKUPS)
def test_a_call_inside_a_thought_is_not_made(markup: str) -> None:
    text = f"<think>{markup}\nNo: I know it.</think>42"
    assert written_calls(text, OFFERED) == [] or "<|channel|>" in markup
    assert "<|channel|>" in markup or strip_calls(text, OFFERED) == "42"


@pytest.mark.parametrize(
    "text", ["The answer is 42.", "[1, 2]", '{"a": 1}', "f(x) = 2", '{"name": "Ada", "age": 3}']
)
def test_an_answer_is_not_read_as_a_call(text: str) -> None:
    assert written_calls(text, OFFERED) == []
    assert strip_calls(text, OFFERED) == text


def test_several_calls_come_in_their_order_with_the_words_around_them() -> None:
    text = f"I compute. <tool_call>{CALL}</tool_call> Then the time. <tool_call>now</tool_call>"
    assert [call.name for call in written_calls(text, OFFERED)] == ["calculate", "now"]
    assert strip_calls(text, OFFERED) == "I compute.\nThen the time."


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[TOOL_CALLS] hm", "not valid JSON"),
        (f"<tool_call>{CALL[:-1]}", "cut off before </tool_call>"),
        ('<|tool_call>call:now{a:<|"|>1}<tool_call|>', "not valid JSON"),
        ("<function_calls>calculate(6*7)</function_calls>", "must be named"),
        ("<function_calls>calculate(expression=f())</function_calls>", "plain values"),
    ],
)
def test_a_markup_that_cannot_be_read_is_a_call_with_an_error(text: str, error: str) -> None:
    (call,) = written_calls(text, OFFERED)
    assert call.arguments is None
    assert error in (call.error or "")


def test_an_example_in_a_block_of_code_stays_in_an_answer() -> None:
    text = f"Hermes models write:\n```\n<tool_call>{CALL}</tool_call>\n```\nNothing else."
    assert strip_calls(text, quoted=True) == text
    assert strip_calls(f"{text}\n<tool_call>{CALL}", quoted=True) == text


@pytest.mark.parametrize(
    "piece",
    ["<tool_call>", "<tool_call>{</tool_call>", '<tool_call>"</tool_call>', "[TOOL_CALLS]", "[",
     '<tool_call>{\\"</tool_call>', "<function=a>", "<|channel|>a to=f<|message|>", ">>>now\n",
     "[unused11][", "<|open|>tools<|sep|>", "<|plamo:begin_tool_requests:plamo|>", "Action:",
     "<|tool_call_begin|>", "<arg_key>a</arg_key><arg_value>", "]<]minimax[>[<tool_call>",
     "```\n", '<invoke name="a">', "<|python_tag|>1;", "1;"],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    started = time.process_time()
    text = "<|python_tag|>" + piece * (200_000 // len(piece))
    written_calls(piece * (200_000 // len(piece)), OFFERED)
    strip_calls(text, OFFERED, quoted=True)
    assert time.process_time() - started < 5
