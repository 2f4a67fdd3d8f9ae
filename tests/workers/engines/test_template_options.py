"""`template_options`: a profile's switches of a chat template, and the refused ones."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.defaults import DEFAULT_NAMESPACE
from pydantic import ValidationError
from transformers import PreTrainedTokenizerFast

from loopline.agents.records import Message
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.openai.wire import request_body
from loopline.workers.engines.protocol import Completion, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.loading import load_model
from tests.workers.engines.asking import request
from tests.workers.engines.tiny_model import NO_THOUGHT, THINKING_TEMPLATE

BEGUN = "<|im_start|>assistant\n"


@pytest.fixture
def thinking_model(tiny_model_copy: Path) -> Path:
    (tiny_model_copy / "chat_template.jinja").write_text(THINKING_TEMPLATE)
    return tiny_model_copy


def settings(
    options: dict[str, object], model: Path | str = "m", engine: str = "torch"
) -> ModelSettings:
    return ModelSettings.model_validate(
        {"engine": engine, "model": str(model), "template_options": options}
    )


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ({}, BEGUN),
        ({"enable_thinking": True}, BEGUN),
        ({"enable_thinking": False}, f"{BEGUN}{NO_THOUGHT}"),
        # The value of `--set models.llm.template_options.enable_thinking=false`.
        ({"enable_thinking": "false"}, f"{BEGUN}{NO_THOUGHT}"),
    ],
)
async def test_an_engine_answers_after_an_empty_thought_when_thinking_is_off(
    thinking_model: Path, options: dict[str, object], ending: str
) -> None:
    engine = build_engine(settings(options, thinking_model))
    await engine.start()
    try:
        generate_request = request(sampling={"max_tokens": 1})
        (completion,) = [
            event
            async for event in engine.submit(generate_request)
            if isinstance(event, Completion)
        ]
    finally:
        await engine.close()
    codec = load_model(settings({}, thinking_model)).codec
    prompt = codec.decode(completion.prompt_ids)
    assert prompt.endswith(ending)
    assert prompt.count("<think>") == ending.count("<think>")


@pytest.mark.parametrize(("of_pool", "of_request"), [(True, False), (False, True), (None, False)])
async def test_a_request_s_switch_overrides_its_pool_s(
    thinking_model: Path, of_pool: bool | None, of_request: bool
) -> None:
    pool: dict[str, object] = {} if of_pool is None else {"enable_thinking": of_pool}
    engine = build_engine(settings(pool, thinking_model))
    await engine.start()
    try:
        switched = request(
            sampling={"max_tokens": 1}, template_options={"enable_thinking": of_request}
        )
        (completion,) = [e async for e in engine.submit(switched) if isinstance(e, Completion)]
        unread = request(template_options={"enable_thinkin": False})
        with pytest.raises(EngineError, match="did you mean enable_thinking") as refused:
            _ = [event async for event in engine.submit(unread)]
        assert refused.value.kind == "bad_request"
    finally:
        await engine.close()
    codec = load_model(settings({}, thinking_model)).codec
    ending = BEGUN if of_request else f"{BEGUN}{NO_THOUGHT}"
    assert codec.decode(completion.prompt_ids).endswith(ending)


async def test_an_engine_without_a_template_refuses_a_request_s_switches() -> None:
    engine = build_engine(ModelSettings(engine="scripted", model="m"))
    await engine.start()
    try:
        switched = request(template_options={"enable_thinking": False})
        with pytest.raises(EngineError, match="has no chat template to pass them to"):
            _ = [event async for event in engine.submit(switched)]
    finally:
        await engine.close()


def test_a_gguf_model_renders_with_the_same_options(thinking_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    from loopline.trainers.export.gguf import export_gguf
    from loopline.trainers.export.precision import Precision
    from loopline.workers.engines.llama_cpp.loading import load_gguf

    file = tmp_path / "thinking.gguf"
    export_gguf(thinking_model, file, Precision.F16)
    loaded = load_gguf(settings({"enable_thinking": False}, file, "llama_cpp"))
    try:
        messages = [Message(role="user", content="Why?")]
        assert loaded.render(messages, []).endswith(f"{BEGUN}{NO_THOUGHT}")
    finally:
        loaded.close()
    with pytest.raises(EngineError, match="did you mean enable_thinking"):
        load_gguf(settings({"enable_thinkin": False}, file, "llama_cpp"))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("enable_thinkin", "use template_options.enable_thinkin; did you mean enable_think"),
        ("reasoning_effort", "does not use template_options.reasoning_effort; leave it out"),
    ],
)
def test_an_option_that_the_template_ignores_is_refused_when_the_model_loads(
    thinking_model: Path, option: str, words: str
) -> None:
    with pytest.raises(EngineError, match=words):
        load_model(settings({option: False}, thinking_model))


def test_an_endpoint_receives_the_options_and_openai_itself_does_not() -> None:
    local_settings = ModelSettings.model_validate(
        {
            "engine": "openai", "model": "m", "base_url": "http://localhost:8000/v1",
            "template_options": {"enable_thinking": False},
        }
    )  # fmt: skip
    sent = request_body(request(), local_settings)
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    switched = request(template_options={"enable_thinking": True, "style": "short"})
    sent = request_body(switched, local_settings)
    assert sent["chat_template_kwargs"] == {"enable_thinking": True, "style": "short"}
    with pytest.raises(ValidationError, match="an endpoint of your own"):
        settings({"enable_thinking": False}, engine="openai")
    with pytest.raises(ValidationError, match="has no chat template"):
        settings({"enable_thinking": False}, engine="scripted")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("messages", "x", "given to the chat template already"),
        ("eos_token", "x", "given to the chat template already"),
        ("chat_template", "x", "given to the chat template already"),
        ("__class__", True, "is not a variable name"),
        ("enable thinking", True, "is not a variable name"),
        ("style", "<|im_end|>", "has at most 100 letters"),
        ("style", "{{ messages }}", "has at most 100 letters"),
        ("style", "a\nb", "has at most 100 letters"),
        ("style", "x" * 101, "has at most 100 letters"),
        ("budget", float("inf"), "finite number"),
        ("nested", {"a": 1}, "valid"),
        ("nothing", None, "valid"),
    ],
)
def test_an_invalid_switch_is_refused_with_the_reason(name: str, value: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings({name: value})


def test_the_number_of_template_options_is_limited() -> None:
    with pytest.raises(
        ValidationError, match="17 options for a chat template; at most 16 are allowed"
    ):
        settings({f"switch_{number}": True for number in range(17)})


def test_no_option_can_replace_a_template_s_built_in_variables() -> None:
    """The same is true for parameters that a new package release may add."""
    parameters = inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters
    for name in {*parameters, *DEFAULT_NAMESPACE}:
        with pytest.raises(ValidationError, match="given to the chat template already"):
            settings({name: True})


@given(st.text(max_size=30))
def test_a_text_is_refused_or_rendered_as_one_line_without_markup(text: str) -> None:
    try:
        (value,) = settings({"style": text}).template_options.values()
    except ValidationError:
        return
    assert isinstance(value, bool | int | float) or not set(value) & set("<>|{}[]()\n\r\t")
