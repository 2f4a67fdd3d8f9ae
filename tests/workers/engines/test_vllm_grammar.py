"""The grammar of tool calls for a vLLM server, compared with that of local engines."""

from __future__ import annotations

import numpy as np
import pytest
from llguidance import LLMatcher

from loopline.agents.records import ToolChoice
from loopline.workers.engines.grammar.compiler import GrammarCompiler, grammar_key
from loopline.workers.engines.grammar.tool_grammar import ToolKey
from loopline.workers.engines.local.model_files import local_folder
from loopline.workers.engines.local.model_text import ModelText, read_text_files
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.constraint import SpecialTokens, tool_lark
from tests.workers.engines.asking import request
from tests.workers.engines.option_conformance import PICK, WAIT

CALL = '<tool_call>\n{"name": "pick", "arguments": {"side": "left"}}\n</tool_call>'


@pytest.fixture(scope="module", params=["micro:umi", "micro:llm"])
def text(request: pytest.FixtureRequest) -> ModelText:
    settings = ModelSettings(engine="torch", model=request.param)
    return read_text_files(local_folder(request.param), settings)


def allowed(bits: bytes | None, width: int) -> np.ndarray:
    if bits is None:
        return np.ones(width, dtype=bool)
    unpacked = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")
    return unpacked[:width].astype(bool)


@pytest.mark.parametrize(
    ("choice", "parallel", "content"),
    [
        (ToolChoice(), True, f"A thought.</s>\nSo <tool {CALL} and {CALL}"),
        (ToolChoice(), False, f"Some words first. {CALL}"),
        (ToolChoice(mode="required"), True, f"{CALL} and {CALL}"),
        (ToolChoice(mode="required", name="pick"), False, CALL),
    ],
)
def test_the_server_s_grammar_allows_the_same_tokens_as_a_local_engine_s(
    text: ModelText, choice: ToolChoice, parallel: bool, content: str
) -> None:
    """They agree at every place of such a text, except for bytes that start no character, and the
    end of a turn, which a server's grammar knows only where it may end."""
    generate_request = request(tools=[PICK, WAIT], tool_choice=choice, parallel_tool_calls=parallel)
    key = grammar_key(generate_request, constrain_tools=True)
    assert isinstance(key, ToolKey)
    tokenizer = text.grammar_tokenizer()
    width = tokenizer.vocab_size
    lark = tool_lark(key, SpecialTokens.of(tokenizer, text.end_ids))
    server_matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0)
    local_matcher = GrammarCompiler(lambda: tokenizer, text.end_ids).compile_matcher(key)
    whole = np.array([_is_whole(tokenizer.decode_bytes([token])) for token in range(width)])
    whole[list(text.end_ids)] = False
    for token in text.codec.encode(content):
        here = allowed(server_matcher.compute_bitmask(), width)
        assert here[token]
        assert (here & whole).tolist() == (allowed(local_matcher.allowed, width) & whole).tolist()
        assert server_matcher.consume_token(token)
        local_matcher.consume(token)
    assert server_matcher.is_accepting()


def _is_whole(piece: bytes) -> bool:
    try:
        return bool(piece.decode())
    except UnicodeDecodeError:
        return False
