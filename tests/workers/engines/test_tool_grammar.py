"""Free text with tool calls in it: the allowed tokens at each place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance.hf import from_tokenizer
from pydantic import BaseModel, ConfigDict, Field, create_model
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from loopline.agents.records import ToolSpec
from loopline.agents.tools.calculator import calculate
from loopline.agents.tools.handover import delegate, delegate_many
from loopline.workers.engines.grammar import compiler as grammar_module
from loopline.workers.engines.grammar.compiler import GrammarCompiler
from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.grammar.tool_grammar import ToolKey, parameters_text
from loopline.workers.engines.local.model_files import local_folder
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.text.tool_markup import CLOSE, OPEN, parse_tool_calls, write_tool_call
from tests.workers.engines.asking import DELEGATE

TOOLS = (calculate.spec, delegate.spec, delegate_many.spec)
ONE = {"problem": 'What is 3 · 4? Say "twelve" 😀', "expected_type": "integer"}
CALLS = [
    write_tool_call("calculate", {"expression": "12 * 7 + 5"}),
    write_tool_call("delegate", ONE),
    write_tool_call("delegate_many", {"problems": [ONE, ONE]}),
]


class Tokens:
    """A tokenizer with its compiler."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.end = int(tokenizer.convert_tokens_to_ids("<|im_end|>"))
        self.compiler = GrammarCompiler(
            lambda: from_tokenizer(tokenizer, eos_token=[self.end]), [self.end]
        )

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def allows(self, matcher: Matcher, token: int) -> bool:
        return matcher.allowed is None or bool(matcher.allowed[token // 8] >> token % 8 & 1)

    def after(self, text: str, tools: tuple[ToolSpec, ...] = TOOLS, **held_to: bool) -> Matcher:
        """Consume these tokens. Raises AssertionError at a forbidden one."""
        matcher = self.compiler.tool_matcher(tools, **held_to)
        for token in self.encode(text):
            assert self.allows(matcher, token), self.tokenizer.decode([token])
            matcher.consume(token)
        return matcher

    def led_to(self, text: str, tools: tuple[ToolSpec, ...] = TOOLS) -> Matcher:
        """Return the matcher after any text. Raises EngineError at a forbidden token."""
        matcher = self.compiler.tool_matcher(tools)
        consume_all(matcher, self.encode(text))
        return matcher

    def free(self, matcher: Matcher) -> bool:
        return self.allows(matcher, self.end)


def _plain(folder: Path) -> Any:
    """The tags are plain text here."""
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _added(folder: Path) -> Any:
    """The tags are like Qwen's: one token each, and not special."""
    tokenizer = _plain(folder)
    tokenizer.add_tokens([AddedToken(tag, special=False) for tag in (OPEN, CLOSE)])
    return tokenizer


def _special(folder: Path) -> Any:
    tokenizer = _plain(folder)
    tokenizer.add_tokens([AddedToken(tag, special=True) for tag in (OPEN, CLOSE)])
    return tokenizer


def _micro(folder: Path) -> Any:
    """Load the micro model's tokenizer, which has tokens that contain half a call."""
    return PreTrainedTokenizerFast.from_pretrained(local_folder("micro:llm"))


@pytest.fixture(scope="module", params=[_plain, _added, _special, _micro])
def tokens(request: pytest.FixtureRequest, tiny_model: Path) -> Tokens:
    return Tokens(request.param(tiny_model))


@pytest.fixture(scope="module")
def micro(tiny_model: Path) -> Tokens:
    return Tokens(_micro(tiny_model))


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> Tokens:
    return Tokens(_plain(tiny_model))


@pytest.mark.parametrize("call", CALLS)
def test_a_written_call_and_the_text_around_it_are_possible(tokens: Tokens, call: str) -> None:
    matcher = tokens.after(f"Let me see. {call}\n{call} And now </tool_call> <tool_call")
    assert tokens.free(matcher)
    assert not matcher.complete


def test_free_text_allows_every_token(plain: Tokens) -> None:
    matcher = plain.after("It costs 3 < 4 <tool <tool_call 😀")
    assert matcher.allowed is None
    matcher.consume(plain.encode("<|im_start|>")[0])
    half_a_character = plain.encode("😀")[0]
    for _ in range(2):
        matcher.consume(half_a_character)
    assert matcher.allowed is None


@pytest.mark.parametrize("cut", range(1, len(CALLS[0]) - len(OPEN), 7))
def test_the_turn_cannot_end_within_a_call(plain: Tokens, cut: int) -> None:
    assert not plain.free(plain.led_to(CALLS[0][: len(OPEN) + cut]))


@pytest.mark.parametrize(
    "text",
    [
        f'{OPEN}\n{{"name": "calculator"',
        f'{OPEN}{{"name"',
        f'{OPEN}\n{{"arguments"',
        f'{OPEN}\n{{"name": "calculate", "arguments": {{"expr"}}',
        f'{OPEN}\n{{"name": "calculate", "arguments": {{"expression": 7',
        f'{OPEN}\n{{"name": "calculate", "arguments": {{"expression": "7"}}\n{CLOSE}',
        f"a {CALLS[0]} b {OPEN} c",
        f"<tool_{OPEN}<",
    ],
)
def test_only_calls_of_offered_tools_can_be_written(tokens: Tokens, text: str) -> None:
    with pytest.raises(AssertionError):
        tokens.after(text)
    with pytest.raises(EngineError, match=r"cannot constrain|satisfy the grammar"):
        tokens.led_to(text)


def test_a_token_that_starts_another_tool_s_call_is_forbidden(micro: Tokens) -> None:
    matcher = micro.compiler.tool_matcher([calculate.spec])
    (mine,) = micro.encode('<tool_call>\n{"name": "calculate", "arguments": {"expression": "')
    (other_token,) = micro.encode('<tool_call>\n{"name": "delegate", "arguments": {"problem": "')
    assert micro.allows(matcher, mine)
    assert not micro.allows(matcher, other_token)
    assert micro.compiler.tool_matcher(TOOLS).allowed is None


def test_a_closing_tag_within_a_string_does_not_end_the_call(plain: Tokens) -> None:
    expression = f"1 {CLOSE} 2 {OPEN}"
    call = write_tool_call("calculate", {"expression": expression})
    assert plain.free(plain.after(call))
    (parsed,) = parse_tool_calls(f"x {call} y", id_seed="s")
    assert parsed.arguments == {"expression": expression}


@pytest.mark.parametrize("call", CALLS)
def test_a_completion_starts_with_its_required_call(tokens: Tokens, call: str) -> None:
    matcher = tokens.after(call, required=True)
    assert tokens.free(matcher)
    assert not matcher.complete
    assert not tokens.free(tokens.after("", required=True))
    for text in ("Let me see.", " " + call, "<tool_calls>", "\n"):
        with pytest.raises(AssertionError):
            tokens.after(text, required=True)


def test_text_and_more_calls_may_follow_a_required_call(tokens: Tokens) -> None:
    assert tokens.free(tokens.after(f"{CALLS[0]} and {CALLS[1]}.", required=True))


@pytest.mark.parametrize("required", [True, False])
def test_a_single_allowed_call_ends_the_completion(tokens: Tokens, required: bool) -> None:
    text = CALLS[0] if required else f"Let me see <tool. {CALLS[0]}"
    ids = tokens.encode(text)
    matcher = tokens.compiler.tool_matcher(TOOLS, required=required, single=True)
    for token in ids:
        assert not matcher.complete
        assert tokens.allows(matcher, token)
        matcher.consume(token)
    assert matcher.complete


def test_text_without_a_call_continues_where_a_single_call_is_allowed(tokens: Tokens) -> None:
    matcher = tokens.after("It is 89. </tool_call>", single=True)
    assert tokens.free(matcher)
    assert not matcher.complete


def test_copies_advance_independently(plain: Tokens) -> None:
    first = plain.led_to(f'{OPEN}\n{{"name": "')
    second = first.copy()
    for matcher, word in ((first, "calculate"), (second, "delegate")):
        consume_all(matcher, plain.encode(word))
    assert first.allowed != second.allowed


def test_arguments_are_an_object_even_if_the_schema_allows_more(plain: Tokens) -> None:
    assert plain.free(plain.after(write_tool_call("delegate", {"a": [1, None]}), (DELEGATE,)))
    with pytest.raises(AssertionError):
        plain.after(f'{OPEN}\n{{"name": "delegate", "arguments": [', (DELEGATE,))


def test_references_are_resolved_within_each_tool(plain: Tokens) -> None:
    def with_reference(name: str, kind: str) -> ToolSpec:
        point = {"$ref": "#/$defs/p"}
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {"p": point},
            "required": ["p"],
            "$defs": {"p": {"type": kind}},
        }
        return ToolSpec(name=name, description="", parameters=parameters)

    tools = (with_reference("a", "integer"), with_reference("b", "string"))
    plain.after(write_tool_call("a", {"p": 7}) + write_tool_call("b", {"p": "7"}), tools)
    with pytest.raises(AssertionError):
        plain.after(write_tool_call("a", {"p": "7"}), tools)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"type": "integre"}, "no object|their type is"),
        ({"type": "array"}, 'their type is "array"'),
        ({"properties": {"a": {"type": "integre"}}, "required": ["a"]}, "integre"),
        ({"properties": {"a": {"uniqueItems": True, "type": "array"}}}, "uniqueItems"),
        ({"$ref": "#/$defs/nobody"}, "nobody"),
        ({"description": "x" * 100_001}, "larger than 100000 bytes"),
        ({"properties": {"a": {"enum": []}}, "required": ["a"]}, "Unsatisfiable"),
    ],
)
def test_parameters_that_cannot_be_enforced_are_refused_with_the_tool_s_name(
    plain: Tokens, parameters: dict[str, Any], reason: str
) -> None:
    bad = ToolSpec(name="bad_one", description="", parameters=parameters)
    with pytest.raises(EngineError, match=reason) as caught:
        plain.compiler.tool_matcher([calculate.spec, bad])
    assert caught.value.kind == "bad_request"
    assert "'bad_one'" in str(caught.value)
    assert "constrain_tools = false" in str(caught.value)


def test_too_many_tools_are_refused(plain: Tokens) -> None:
    parameters: dict[str, Any] = {"type": "object", "description": "x" * 20_000}
    many = [ToolSpec(name=f"t{i}", description="", parameters=parameters) for i in range(6)]
    with pytest.raises(EngineError, match="more than the limit of 100000"):
        plain.compiler.tool_matcher(many)


def test_a_grammar_is_not_recompiled_until_its_lexer_is_full(
    tiny_model: Path,
) -> None:
    compiler = Tokens(_plain(tiny_model)).compiler
    key = ToolKey(parameters_text(TOOLS))
    assert compiler.known(key) is None
    compiler.compile_matcher(key)
    assert compiler.known(key) is not None
    (compiled,) = compiler._compiled.values()  # pyright: ignore[reportPrivateUsage]
    compiled.lexer.full = True
    assert compiler.known(key) is None
    compiler.compile_matcher(key)
    assert compiler.known(key) is not None


def consume_all(matcher: Matcher, tokens: list[int]) -> None:
    for token in tokens:
        matcher.consume(token)


def test_a_grammar_with_a_full_lexer_reports_it_to_all_its_copies(
    plain: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    import llguidance

    limits = llguidance.LLParserLimits

    def small(*, verbose_errors: bool) -> llguidance.LLParserLimits:
        return limits(verbose_errors=verbose_errors, max_lexer_states=300)

    monkeypatch.setattr(llguidance, "LLParserLimits", small)
    compiler = GrammarCompiler(lambda: from_tokenizer(plain.tokenizer), [plain.end])
    schema: dict[str, Any] = {"type": "string", "maxLength": 5000}
    text = plain.encode('"' + "abc def " * 200)
    for _ in range(2):
        matcher = compiler.matcher(schema)
        with pytest.raises(EngineError, match="too many states"):
            consume_all(matcher, text)
    (compiled,) = compiler._compiled.values()  # pyright: ignore[reportPrivateUsage]
    assert compiled.lexer.full
    assert compiled.uses == 0, "the second one was compiled again"


def test_the_number_of_cached_grammars_is_limited(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "KEPT", 2)
    compiler = Tokens(_plain(tiny_model)).compiler
    for number in (1, 2, 1, 3):
        compiler.matcher({"const": number})
    numbers = [number for number in (1, 2, 3) if compiler.known(json.dumps({"const": number}))]
    assert numbers == [1, 3]


class Exact(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _model(fields: dict[str, Any]) -> type[BaseModel]:
    return create_model("Arguments", __base__=Exact, **fields)


kinds: st.SearchStrategy[Any] = st.sampled_from(
    [
        (bool, ...), (int, Field(ge=-99, le=99)), (str, Field(max_length=6)), (int | None, None),
        (list[bool], Field(min_length=1, max_length=3)), (str, Field(pattern="^[A-F]{2}$")),
    ]
)  # fmt: skip
models = st.dictionaries(
    st.text("abcxyz_", min_size=1, max_size=4).filter(lambda name: not name.startswith("_")),
    kinds,
    max_size=4,
).map(_model)


@settings(max_examples=40)
@given(model=models, rng=st.randoms(use_true_random=False))
def test_any_sampled_call_validates(micro: Tokens, model: type[BaseModel], rng: Any) -> None:
    tool = ToolSpec(name="t", description="", parameters=model.model_json_schema())
    matcher = micro.after(OPEN, (tool, calculate.spec))
    ids: list[int] = []
    while matcher.allowed is not None and not micro.free(matcher) and len(ids) < 300:
        bits = np.unpackbits(np.frombuffer(matcher.allowed, np.uint8), bitorder="little")
        ids.append(int(rng.choice(np.flatnonzero(bits))))
        matcher.consume(ids[-1])
    if micro.free(matcher):
        (call,) = parse_tool_calls(OPEN + micro.tokenizer.decode(ids), id_seed="s")
        assert call.error is None
        assert call.arguments is not None
        if call.name == "t":
            model.model_validate(call.arguments)
        else:
            calculate.parse(call.arguments)
