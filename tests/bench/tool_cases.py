"""Cases of the tool metrics with the correct value of each metric, computed by hand.

One case per line; the docstring of the corresponding checker states the rule.
"""

from __future__ import annotations

from typing import Any

from loopline.bench.checkers.apibench import ApiVerdict
from loopline.bench.checkers.bfcl import Fault
from loopline.bench.checkers.tool_steps import ToolStep

# Predicted arguments, reference arguments, F1. With credit c, g given and w wanted arguments:
# F1 = 2·(c/g)·(c/w) / (c/g + c/w) = 2c / (g + w).
ARGUMENTS: list[tuple[str | dict[str, Any] | None, str | dict[str, Any] | None, float | None]] = [
    ('{"city": "Oslo"}', '{"city": "Oslo"}', 1.0),
    ('{"city": "Rome"}', '{"city": "Oslo"}', 0.5),
    ('{"town": "Oslo"}', '{"city": "Oslo"}', 0.0),
    ('{"city": "Oslo", "days": 3}', '{"city": "Oslo"}', 2 / 3),
    ('{"city": "Oslo"}', '{"city": "Oslo", "days": 3}', 2 / 3),
    ('{"city": "Rome", "days": 3}', '{"city": "Oslo", "days": 3}', 0.75),
    ('{"city": "Rome", "days": 2}', '{"city": "Oslo", "days": 3}', 0.5),
    ('{"a": 1, "b": 2, "c": 3}', '{"a": 1, "b": 0, "d": 3}', 0.5),
    ('{"a": 1}', '{"a": 2, "b": 2, "c": 2}', 0.25),
    ('{"a": 1, "b": 1, "c": 1}', '{"a": 2}', 0.25),
    ("{}", "{}", 1.0),
    ("", "{}", 1.0),
    (None, None, 1.0),
    ('{"a": 1}', "{}", 0.0),
    ("{}", '{"a": 1}', 0.0),
    ("{broken", '{"a": 1}', 0.0),
    ("[1, 2]", '{"a": 1}', 0.0),
    ('"a"', "{}", 0.0),
    ('{"a": 1}', "{broken", None),
    ('{"a": 1}', "[1]", None),
    ({"a": 1}, '{"a": 1.0}', 1.0),
    ('{"a": true}', '{"a": 1}', 0.5),
    ('{"a": "1"}', '{"a": 1}', 0.5),
    ('{"a": [1, 2]}', '{"a": [2, 1]}', 0.5),
    ('{"a": {"x": 1, "y": 2}}', '{"a": {"y": 2, "x": 1}}', 1.0),
    ('{"a": null}', '{"a": null}', 1.0),
]

_WEATHER = ToolStep("call", "weather", '{"city": "Oslo"}')
_ANSWER = ToolStep("finish", answer="it is sunny in oslo")
_GIVE_UP = ToolStep("give_up")

# Predicted step, reference step; then plan, action, hallucinated, argument F1, Rouge-L.
# The tools on offer are weather and flights.
StepCase = tuple[ToolStep, ToolStep, tuple[bool, bool | None, bool, float | None, float | None]]
STEPS: list[StepCase] = [
    (_WEATHER, _WEATHER, (True, True, False, 1.0, None)),
    (ToolStep("call", "weather", '{"city": "Rome"}'), _WEATHER, (True, True, False, 0.5, None)),
    (ToolStep("call", "flights", '{"city": "Oslo"}'), _WEATHER, (True, False, False, 0.0, None)),
    (ToolStep("call", "forecast", '{"city": "Oslo"}'), _WEATHER, (True, False, True, 0.0, None)),
    (ToolStep("call", "Weather", '{"city": "Oslo"}'), _WEATHER, (True, False, True, 0.0, None)),
    (ToolStep("call", "", None), _WEATHER, (True, False, False, 0.0, None)),
    (ToolStep("call"), _WEATHER, (True, False, False, 0.0, None)),
    (ToolStep(), _WEATHER, (False, False, False, 0.0, None)),
    (_ANSWER, _WEATHER, (False, False, False, 0.0, None)),
    (_GIVE_UP, _WEATHER, (False, False, False, 0.0, None)),
    (_ANSWER, _ANSWER, (True, None, False, None, 1.0)),
    (ToolStep("finish", answer="sunny"), _ANSWER, (True, None, False, None, 1 / 3)),
    (ToolStep("finish", answer=""), _ANSWER, (True, None, False, None, 0.0)),
    (ToolStep("finish"), _ANSWER, (True, None, False, None, 0.0)),
    (_WEATHER, _ANSWER, (False, None, False, None, 0.0)),
    (ToolStep("call", "forecast"), _ANSWER, (False, None, True, None, 0.0)),
    (ToolStep("give_up", answer="it is sunny in oslo"), _ANSWER, (False, None, False, None, 0.0)),
    (_GIVE_UP, _GIVE_UP, (True, None, False, None, None)),
    (ToolStep("call", "forecast"), _GIVE_UP, (False, None, True, None, None)),
    (ToolStep(), _GIVE_UP, (False, None, False, None, None)),
]

# Prediction, reference, F. With n common words of p and r: F = 2n / (p + r).
ROUGE: list[tuple[str, str, float]] = [
    ("the cat sat", "the cat sat", 1.0),
    ("The CAT, sat!", "the cat sat", 1.0),
    ("the cat", "the cat sat", 0.8),
    ("cat the", "the cat", 0.5),
    ("a b c d", "a c b d", 0.75),
    ("police killed the gunman", "police kill the gunman", 0.75),
    ("the gunman kill police", "police kill the gunman", 0.5),
    ("x y", "a b", 0.0),
    ("", "a", 0.0),
    ("a", "", 0.0),
    ("...", "...", 0.0),
    ("a a a", "a", 0.5),
    ("a", "a a a", 0.5),
    ("3.5 °C", "3 5 c", 1.0),
    ("été", "ete", 0.0),
    ("b a b a", "a b a b", 0.75),
]

# Output, the calls read from it as (name, arguments, positional), or None if there are none.
ReadCall = tuple[str, dict[str, Any], int]
OUTPUTS: list[tuple[str, list[ReadCall] | None]] = [
    ("[f(a=1)]", [("f", {"a": 1}, 0)]),
    ("f(a=1)", [("f", {"a": 1}, 0)]),
    ("f(a=1), g()", [("f", {"a": 1}, 0), ("g", {}, 0)]),
    (
        "[m.f(a='x', b=[1, 2.5]), g(c={'k': None})]",
        [("m.f", {"a": "x", "b": [1, 2.5]}, 0), ("g", {"c": {"k": None}}, 0)],
    ),
    ("```python\n[f(a=-1)]\n```", [("f", {"a": -1}, 0)]),
    ("`f(a=True)`", [("f", {"a": True}, 0)]),
    ("f(1, b=2)", [("f", {"b": 2}, 1)]),
    ("f(a=(1, 2))", [("f", {"a": (1, 2)}, 0)]),
    ("f(a=2*3)", [("f", {"a": 6}, 0)]),
    ("f(a=10**3)", [("f", {"a": 1000}, 0)]),
    ("f(a=9**9**9)", [("f", {"a": "9 ** 9 ** 9"}, 0)]),
    ("f(a=1/0)", [("f", {"a": "1 / 0"}, 0)]),
    ("f(a=x)", [("f", {"a": "x"}, 0)]),
    ("f(a=g(2))", [("f", {"a": "g(2)"}, 0)]),
    ("f(a=__import__('os').system('x'))", [("f", {"a": "__import__('os').system('x')"}, 0)]),
    ("f(**x)", [("f", {"**": "x"}, 0)]),
    ("[]", []),
    ('{"name": "f", "arguments": {"a": 1}}', [("f", {"a": 1}, 0)]),
    ('[{"name": "f", "arguments": "{\\"a\\": 1}"}]', [("f", {"a": 1}, 0)]),
    ('{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1}, 0)]),
    ('[{"function": {"name": "f", "arguments": {}}}]', [("f", {}, 0)]),
    ('[{"f": {"a": 1}}, {"g": {}}]', [("f", {"a": 1}, 0), ("g", {}, 0)]),
    ('```json\n[{"name": "f", "arguments": {}}]\n```', [("f", {}, 0)]),
    ('{"name": "f", "arguments": ""}', [("f", {}, 0)]),
    ('{"name": "f", "arguments": null}', [("f", {}, 0)]),
    ('{"name": "f", "arguments": [1]}', None),
    ('{"name": "f", "arguments": {"a": 1}', None),
    ("I cannot help with that.", None),
    ("[f(a=1), 3]", None),
    ("f(a=1", None),
    ("", None),
]

# A small hub: name and arguments of the call, the domain; and outputs to judge.
APIS: list[tuple[str, str]] = [
    ("AutoModel.from_pretrained('org/model')", "Features"),
    ("AutoModel.from_pretrained('org/model-large')", "Fill-Mask"),
    ("pipeline('text-classification', model='org/clf')", "Classification"),
    ("hub.load('https://hub/a/1')", "Features"),
    ("hub.load('https://hub/a/1')", "Classification"),
    ("pipeline('summarization', model='org/sum').", "Summaries"),
]
API_OUTPUTS: list[tuple[str, str, ApiVerdict]] = [
    ("AutoModel.from_pretrained('org/model')", "Features", ApiVerdict.RIGHT),
    ('AutoModel.from_pretrained("org/model", cache_dir=None)', "Features", ApiVerdict.RIGHT),
    ("m = AutoModel.from_pretrained(name='org/model')", "Features", ApiVerdict.RIGHT),
    (
        "<<<domain>>>: F\n<<<api_call>>>: AutoModel.from_pretrained('org/model')\n"
        "<<<api_provider>>>: Hub\n<<<code>>>: f('x')",
        "Features",
        ApiVerdict.RIGHT,
    ),
    (
        "{'api_call': 'm = AutoModel.from_pretrained('org/model')', 'api_provider': 'Hub'}",
        "Features",
        ApiVerdict.RIGHT,
    ),
    ("AutoModel.from_pretrained('org/model').", "Features", ApiVerdict.RIGHT),
    ("Use AutoModel.from_pretrained('org/model') here.", "Features", ApiVerdict.RIGHT),
    ("AutoModel.from_pretrained('org/model')", "Fill-Mask", ApiVerdict.OTHER_DOMAIN),
    ("AutoModel.from_pretrained('org/model-large')", "Fill-Mask", ApiVerdict.RIGHT),
    ("AutoModel.from_pretrained('org/model-huge')", "Features", ApiVerdict.UNKNOWN_ARGUMENTS),
    ("AutoModel.from_pretrained()", "Features", ApiVerdict.UNKNOWN_ARGUMENTS),
    ("AutoModel.from_pretrain('org/model')", "Features", ApiVerdict.UNKNOWN_FUNCTION),
    ("from_pretrained('org/model')", "Features", ApiVerdict.UNKNOWN_FUNCTION),
    ("pipeline(model='org/clf', task='text-classification')", "Classification", ApiVerdict.RIGHT),
    ("pipeline('org/clf')", "Classification", ApiVerdict.UNKNOWN_ARGUMENTS),
    ("hub.load('https://hub/a/1')", "Features", ApiVerdict.RIGHT),
    ("hub.load('https://hub/a/1')", "Classification", ApiVerdict.RIGHT),
    ("hub.load('https://hub/a/1')", "Fill-Mask", ApiVerdict.OTHER_DOMAIN),
    ("pipeline('summarization', model='org/sum')", "Summaries", ApiVerdict.RIGHT),
    ("x = 3", "Features", ApiVerdict.NO_CALL),
    ("I do not know.", "Features", ApiVerdict.NO_CALL),
    ("", "Features", ApiVerdict.NO_CALL),
]

TYPES: dict[str, dict[str, Any]] = {
    "n": {"type": "integer"},
    "x": {"type": "float"},
    "s": {"type": "string"},
    "b": {"type": "boolean"},
    "l": {"type": "array", "items": {"type": "string"}},
    "k": {"type": "array", "items": {"type": "integer"}},
    "t": {"type": "tuple", "items": {"type": "float"}},
    "d": {"type": "dict"},
    "e": {"type": "array", "items": {"type": "dict"}},
    "a": {"type": "any"},
}
"""The parameters of `f`, of which none is required."""

# Possible values by argument, the arguments given, the first fault or None.
BFCL: list[tuple[dict[str, list[Any]], dict[str, Any], Fault | None]] = [
    ({"n": [3]}, {"n": 3}, None),
    ({"n": [3]}, {"n": 4}, "wrong value"),
    ({"n": [3]}, {"n": 3.0}, "wrong type"),
    ({"n": [3]}, {"n": "3"}, "wrong type"),
    ({"n": [1]}, {"n": True}, "wrong type"),
    ({"n": [3]}, {}, "missing argument"),
    ({"n": [3, ""]}, {}, None),
    ({"n": [3, ""]}, {"n": 4}, "wrong value"),
    ({"n": [3]}, {"n": 3, "s": "x"}, "unexpected argument"),
    ({"n": [3]}, {"n": 3, "zzz": 1}, "unexpected argument"),
    ({"n": [3]}, {"n": None}, "wrong type"),
    ({"x": [2.0]}, {"x": 2}, None),
    ({"x": [2]}, {"x": 2.0}, None),
    ({"x": [2.5]}, {"x": 2}, "wrong value"),
    ({"x": [2.5]}, {"x": 10**400}, "wrong value"),
    ({"b": [True]}, {"b": True}, None),
    ({"b": [True]}, {"b": 1}, "wrong type"),
    ({"b": [True]}, {"b": "true"}, "wrong type"),
    ({"s": ["New York, NY"]}, {"s": "new york ny"}, None),
    ({"s": ["April 1, 2024"]}, {"s": "April 1,2024"}, None),
    ({"s": ["a-b_c"]}, {"s": "A.B/C"}, None),
    ({"s": ["it's"]}, {"s": 'it"s'}, None),
    ({"s": ["New York"]}, {"s": "Newer York"}, "wrong value"),
    ({"s": ["cm", ""]}, {"s": ""}, None),
    ({"s": ["cm"]}, {"s": ""}, "wrong value"),
    ({"s": ["a;b"]}, {"s": "ab"}, "wrong value"),
    ({"l": [["A b", "c"]]}, {"l": ["a-B", "C"]}, None),
    ({"l": [["a", "c"]]}, {"l": ["c", "a"]}, "wrong value"),
    ({"l": [["a"]]}, {"l": "a"}, "wrong type"),
    ({"l": [["a"]]}, {"l": [1]}, "wrong type"),
    ({"l": [["a", "b"], ["b", "a"]]}, {"l": ["b", "a"]}, None),
    ({"l": [["a"], ""]}, {"l": []}, None),
    ({"l": [["a"]]}, {"l": []}, "wrong value"),
    ({"k": [[1, 2]]}, {"k": [1, 2]}, None),
    ({"k": [[1, 2]]}, {"k": [1, 2.0]}, "wrong type"),
    ({"k": [[1, 2]]}, {"k": (1, 2)}, "wrong type"),
    ({"t": [[1.5, 2.5]]}, {"t": (1.5, 2.5)}, None),
    ({"t": [[1.5, 2.5]]}, {"t": [1.5, 2.5]}, None),
    ({"t": [[1.5, 2.5]]}, {"t": (2.5, 1.5)}, "wrong value"),
    ({"d": [{"u": ["Kg"], "v": [1, 2]}]}, {"d": {"u": "kg", "v": 2}}, None),
    ({"d": [{"u": ["kg"], "v": [1]}]}, {"d": {"v": 1}}, "wrong value"),
    ({"d": [{"u": ["kg", ""], "v": [1]}]}, {"d": {"v": 1}}, None),
    ({"d": [{"u": ["kg"]}]}, {"d": {"u": "kg", "w": 1}}, "wrong value"),
    ({"d": [{"u": ["kg"]}]}, {"d": {"u": "lb"}}, "wrong value"),
    ({"d": [{"u": ["kg"]}, ""]}, {"d": {}}, "wrong value"),
    ({"d": [{"u": ["kg"]}]}, {"d": ["u"]}, "wrong type"),
    ({"e": [[{"u": ["a"]}, {"u": ["b"]}]]}, {"e": [{"u": "A"}, {"u": "B"}]}, None),
    ({"e": [[{"u": ["a"]}, {"u": ["b"]}]]}, {"e": [{"u": "b"}, {"u": "a"}]}, "wrong value"),
    ({"e": [[{"u": ["a"]}]]}, {"e": [{"u": "a"}, {"u": "a"}]}, "wrong value"),
    ({"e": [[{"u": ["a"]}]]}, {"e": ["u"]}, "wrong type"),
    ({"l": [["a"], 3]}, {"l": ["b"]}, "wrong value"),
    ({"e": [[{"u": ["a"]}], 3]}, {"e": []}, "wrong value"),
    ({"n": ["count"]}, {"n": "count"}, None),
    ({"n": ["count"]}, {"n": "Count"}, "wrong value"),
    ({"n": ["count"]}, {"n": 3}, "wrong value"),
    ({"a": [5]}, {"a": 5}, None),
    ({"a": [5]}, {"a": "5"}, "wrong value"),
    ({"a": ["my_data"]}, {"a": "mydata"}, None),
]  # fmt: skip
