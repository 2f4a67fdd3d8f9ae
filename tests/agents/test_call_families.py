"""Calls as more model families write them and as servers corrupt them: from parser tests in vLLM
and SGLang, and from public reports."""

from __future__ import annotations

import re

import pytest

from loopline.agents.call_markup import Offered, strip_calls, written_calls

OFFERED: Offered = {
    "calculate": {"type": "object", "properties": {"expression": {"type": "string"}}},
    "now": {"type": "object", "properties": {}},
}
ARGUMENTS = '{"expression": "6*7"}'
CALL = f'{{"name": "calculate", "arguments": {ARGUMENTS}}}'
MINIMAX = "]<]minimax[>["


def invoked(prefix: str) -> str:
    return (
        f'<{prefix}tool_calls>\n<{prefix}invoke name="calculate">\n<{prefix}parameter '
        f'name="expression" string="true">6*7</{prefix}parameter>\n</{prefix}invoke>\n'
        f"</{prefix}tool_calls>"
    )


def deepseek(bar: str, space: str) -> str:
    def mark(name: str) -> str:
        return f"<{bar}{name.replace('_', space)}{bar}>"

    return (
        f"{mark('tool_calls_begin')}{mark('tool_call_begin')}function{mark('tool_sep')}calculate\n"
        f"```json\n{ARGUMENTS}\n```{mark('tool_call_end')}{mark('tool_calls_end')}"
    )


INVOKED = "\n".join(invoked("｜DSML｜").splitlines()[1:-1])
MARKUPS = {
    "Apertus": f'<|tools_prefix|>[{{"calculate": {ARGUMENTS}}}]<|tools_suffix|>',
    "Hunyuan, Jamba": f"<tool_calls>[\n{CALL}\n]</tool_calls>",
    "Hunyuan 3": "<tool_calls><tool_call>calculate<tool_sep>\n<arg_key>expression</arg_key>\n"
    "<arg_value>6*7</arg_value>\n</tool_call></tool_calls>",
    "Hunyuan 4": "<tool_calls:opensource><tool_call:opensource>calculate"
    "<arg_key:opensource>expression</arg_key:opensource>"
    "<arg_value:opensource>6*7</arg_value:opensource></tool_call:opensource>"
    "</tool_calls:opensource>",
    "MiniMax M3": f'{MINIMAX}<tool_call>\n{MINIMAX}<invoke name="calculate">{MINIMAX}<expression>'
    f"6*7{MINIMAX}</expression>{MINIMAX}</invoke>\n{MINIMAX}</tool_call>",
    "Seed": "<seed:tool_call>\n<function=calculate>\n<parameter=expression>6*7</parameter>\n"
    "</function>\n</seed:tool_call>",
    "Step 3": "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
    '<steptml:invoke name="calculate"><steptml:parameter name="expression">6*7'
    "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    "LongCat": f"<longcat_tool_call>\n{CALL}\n</longcat_tool_call>",
    "LongCat, keys": "<longcat_tool_call>functions.calculate\n<longcat_arg_key>expression"
    "</longcat_arg_key>\n<longcat_arg_value>6*7</longcat_arg_value>\n</longcat_tool_call>",
    "GigaChat 3": f"function call<|role_sep|>\n{CALL}",
    "GigaChat 3.1": f"<|function_call|>{CALL}</s>",
    "GigaChat 3.5": invoked("｜GCML｜"),
    "Gemma 4": '<|tool_call>call:calculate{expression:<|"|>6*7<|"|>}<tool_call|>',
    "FunctionGemma": "<start_function_call>call:calculate{expression:<escape>6*7<escape>}"
    "<end_function_call>",
    "Gemma 3": '```tool_code\nprint(calculate(expression="6*7"))\n```',
    "HyperCLOVA": f"-> tool/function_call\n[{CALL}]",
    "Pangu": f"[unused11][{CALL}][unused12]",
    "PLaMo 3": "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>"
    "<|plamo:begin_tool_name:plamo|>calculate<|plamo:end_tool_name:plamo|>"
    "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
    f"{ARGUMENTS}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
    "<|plamo:end_tool_requests:plamo|>",
    "Solar": "<|think|>I compute.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1"
    f"<|tool_call:name|>calculate<|tool_call:args|>{ARGUMENTS}<|tool_call:end|>",
    "K2 Horizon": f"<ifm|tool_calls><ifm|tool_call>{CALL}</ifm|tool_call></ifm|tool_calls>",
    "K2 Horizon, typed": "<ifm|tool_calls><ifm|tool_call>calculate<ifm|arg_key>expression"
    "</ifm|arg_key><ifm|arg_type>string</ifm|arg_type><ifm|arg_value>6*7</ifm|arg_value>"
    "</ifm|tool_call></ifm|tool_calls>",
    "MiniCPM 5": '<function name="calculate"><param name="expression"><![CDATA[6*7]]></param>'
    "</function>",
    "Kimi K3": '<|open|>tools<|sep|><|open|>call tool="calculate" index="1"<|sep|><|open|>argument '
    'key="expression" type="string"<|sep|>6*7<|close|>argument<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|>",
    "Kimi, section in the singular": "<|tool_call_section_begin|><|tool_call_begin|>"
    f"functions.calculate:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>"
    "<|tool_call_section_end|>",
    "Kimi, no section": "<|tool_call_begin|>functions.calculate:0<|tool_call_argument_begin|>"
    f"{ARGUMENTS}<|tool_call_end|>",
    "DeepSeek, bars doubled (opencompany#2093)": invoked("｜｜DSML｜｜"),
    "DeepSeek, bars in ASCII (pythinker-code#288)": invoked("|DSML|"),
    "DeepSeek 3, bars in ASCII": deepseek("|", "▁"),
    "DeepSeek 3, one call without its list": "<｜tool▁call▁begin｜>calculate<｜tool▁sep｜>"
    f"{ARGUMENTS}<｜tool▁call▁end｜>",
    "Claude's, undecorated (claude-code#71508)": '<invoke name="calculate">\n'
    '<parameter name="expression">6*7</parameter>\n</invoke>',
    "Llama 4": '<|python_start|>[calculate(expression="6*7")]<|python_end|>',
    "Llama 4, end of turn": '[calculate(expression="6*7")]<|eot|>',
    "Llama 3, head of the turn": "<|start_header_id|>assistant<|end_header_id|>\n\n"
    f'{{"name": "calculate", "parameters": {ARGUMENTS}}}<|eot_id|>',
    "GLM 4": f"calculate\n{ARGUMENTS}",
    "Command R": 'Action: ```json\n[\n    {"tool_name": "calculate", "parameters": '
    f"{ARGUMENTS}}}\n]\n```",
    "NexusRaven": "Call: calculate(expression='6*7')<bot_end>",
    "Gorilla": "<<function>>calculate(expression='6*7')",
    "Qwen2.5-Coder": f"<tools>\n{CALL}\n</tools>",
    "smolagents": f"Action:\n{CALL}<end_code>",
    "xLAM": f'{{"tool_calls": [{CALL}]}}',
    "Granite, no ending": f"<function_call> {CALL}",
    "Phi 4, an ending": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "Mistral, an ending": f"[TOOL_CALLS][{CALL}][/TOOL_CALLS]",
    "the ending is the server's stop word": f"<tool_call>\n{CALL}\n",
    "the beginning is lost (dynamo#10115)": f"[{CALL}]</TOOLCALL>",
    "Python's quotation marks": "<tool_call>\n{'name': 'calculate', 'arguments': "
    "{'expression': '6*7'}}\n</tool_call>",
    "gpt-oss without its tokens": "analysisWe compute.assistantcommentary to=functions.calculate "
    f"json{ARGUMENTS}",
    "Qwen3.5 goes on from its thought": f"<think>\nI compute.\n<tool_call>\n{CALL}\n</tool_call>",
    "gpt-oss, the recipient first": " to=functions.calculate<|channel|>commentary json<|message|>"
    f"{ARGUMENTS}<|call|>",
    "gpt-oss, the format first": "<|channel|>commentary <|constrain|>json to=functions.calculate"
    f"<|message|>{ARGUMENTS}<|call|>",
    "gpt-oss, the channel twice": "<|channel|>commentary to=functions.calculate<|channel|>"
    f"commentary json<|message|>{ARGUMENTS}<|call|>",
    "DeepSeek 3.2, JSON": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="calculate">\n'
    f"{ARGUMENTS}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "Claude's, decorated": invoked("antml:"),
    "Phi, end of turn": f"functools[{CALL}]<|end|>",
    "Gemini's module": 'print(default_api.calculate(expression="6*7"))',
    "Gemini's module in a block": '```tool_code\ndefault_api.calculate(expression="6*7")\n```',
    "Llama 3.3, no end of the tag (zeroclaw#5670)": f"<function=calculate{ARGUMENTS}</function>",
    "Llama 3.3, in brackets (freellmapi#264)": f"<function=calculate({ARGUMENTS})></function>",
    "Llama 3.3, equals": f"<function=calculate={ARGUMENTS}</function>",
    "Kimi, the section's end is the server's stop word": "<|tool_calls_section_begin|>"
    f"<|tool_call_begin|>functions.calculate:0<|tool_call_argument_begin|>{ARGUMENTS}"
    "<|tool_call_end|>",
    "DeepSeek 3, the list's end is the server's stop word": "<｜tool▁calls▁begin｜>"
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>calculate\n"
    f"```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>",
    "Qwen3-Coder, the end is the server's stop word": "<tool_call>\n<function=calculate>\n"
    "<parameter=expression>\n6*7\n</parameter>\n</function>\n",
    # sgl-project/sglang#40236, vllm-project/vllm#51914
    "DeepSeek 4, no list": f"{INVOKED}",
    "DeepSeek 4, no end of the list": f"<｜DSML｜tool_calls>\n{INVOKED}\n",
    "DeepSeek 4, no beginning of the list": f"{INVOKED}\n</｜DSML｜tool_calls>",
    "Qwen3-Coder, no beginning of the list": "<function=calculate>\n<parameter=expression>\n6*7\n"
    "</parameter>\n</function>\n</tool_call>",
    # adolfousier/opencrabs#419
    "DeepSeek 4, corrupted ends": re.sub("</｜DSML｜param", "</param", invoked("｜DSML｜")),
    "GLM, no beginning of the value": "<tool_call>calculate<arg_key>expression</arg_key>6*7"
    "</arg_value></tool_call>",
    "Kimi K2 goes on from its thought": "<think>I compute.<|tool_calls_section_begin|>"
    f"<|tool_call_begin|>functions.calculate:0<|tool_call_argument_begin|>{ARGUMENTS}"
    "<|tool_call_end|><|tool_calls_section_end|>",
}


@pytest.mark.parametrize("markup", MARKUPS.values(), ids=MARKUPS)
def test_a_call_is_read_in_the_notation_of_its_model_family_or_server(markup: str) -> None:
    (call,) = written_calls(markup, OFFERED)
    assert (call.name, call.arguments, call.error) == ("calculate", {"expression": "6*7"}, None)
    assert strip_calls(markup, OFFERED) == ""


def coder(parameters: str) -> str:
    return f"<tool_call>\n<function=plan>\n{parameters}</function>\n</tool_call>"


PLAN: Offered = {
    "plan": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "fast": {"type": "boolean"},
            "stops": {"type": "array"},
            "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "age": {"type": ["integer", "null"]},
            "class": {"enum": ["1", "2"]},
        },
    }
}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (
            coder("<parameter=city>\nOslo\n<parameter=days>\n3\n"),
            {"city": "Oslo", "days": 3},
        ),
        (
            coder("<parameter=city>\nA </function> b\n</parameter>\n"),
            {"city": "A </function> b"},
        ),
        (coder("<parameter=fast>\nTrue\n</parameter>\n"), {"fast": True}),
        (coder("<parameter=stops>\n['a', 'b']\n</parameter>\n"), {"stops": ["a", "b"]}),
        (coder("<parameter=city>\nTrue\n</parameter>\n"), {"city": "True"}),
        ('<function="plan"><parameter="city">Oslo</parameter></function>', {"city": "Oslo"}),
        ('<invoke name="plan">\n<parameter name="city">Oslo\n</invoke>', {"city": "Oslo"}),
        ("<function=plan()></function>", {}),
        (
            '[plan(city="Oslo", fast=true, stops=[null])]',
            {"city": "Oslo", "fast": True, "stops": [None]},
        ),
        (
            '<｜DSML｜function_calls><｜DSML｜invoke name="plan"><｜DSML｜parameter name="zip" '
            'string="true">150</｜DSML｜parameter><｜DSML｜parameter name="days" string="false">3'
            "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>",
            {"zip": "150", "days": 3},
        ),
        (
            "<tool_call>plan\n<arg_key>city</arg_key>\n<arg_value>A </arg_value> b</arg_value>\n"
            "</tool_call>",
            {"city": "A </arg_value> b"},
        ),
        ('<｜DSML｜tool_calls><｜DSML｜invoke name="plan"/></｜DSML｜tool_calls>', {}),
        (coder("<parameter=zip>\n0150\n</parameter>\n"), {"zip": "0150"}),
        (coder("<parameter=zip>\n150\n</parameter>\n"), {"zip": "150"}),
        (coder("<parameter=zip>\nnull\n</parameter>\n"), {"zip": None}),
        (coder("<parameter=age>\nNone\n</parameter>\n"), {"age": None}),
        (coder("<parameter=class>\n1\n</parameter>\n"), {"class": "1"}),
        # anthropics/claude-code#83088, anthropics/claude-agent-sdk-typescript#345
        (
            coder("<parameter=city>\nOslo\n</city>\n<parameter=days>\n3\n</parameter>\n"),
            {"city": "Oslo", "days": 3},
        ),
        (
            '<invoke name="plan"><city>Oslo</city>\n<parameter name="days">3</parameter></invoke>',
            {"city": "Oslo", "days": 3},
        ),
        ('<tool_call>{"name": "plan"}</tool_call>', {}),
        ('<tool_call>{"name": "plan", "arguments": null}</tool_call>', {}),
        ('<tool_call>{"name": "plan", "arguments": ""}</tool_call>', {}),
    ],
)
def test_no_argument_is_lost_to_a_missing_end_or_a_foreign_notation(
    text: str, arguments: dict[str, object]
) -> None:
    (call,) = written_calls(text, PLAN)
    assert (call.name, call.arguments) == ("plan", arguments)


def test_the_values_of_a_tool_that_is_not_offered_are_read() -> None:
    (call,) = written_calls(coder("<parameter=days>\n3\n</parameter>\n"), OFFERED)
    assert (call.name, call.arguments) == ("plan", {"days": 3})


@pytest.mark.parametrize(
    "text",
    [
        f"<function_call> {CALL} <function_call> {CALL}",
        f"<tool_calls>\n{CALL}\n{CALL}\n</tool_calls>",
        f"[unused11][{CALL}, {CALL}][unused12]",
    ],
)
def test_several_calls_of_one_markup_are_all_read(text: str) -> None:
    assert [call.name for call in written_calls(text, OFFERED)] == ["calculate", "calculate"]


@pytest.mark.parametrize(
    "text",
    [
        "In Qwen's markup a call begins with `<function=NAME>`.",
        "[unused11] is a token of Pangu.",
        '<note name="x">6*7</note>',
        "```python\nprint(calculate(3))\n```",
        '<form action="now"><param name="x">1</param></form>',
        "Action: press the button now.",
        "Call: me (later).",
        "now\nor never {",
        '{"name": "calculate the sum", "value": 3}',
    ],
)
def test_text_that_looks_like_a_call_is_an_answer(text: str) -> None:
    assert written_calls(text, OFFERED) == []
    assert strip_calls(text, OFFERED) == text


@pytest.mark.parametrize(
    "thought",
    [
        f"<think>I might write\n<tool_call>{CALL}</tool_call>\nor not",
        f"<think>I might write <tool_call>{CALL}",
        f"<think>I might write <tool_call>{CALL}</tool_call></think>",
    ],
)
def test_a_call_in_the_middle_of_a_thought_is_not_made(thought: str) -> None:
    assert written_calls(thought, OFFERED) == []


def test_nested_values_in_minimax_calls_are_refused_by_name() -> None:
    text = (
        f'{MINIMAX}<tool_call>{MINIMAX}<invoke name="now">{MINIMAX}<a>{MINIMAX}<b>1{MINIMAX}</b>'
        f"{MINIMAX}</a>{MINIMAX}</invoke>{MINIMAX}</tool_call>"
    )
    (call,) = written_calls(text, OFFERED)
    assert (call.name, call.arguments) == ("now", None)
    assert "plain values" in (call.error or "")


WRITER: Offered = {"write": {"type": "object", "properties": {"text": {"type": "string"}}}}
_FUNCTION = "<function=write>\n<parameter=text>\n{}\n</parameter>\n</function>"
_INVOKE = '<invoke name="write"><parameter name="text">{}</parameter></invoke>'
_PAIR = "<arg_key>text</arg_key><arg_value>{}</arg_value>"
_DSML = re.sub("<(/?)", "<\\1｜DSML｜", _INVOKE)


@pytest.mark.parametrize("mention", ["a </{0}> b", "<{0}>{{}}</{0}> or <{0}>", "</{0}>"])
@pytest.mark.parametrize(
    ("mark", "form"),
    [
        ("function", _FUNCTION),
        ("tool_call", f"<tool_call>\n{_FUNCTION}\n</tool_call>"),
        ("tool_call", f"<tool_call>write{_PAIR}</tool_call>"),
        ("invoke", _INVOKE),
        ("function_calls", f"<function_calls>{_INVOKE}</function_calls>"),
        ("｜DSML｜function_calls", f"<｜DSML｜function_calls>{_DSML}</｜DSML｜function_calls>"),
    ],
)  # fmt: skip
def test_a_value_may_mention_the_marks_of_calls(mark: str, form: str, mention: str) -> None:
    value = mention.format(mark)
    text = f"Here: {form.format(value)}\nand {form.format('x')}"
    calls = written_calls(text, WRITER)
    assert [call.arguments for call in calls] == [{"text": value}, {"text": "x"}]
    assert strip_calls(text, WRITER) == "Here:\nand"


@pytest.mark.parametrize(
    "value",
    [
        "Say <function=now> to call.",
        "Say <parameter=name> to name one.",
        '/// <param name="x">A number.</param>',
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "<tool_call>\n<function=now>\n<parameter=zone>\nUTC\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_a_call_that_a_value_mentions_is_not_made(value: str) -> None:
    text = f"<tool_call>\n{_FUNCTION.format(value)}\n</tool_call>"
    (call,) = written_calls(text, WRITER)
    assert call.arguments == {"text": value}
    assert strip_calls(text, WRITER) == ""


@pytest.mark.parametrize(
    "value", ['Say <invoke name="now"> to call.', '<invoke name="now"></invoke>']
)
def test_an_invocation_that_a_value_mentions_is_not_made(value: str) -> None:
    (call,) = written_calls(f"<function_calls>{_INVOKE.format(value)}</function_calls>", WRITER)
    assert call.arguments == {"text": value}


@pytest.mark.parametrize(
    "text",
    [
        '[get-time(zone="UTC"), get-time(zone="UTC-1")]',
        'get-time(zone="UTC")\nget-time(zone="UTC-1")',
        '<tool_call>[get-time(zone="UTC"), get-time(zone="UTC-1")]</tool_call>',
        '```tool_code\nprint(default_api.get-time(zone="UTC"))\nget-time(zone="UTC-1")\n```',
    ],
)
def test_a_tool_in_python_syntax_may_have_dashes_in_its_name(text: str) -> None:
    calls = written_calls(text, {"get-time": {}})
    assert [call.name for call in calls] == ["get-time", "get-time"]
    assert [call.arguments for call in calls] == [{"zone": "UTC"}, {"zone": "UTC-1"}]


@pytest.mark.parametrize("text", ["get-time(3)-2", "get - time(zone=1)", "get-time + now(zone=1)"])
def test_a_difference_is_an_answer(text: str) -> None:
    assert written_calls(text, {"get-times": {}, "time": {}}) == []
